// Messages of marking by the agents; see agent_marking.h.
#include "collector/marking/agent_marking.h"

#include "base/limits.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace fm::detail {

agent_marking::agent_marking(collector& owner, cycle_report& report, snapshot& of, cycle_agents& agents)
    : owner_(owner),
      report_(report),
      snapshot_(of),
      agents_(agents),
      marks_(of.marks()),
      progress_(agents.size()),
      local_(owner.cache(), marks_, limits::local_stack_slots, this) {}

cycle_agents::agent* agent_marking::agent_of(slot_t slot) noexcept {
  if (!marks_.covers(slot)) return nullptr;  // younger than the snapshot, or another heap's
  return agents_.of_tablet(tablet_of(slot));
}

void agent_marking::refers_to(slot_t slot) {
  const cycle_agents::agent* a = agent_of(slot);
  if (a && marks_.mark(slot)) progress_[a->at].pending.push_back(slot);
}

void agent_marking::went_home(slot_t slot) {
  if (mutated(mutation::forget_gone_home)) return;
  if (const cycle_agents::agent* a = agent_of(slot)) progress_[a->at].pending.push_back(slot | protocol::scan_at_home);
}

void agent_marking::tell_dirty() {
  const std::vector<std::uint32_t>& tablets = marks_.tablets();
  std::vector<std::vector<protocol::slot_bits>> pages(agents_.size());
  const auto send = [&](const cycle_agents::agent& a) {
    agents_.check(a.link->add_dirty(report_.number, pages[a.at], agents_.call_deadline()), a,
                  "is not told what is dirty here");
    pages[a.at].clear();
  };
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    const cycle_agents::agent* a = agents_.of_tablet(tablets[i]);
    if (!a) continue;
    constexpr std::size_t page_words = page_slots / 64;
    for (std::size_t w = 0; w < slot_marks::tablet_words; w += page_words) {
      const std::uint64_t* const bits = marks_.dirty(i) + w;
      if (std::all_of(bits, bits + page_words, [](std::uint64_t b) { return b == 0; })) continue;
      protocol::slot_bits& page = pages[a->at].emplace_back();
      page.first_slot = tablets[i] * tablet_slots + w * 64;
      std::memcpy(page.bits, bits, sizeof page.bits);
    }
    if (pages[a->at].size() >= limits::pages_per_message - tablet_slots / page_slots) send(*a);
  }
  for (const cycle_agents::agent& a : agents_)
    if (!pages[a.at].empty()) send(a);
}

void agent_marking::mark() {
  run_rounds();
  read_marks();
}

bool agent_marking::exchange(cycle_agents::agent& a, termination_rounds& rounds) {
  progress& p = progress_[a.at];
  const std::size_t n = std::min(limits::slots_per_message, p.pending.size() - p.pending_from);
  std::vector<slot_t> references;
  protocol::trace_answer said{};
  protocol::trace_counts counted{};
  agents_.check(a.link->trace(report_.number, ++p.message, std::span(p.pending).subspan(p.pending_from, n),
                              limits::references_per_answer, agents_.call_deadline(), said,
                              a.counts ? &counted : nullptr, references),
                a, "does not trace");
  p.pending_from += n;
  if (p.pending_from == p.pending.size()) {
    p.pending.clear();
    p.pending_from = 0;
  }
  p.idle = said.idle != 0;
  const bool given = n != 0 || !references.empty();
  const bool exchanged = rounds.answered(a.at, p.idle, given, a.counts ? &counted : nullptr);
  cycle_part& part = agents_.part(a);
  part.remote_references += references.size();
  part.references_sent = counted.references_sent;
  part.peers_lost = counted.peers_lost;
  part.marked = said.marked;
  part.scanned_bytes = said.scanned_bytes;
  const bool moved = said.marked != p.said.marked || said.scanned_bytes != p.said.scanned_bytes;
  p.said = said;
  for (const slot_t r : references) {
    if (r == 0 || r >= hit.slots) throw error(errc::corrupt, fmt::format("{} names slot {:#x}", a.link->url(), r));
    if (agent_of(r) != &a || marks_.is_dirty(r)) snapshot_.add(r);
  }
  return given || moved || exchanged;
}

void agent_marking::run_rounds() {
  const time_point begun = clock::now();
  time_point progressed = begun;
  duration look_again = limits::look_again_first;
  const bool talk = std::any_of(agents_.begin(), agents_.end(), [](const cycle_agents::agent& a) { return a.counts; });
  termination_rounds rounds(agents_.size());
  for (;;) {
    const std::uint32_t seen = owner_.times_traced();
    const bool logged = snapshot_.take_logged();
    bool local_left = true;
    for (int steps = 0; local_left && steps < limits::local_steps_a_round; ++steps) {
      local_left = local_.step();
      snapshot_.pace();
    }
    rounds.begin(local_left || logged);
    ++report_.termination_rounds;
    bool moved = local_left, idle = true;
    for (cycle_agents::agent& a : agents_) {
      moved |= exchange(a, rounds);
      idle &= progress_[a.at].idle;
    }
    const bool pending =
        std::any_of(progress_.begin(), progress_.end(), [](const progress& p) { return !p.pending.empty(); });
    if (rounds.end() && !pending) return;
    if (mutated(mutation::end_marking_early) && idle) return;
    if (mutated(mutation::one_round) && rounds.quiet()) return;
    if (moved) {
      progressed = clock::now();
      look_again = limits::look_again_first;
    } else if (clock::now() - progressed > owner_.options().call_within) {
      throw error(errc::timed_out, "the agents make no progress");
    }
    if (pending || local_left || (idle && !rounds.agents_exchange())) continue;
    const duration least =
        talk ? std::min<duration>((clock::now() - begun) / limits::ask_later_by, limits::look_again_most)
             : duration::zero();
    const time_point from = clock::now() + least;
    owner_.wait_traced(seen, std::max(look_again, least));
    for (duration left; (left = from - clock::now()) > duration::zero() && !owner_.stopping();) owner_.rest(left);
    look_again = std::min<duration>(look_again * 2, limits::look_again_most);
  }
}

void agent_marking::read_marks() {
  report_.traced_here = local_.traced();
  agents_.mark_lost(marks_);
  const std::vector<std::uint32_t>& tablets = marks_.tablets();
  std::vector<std::uint64_t> said(protocol::marks_tablets_max * slot_marks::tablet_words);
  for (std::size_t i = 0; i < tablets.size();) {
    cycle_agents::agent* a = agents_.of_tablet(tablets[i]);
    if (!a) {
      ++i;
      continue;
    }
    std::uint32_t n = 1;
    while (n < protocol::marks_tablets_max && i + n < tablets.size() && tablets[i + n] == tablets[i] + n &&
           agents_.of_tablet(tablets[i + n]) == a)
      ++n;
    agents_.check(a->link->read_marks(report_.number, tablets[i], n, said.data(), agents_.call_deadline()), *a,
                  "does not tell what is marked");
    for (std::size_t w = 0; w < n * slot_marks::tablet_words; ++w) marks_.marked(i)[w] |= said[w];
    i += n;
  }
}

}  // namespace fm::detail
