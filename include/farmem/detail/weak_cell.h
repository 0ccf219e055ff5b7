// Weak cells: fm::weak names an object by one without keeping it alive. Here is the rule by which a cycle and a lock()
// agree.
//
// Invariant: an object in a slot that is used again is never judged by old marks. From the final pause of a cycle on,
// collector_view::dying says which slots are dead. lock() asks it, in a section, until the collector has made every
// weak cell null that names a dead slot. Copies of cells are held up meanwhile, so that none gets past the collector's
// walk. Then `dying` is null again, and only after that are slots freed. test/model/reuse.pml has the mistakes that
// this order avoids.
//
// fm::weak calls both functions; src/collector/roots/weak.cc has the bodies.
#pragma once

#include <farmem/detail/roots.h>

namespace fm::detail {

/// The slot that a weak cell names, to be rooted in the caller's section; 0 when the object is dead or its heap is
/// closed.
slot_t lock_weak(const root_cell& cell) noexcept;
/// Another cell that names the same. Throws out_of_memory.
root_cell* copy_weak(const root_cell& cell);

}  // namespace fm::detail
