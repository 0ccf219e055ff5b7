// Weak handles: lock and copy, as farmem/detail/weak_cell.h declares them, and the collector's walk (clear_weak.h).
//
// Invariant owned here: a lock in a section sees the marks of the cycle, or the cells that the cycle has made null. A
// copy of a cell is made before the collector's walk or waits for its end.
#include "cache/evictor.h"
#include "cache/object_cache.h"
#include "clear_weak.h"

#include <mutex>

namespace fm::detail {

namespace {

// Between the collector's walk and copies made meanwhile; the roots' lock alone is taken under it.
std::mutex weak_mutex;
const os::fork_guard weak_at_fork = os::guard_at_fork<weak_mutex>(os::fork_rank::threads);

object_cache* heap_of(slot_t slot) noexcept {
  return slot == 0 ? nullptr : tablet_info_of(slot).heap.load(std::memory_order_acquire);
}

}  // namespace

slot_t lock_weak(const root_cell& cell) noexcept {
  const object_cache* heap = heap_of(roots::get_weak(&cell));
  if (!heap) return 0;
  const slot_marks* dying = heap->collections().dying.load(std::memory_order_acquire);
  // The cell is read after the marks: if there are none because the cycle is through with weak cells, this sees what it
  // did to them, and no slot that is used for something else by now.
  const slot_t slot = roots::get_weak(&cell);
  if (slot == 0 || (dying && dying->dead(slot) && !mutated(mutation::lock_without_asking))) return 0;
  if (is_marking()) log_overwritten(slot);  // it may be reachable from nowhere else
  return slot;
}

root_cell* copy_weak(const root_cell& cell) {
  const section in_section;
  const object_cache* heap = heap_of(roots::get_weak(&cell));
  if (!heap || !heap->collections().dying.load(std::memory_order_acquire))
    return roots::make_weak(roots::get_weak(&cell));
  const std::lock_guard lock(weak_mutex);
  return roots::make_weak(roots::get_weak(&cell));
}

std::uint64_t clear_weak(const object_cache& heap, const slot_marks& dying) {
  struct walk {
    const object_cache* heap;
    const slot_marks* dying;
    std::uint64_t cleared = 0;
  } w{&heap, &dying};
  const std::lock_guard lock(weak_mutex);
  roots::for_each_weak(
      [](root_cell& cell, slot_t slot, void* context) {
        auto& at = *static_cast<walk*>(context);
        if (heap_of(slot) != at.heap || !at.dying->dead(slot)) return;
        std::uint64_t expected = roots::weak_tag | slot;
        at.cleared += cell.word.compare_exchange_strong(expected, roots::weak_tag, std::memory_order_acq_rel);
      },
      &w);
  return w.cleared;
}

}  // namespace fm::detail
