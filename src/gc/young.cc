// A collection of young objects: those that no agent can know of, because neither they nor anything that refers to them was ever
// copied out (cache/frame.h). They die without a message, without having been written home, and their slots are used again at once.
// Its steps are a cycle's (cycle.h), with what differs here.
//
// Soundness: a young object that is reachable at the snapshot is reached from a root, a pin, or a thread that waits, over objects; the
// last one on that way that is not young refers to a young one, so it was newer than its home copy in the snapshot's pause. The scan
// finds it newer still, and takes what it refers to for roots; or it was copied out meanwhile, and what ceased to be young thereby was
// logged, as what was copied out itself (object_cache::grew_up); or the reference was overwritten since, and logged. From there on the way leads over
// young objects, whose frames are here.
//
// Work: words of pages that have news (table/hit.h), and what lives of the young.
#include <algorithm>

#include "cycle.h"

namespace fm::detail {

void cycle::scan_young() {
  find_roots();
  cache_.scan_news(marks_->tablets(), *this);
  marks_->only_newer();
  tracing_elsewhere* const nobody = this;
  near_ = std::make_unique<compute_tracer>(cache_, *marks_, compute_tracer::near_stack_slots, nobody);
  add_found();
}

void cycle::mark_young() {
  do {
    check_stop();
    pace();
    take_logged();
  } while (near_->step() || !logged_.empty());
  report_.traced_here = near_->traced();
}

void cycle::sweep_young() {
  // As in sweep().
  report_.weak_cleared = clear_weak(cache_, *marks_);
  cache_.dying.store(nullptr, std::memory_order_seq_cst);
  const std::vector<std::uint32_t>& tablets = marks_->tablets();
  std::vector<std::uint64_t> dead(slot_marks::tablet_words);
  std::vector<slot_page> freed;
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    count_dead(i, dead);
    freed.clear();
    constexpr std::size_t page_words = page_slots / 64;
    for (std::size_t w = 0; w < slot_marks::tablet_words; w += page_words) {
      if (std::all_of(dead.begin() + static_cast<std::ptrdiff_t>(w),
                      dead.begin() + static_cast<std::ptrdiff_t>(w + page_words),
                      [](std::uint64_t b) { return b == 0; }))
        continue;
      report_.freed_bytes += cache_.free_dead(tablets[i], w, w + page_words, dead.data(), freed, true);
      pace();
    }
    for (const slot_page& p : freed)
      for (const std::uint64_t b : p.bits) report_.freed += static_cast<std::uint64_t>(__builtin_popcountll(b));
    // No agent has ever heard of these slots since they were taken: there is nothing that it could have to forget.
    // Of a lost one they stay out of use, and nobody makes objects there.
    if (const agent* a = by_number_[hit.tablets[tablets[i]].agent.load(std::memory_order_relaxed)])
      cache_.return_slots(a->number, freed);
  }
}

}  // namespace fm::detail
