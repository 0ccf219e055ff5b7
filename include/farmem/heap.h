// Layer `heap`: one process's managed heap: agents, cache, statistics, verification.
#pragma once

#include <farmem/barrier.h>
#include <farmem/gc.h>
#include <farmem/heap/heap_core.h>
#include <farmem/heap/options.h>
#include <farmem/heap/stats.h>
