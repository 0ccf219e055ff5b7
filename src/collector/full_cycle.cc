// The steps of a full cycle; see full_cycle.h.
#include "collector/full_cycle.h"

#include "base/limits.h"
#include "cache/tablets/replica_set.h"
#include "collector/sweep.h"
#include <algorithm>
#include <cstring>

namespace fm::detail {

full_cycle::full_cycle(collector& owner, cycle_report& report)
    : owner_(owner),
      cache_(owner.cache()),
      report_(report),
      who_(owner.who_traces()),
      snapshot_(owner, report,
                {.young = false, .share = owner.options().share, .pause_within = owner.options().pause_within}),
      agents_(owner, report, snapshot_),
      verifier_(cache_, report) {}

void full_cycle::run() noexcept {
  const bool completed = run_reported(report_, [this] {
    run_steps();
    if (owner_.options().verify) verifier_.verify_references(snapshot_, generation::all);
  });
  snapshot_.end();
  agents_.end_cycle(completed);
  if (owner_.options().verify) verifier_.verify_agents(agents_, "after the cycle");
}

void full_cycle::run_steps() {
  const bool verify = owner_.options().verify;
  if (agents_.empty()) throw error(errc::agent_lost, "all agents are lost");
  if (verify) {
    verifier_.verify_agents(agents_, "before the cycle");
    verifier_.check_faults();
  }
  cache_.eviction().send();
  snapshot_.take();
  agents_.check_all_are_traced(snapshot_.marks());
  const time_point scanned_from = clock::now();
  agents_.begin_cycle(snapshot_.marks(), owner_.options().agents_talk && who_ != tracing::compute_node);
  if (mutated(mutation::rehome_in_cycle)) owner_.rehome();
  scan();
  report_.scan_ns = collection_ns(scanned_from);
  const time_point marked_from = clock::now();
  do {
    if (by_this_node_) by_this_node_->mark();
    if (by_agents_) by_agents_->mark();
  } while (!snapshot_.end_marking());
  report_.mark_ns = collection_ns(marked_from);
  if (who_ == tracing::both) verifier_.compare_tracers(snapshot_.marks(), *second_marks_);
  if (verify) {
    if (by_agents_) verifier_.verify_marks(agents_, snapshot_.marks());
    verifier_.verify_agents(agents_, "after marking");
    verifier_.check_faults();
  }
  const time_point swept_from = clock::now();
  sweep_dead();
  report_.sweep_ns = collection_ns(swept_from);
}

// ---- scan ----

void full_cycle::scan() {
  /// Notes what is dirty.
  class dirty_scan final : public snapshot_scan {
   public:
    explicit dirty_scan(full_cycle& c) : snapshot_scan(c.snapshot_), cycle_(c), marks_(c.snapshot_.marks()) {}
    bool frame(slot_t slot, bool dirty, bool) override {
      if (!marks_.covers(slot)) return false;
      // Of an agent that is lost only the frames are left: nobody else can say what they refer to.
      if (!cycle_.agents_.of_tablet(tablet_of(slot))) return true;
      if (dirty && !mutated(mutation::scan_old_homes)) {
        marks_.note_dirty(slot);
        ++cycle_.report_.dirty;
      }
      return false;
    }

   private:
    full_cycle& cycle_;
    slot_marks& marks_;
  };
  slot_marks& marks = snapshot_.marks();
  if (who_ == tracing::both) second_marks_ = std::make_unique<slot_marks>(marks);
  if (who_ != tracing::agents) {
    slot_marks& own = second_marks_ ? *second_marks_ : marks;
    agents_.mark_lost(own);
    by_this_node_ = std::make_unique<local_marking>(snapshot_, cache_, own, owner_.trace_stack_slots());
    snapshot_.mark_by(*by_this_node_);
  }
  snapshot_.find_roots();
  dirty_scan found(*this);
  {
    const held_pages held(cache_.collections());
    cache_.collections().scan_frames(marks.tablets(), found);
  }
  if (who_ != tracing::compute_node) {
    by_agents_ = std::make_unique<agent_marking>(owner_, report_, snapshot_, agents_);
    by_agents_->tell_dirty();
    snapshot_.mark_by(*by_agents_);
  }
  snapshot_.add_found();
}

// ---- sweep ----

void full_cycle::sweep_dead() {
  sweep dead(cache_, report_, snapshot_);
  dead.begin();
  const std::vector<std::uint32_t>& tablets = snapshot_.marks().tablets();
  std::vector<std::vector<slot_page>> freed(agents_.size());
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    const bool any = dead.find_dead(i);
    const cycle_agents::agent* a = agents_.of_tablet(tablets[i]);
    if (!any || !a) continue;
    const std::vector<slot_page>& pages = dead.free(i, generation::all);
    freed[a->at].insert(freed[a->at].end(), pages.begin(), pages.end());
  }
  dead.finish();
  for (const cycle_agents::agent& a : agents_) release(a, freed[a.at]);
}

void full_cycle::release(const cycle_agents::agent& a, const std::vector<slot_page>& freed) {
  cycle_part& part = agents_.part(a);
  std::vector<protocol::slot_bits> pages;
  for (std::size_t from = 0; from < freed.size(); from += limits::pages_per_message) {
    const auto some = std::span(freed).subspan(from, std::min(limits::pages_per_message, freed.size() - from));
    pages.resize(some.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      pages[i].first_slot = some[i].first;
      std::memcpy(pages[i].bits, some[i].bits.data(), sizeof pages[i].bits);
    }
    protocol::release_answer answer{};
    if (mutated(mutation::return_slots_early)) cache_.slots().return_slots(a.number, some);
    agents_.check(a.link->release_slots(report_.number, pages, agents_.call_deadline(), answer), a,
                  "does not release slots");
    if (!mutated(mutation::release_at_primary_only)) release_at_backups(pages);
    part.freed_objects += answer.entries;
    part.freed_bytes += answer.bytes;
    if (!mutated(mutation::return_slots_early)) cache_.slots().return_slots(a.number, some);
  }
}

void full_cycle::release_at_backups(std::span<const protocol::slot_bits> pages) {
  std::vector<std::vector<protocol::slot_bits>> by_agent(cache_.agents().size());
  for (const protocol::slot_bits& p : pages)
    replica_set::of(p.first_slot).for_each_backup([&](std::uint32_t b) { by_agent[b].push_back(p); });
  for (const cycle_agents::agent& b : agents_) {
    if (by_agent[b.number].empty()) continue;
    protocol::release_answer answer{};
    const errc e = b.link->release_slots(report_.number, by_agent[b.number], agents_.call_deadline(), answer);
    if (!b.link->lost()) agents_.check(e, b, "does not release slots");
  }
}

}  // namespace fm::detail
