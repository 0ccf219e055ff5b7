// The collector's half of weak handles (farmem/detail/weak_cell.h): cells that name dead slots become null before these
// slots are used again.
//
// Invariant: when clear_weak returns, no cell names a dead slot, and none can come to name one. Called by a
// collection's sweep, after the final pause.
#pragma once

#include "cache/evictor.h"
#include "cache/object_cache.h"
#include <farmem/detail/weak_cell.h>

namespace fm::detail {

/// Makes the weak cells null that name dead slots of `heap`. Returns how many. O(weak cells).
std::uint64_t clear_weak(const object_cache& heap, const slot_marks& dying);

}  // namespace fm::detail
