// Weak cells: an object that weak handles name has one, a word of this process that holds its slot. An fm::weak holds the
// cell's number and version and nothing else: it is bytes, which may be copied, evicted and lost, and which no collector
// and no agent looks at. When the object dies, its cell gets another version, so that every handle to it is null.
//
//   name (fm::weak)   version (23) | number (40), from 1                    0: null
//   cell word         0 | version (23) | slot (40)                          of an object; slot 0: never used
//                     1 | version (23) | number of the next free cell (40)  free: no name has this version yet
//
// Invariants
//   - A slot that is allocated has at most one cell, and index_of_cell[slot] is its number.
//   - A version of a cell is of one object for ever. A cell whose versions are used up is never used again.
//   - An object in a slot that is used again is never judged by old marks. From the final pause of a cycle on,
//     collector_view::dying says which slots are dead. lock_weak() asks it, in a section, until the collector has given
//     all cells of the dead new versions. Then `dying` is null again, and only after that are slots freed.
//     test/model/reuse.pml has the mistakes that this order avoids.
//
// fm::weak and fm::heap::on_dead call both functions; src/collector/roots/weak_cells.cc has the bodies.
#pragma once

#include <cstdint>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

using weak_name = std::uint64_t;

/// The name of the object in `slot`, which the caller keeps alive. O(1), and without a lock if the object has a cell.
/// Throws out_of_memory.
weak_name name_weakly(slot_t slot);
/// The slot of the object of that name, to be rooted in the caller's section; 0 when it is dead or its heap is closed.
/// O(1), wait-free.
slot_t lock_weak(weak_name name) noexcept;

}  // namespace fm::detail
