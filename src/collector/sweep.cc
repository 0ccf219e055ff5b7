// The steps of sweep.h.
#include "collector/sweep.h"

#include "base/limits.h"
#include "collector/roots/weak_cells.h"
#include <algorithm>

namespace fm::detail {

sweep::sweep(object_cache& cache, cycle_report& report, snapshot& of)
    : cache_(cache), report_(report), snapshot_(of), marks_(of.marks()), dead_(slot_marks::tablet_words) {}

void sweep::begin() {
  // First, so that a failure later on leaves no handle to anything that is half gone.
  report_.weak_cleared = clear_weak(marks_);
  cache_.collections().dying.store(nullptr, std::memory_order_seq_cst);
}

bool sweep::find_dead(std::size_t tablet) {
  const std::uint64_t* allocated = marks_.allocated(tablet);
  const std::uint64_t* marked = marks_.marked(tablet);
  std::uint64_t any = 0;
  for (std::size_t w = 0; w < slot_marks::tablet_words; ++w) {
    dead_[w] = allocated[w] & ~marked[w];
    report_.dead += static_cast<std::uint64_t>(__builtin_popcountll(dead_[w]));
    report_.marked += static_cast<std::uint64_t>(__builtin_popcountll(allocated[w] & marked[w]));
    any |= dead_[w];
  }
  return any != 0;
}

const std::vector<slot_page>& sweep::free(std::size_t tablet, generation of) {
  freed_.clear();
  for (std::size_t w = 0; w < slot_marks::tablet_words; w += limits::words_swept_at_once) {
    const auto from = dead_.begin() + static_cast<std::ptrdiff_t>(w);
    if (std::all_of(from, from + limits::words_swept_at_once, [](std::uint64_t b) { return b == 0; })) continue;
    report_.freed_bytes += cache_.collections().free_dead(marks_.tablets()[tablet], w, w + limits::words_swept_at_once,
                                                          dead_.data(), freed_, of == generation::young);
    snapshot_.pace();
  }
  for (const slot_page& p : freed_)
    for (const std::uint64_t b : p.bits) report_.freed += static_cast<std::uint64_t>(__builtin_popcountll(b));
  return freed_;
}

void sweep::finish() noexcept {
  // As with `dying`: an object that gets one of these slots is copied out like any other.
  cache_.collections().doomed.store(nullptr, std::memory_order_seq_cst);
  cache_.collections().release_dead();
}

}  // namespace fm::detail
