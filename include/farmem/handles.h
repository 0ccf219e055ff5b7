// Layer `handles`: fm::heap, fm::ptr, fm::ref, fm::weak, scopes and pins.
#pragma once

#include <farmem/handles/heap.h>
#include <farmem/handles/ptr.h>
#include <farmem/handles/scope.h>
