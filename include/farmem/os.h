// Layer `os`: what farmem asks of the operating system.
#pragma once

#include <farmem/base.h>
#include <farmem/os/descriptor.h>
#include <farmem/os/memory.h>
#include <farmem/os/sync.h>
