// Giving a cache another size while the heap is in use.
//
// Invariants
//   - A cache that grows has its memory at once. One that shrinks gives memory back as eviction makes it available, and
//     always leaves what the next maker needs: threads that allocate are slowed down, and do not fail for it.
//   - Every object that the heap has made fits into the cache still (limits::objects_of_cache of the largest one), but for
//     one whose maker asked for the old limit and takes its frame when the cache has become smaller.
//   - The last caller decides. One whose size is no longer wanted returns.
//
// What depends on the size is computed from the arena's capacity where it is used; the reserve follows with
// frame_space::note_capacity. The ghosts' table is as large as the largest cache needs.
#pragma once

#include <cstdint>
#include <farmem/base/units.h>

namespace fm::detail {

class object_cache;

/// Returns when the cache has `bytes`, rounded down to segments. O(objects that have to leave). Thread-safe, outside of
/// sections that cannot be left. Throws invalid_argument, naming the bound; heap_closed; and at the deadline cache_full,
/// or what the agents that refuse say: the cache then keeps the size that it has come to.
void resize_cache(object_cache& cache, std::uint64_t bytes, time_point deadline);

}  // namespace fm::detail
