// Everything that an application needs.
#pragma once

#include <farmem/handles.h>
