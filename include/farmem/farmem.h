// Everything that an application needs.
#pragma once

#include <farmem/containers.h>
#include <farmem/handles.h>
