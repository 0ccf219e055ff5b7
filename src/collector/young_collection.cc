// The steps of a young collection; young_collection.h says why they are sound.
#include "collector/young_collection.h"

#include "base/limits.h"
#include "collector/sweep.h"
#include <algorithm>

namespace fm::detail {

namespace {

/// Nobody traces objects that are not young. If one is dirty, the young objects that it refers to are roots; if it was
/// copied out, they were logged.
class no_tracing final : public tracing_elsewhere {
  void refers_to(slot_t) override {}
  void went_home(slot_t) override {}
};
no_tracing nobody;

}  // namespace

// Young objects have to be collected before they are evicted. The work of a collection costs the program no more than
// their eviction would, but a collection that rests would come too late. So it takes no rests.
young_collection::young_collection(collector& owner, cycle_report& report)
    : owner_(owner),
      cache_(owner.cache()),
      report_(report),
      snapshot_(owner, report,
                {.young = true,
                 .share = 1,
                 .pause_within = std::min<duration>(limits::young_pause_within, owner.options().pause_within)}),
      verifier_(cache_, report) {
  for (const auto& link : cache_.agents()) lost_.push_back(link->lost());
}

void young_collection::run() noexcept {
  run_reported(report_, [this] {
    run_steps();
    if (owner_.options().verify) verifier_.verify_references(snapshot_, generation::young);
  });
  snapshot_.end();
}

void young_collection::run_steps() {
  snapshot_.take();
  const time_point scanned_from = clock::now();
  scan();
  report_.scan_ns = collection_ns(scanned_from);
  const time_point marked_from = clock::now();
  do {
    mark();
  } while (!snapshot_.end_marking());
  report_.mark_ns = collection_ns(marked_from);
  const time_point swept_from = clock::now();
  sweep_dead();
  report_.sweep_ns = collection_ns(swept_from);
}

void young_collection::scan() {
  /// Notes what is young, and takes what dirty frames that are not young refer to for roots.
  class young_scan final : public snapshot_scan {
   public:
    young_scan(snapshot& of, cycle_report& report) : snapshot_scan(of), marks_(of.marks()), report_(report) {}
    bool frame(slot_t slot, bool dirty, bool is_young) override {
      if (!is_young) return dirty && !mutated(mutation::young_only);
      young(slot / 64 * 64, std::uint64_t{1} << slot % 64);
      return false;
    }
    void young(slot_t first, std::uint64_t slots) override {
      if (marks_.covers(first)) marks_.note_dirty(first, slots);
      report_.dirty += static_cast<std::uint64_t>(__builtin_popcountll(slots));
    }

   private:
    slot_marks& marks_;
    cycle_report& report_;
  };
  slot_marks& marks = snapshot_.marks();
  snapshot_.find_roots();
  young_scan visitor(snapshot_, report_);
  {
    const held_pages held(cache_.collections());
    cache_.collections().scan_cards(marks.tablets(), visitor);
  }
  marks.only_dirty();
  marking_ = std::make_unique<local_marking>(snapshot_, cache_, marks, limits::local_stack_slots, &nobody);
  snapshot_.mark_by(*marking_);
  snapshot_.add_found();
}

void young_collection::mark() {
  marking_->mark();
  report_.traced_here = marking_->traced();
}

// No agent has heard of these slots since they were taken, so there is nothing to forget. Those of an agent that is
// lost stay out of use: nobody makes objects there.
void young_collection::sweep_dead() {
  sweep dead(cache_, report_, snapshot_);
  dead.begin();
  const std::vector<std::uint32_t>& tablets = snapshot_.marks().tablets();
  std::vector<std::vector<slot_page>> freed(lost_.size());
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    if (!dead.find_dead(i)) continue;
    const std::vector<slot_page>& pages = dead.free(i, generation::young);
    const std::uint32_t agent = hit.tablets[tablets[i]].agent.load(std::memory_order_relaxed);
    if (!lost_[agent]) freed[agent].insert(freed[agent].end(), pages.begin(), pages.end());
  }
  dead.finish();
  for (std::size_t agent = 0; agent < freed.size(); ++agent)
    if (!lost_[agent]) cache_.slots().return_slots(static_cast<std::uint32_t>(agent), freed[agent]);
}

}  // namespace fm::detail
