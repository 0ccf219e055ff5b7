// Everything that an application needs.
#pragma once

#include <farmem/channel.h>
#include <farmem/containers.h>
#include <farmem/handles.h>
#include <farmem/paged.h>
#include <farmem/pool.h>
