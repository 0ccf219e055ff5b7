// Layer `containers`: managed containers, larger than memory.
#pragma once

#include <farmem/containers/hash_map.h>
#include <farmem/containers/queue.h>
#include <farmem/containers/string.h>
#include <farmem/containers/vector.h>
