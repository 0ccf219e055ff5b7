// Layer `cache`: frames, segments and their queues, misses, elastic fetch, eviction and write-back of one heap.
#pragma once

#include <farmem/cache/evictor.h>
#include <farmem/cache/object_cache.h>
