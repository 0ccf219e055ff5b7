// Layer `containers`: managed containers, larger than memory.
#pragma once

#include <farmem/containers/string.h>
#include <farmem/containers/vector.h>
