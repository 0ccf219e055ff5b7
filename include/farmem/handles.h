// Layer `handles`: fm::heap, fm::ptr, fm::ref, fm::weak, scopes and pins, walks, prefetching, coroutines.
#pragma once

#include <farmem/handles/await.h>
#include <farmem/handles/heap.h>
#include <farmem/handles/outside.h>
#include <farmem/handles/prefetch.h>
#include <farmem/handles/ptr.h>
#include <farmem/handles/run.h>
#include <farmem/handles/scope.h>
#include <farmem/handles/task.h>
#include <farmem/handles/walk.h>
