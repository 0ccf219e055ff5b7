// Marking by the agents: begins the cycle on them, introduces those to each other that talk (store/protocol.h), and sends and
// takes slots until marking is over (waves.h); see cycle.h.
//
// Invariant owned here: whoever takes ghosts of other agents in this cycle says with every answer how many it has sent and received, or
// the end of marking would not be known. So an agent that was named to others, and then does not want to know of them, is named
// to nobody any more.
#include <fmt/format.h>

#include <algorithm>

#include "cycle.h"
#include "evacuation.h"
#include "termination.h"

namespace fm::detail {

namespace {

constexpr std::size_t slots_per_message = 32768;  // 256 KiB
constexpr std::uint32_t ghosts_per_answer = 65536;
constexpr int near_steps_a_round = 32;
/// Agents that talk need the owner for nothing but to find out that they have ended: it does not ask more often than makes
/// marking longer by this part.
constexpr int ask_later_by = 32;

/// Whether an agent that answers so simply does not take part; anything else is as bad as for any message.
bool declines(errc e) noexcept {
  return e == errc::refused || e == errc::unsupported || e == errc::version_mismatch || e == errc::agent_full ||
         e == errc::out_of_memory;
}

}  // namespace

void cycle::begin_on_agents() {
  for (agent& a : agents_) {
    check(a.link->begin_cycle(report_.number, call_deadline(), a.talks, a.ticket), a, "begins no cycle");
    // An agent in this process has no address by which others could find it.
    a.talks =
        a.talks && owner_.options_.agents_talk && who_ != tracing::compute_node && !a.link->url().starts_with("local:");
  }
}

void cycle::introduce_agents() {
  for (bool again = true; again;) {
    again = false;
    const auto talkers = std::count_if(agents_.begin(), agents_.end(), [](const agent& a) { return a.talks; });
    const std::vector<remote::trace_peer> all = trace_peers();
    for (agent& a : agents_) {
      if (!a.talks) continue;
      if (talkers == 1 && !a.counts) {
        a.talks = false;  // with whom
        continue;
      }
      std::vector<remote::trace_peer> others;
      for (std::size_t i = 0; i < agents_.size(); ++i)
        if (agents_[i].talks && &agents_[i] != &a) others.push_back(all[i]);
      const errc e = a.link->trace_peers(report_.number, others, call_deadline());
      if (declines(e)) {
        a.talks = false;
        again = true;
        continue;
      }
      check(e, a, "is not told of other agents");
      a.counts = true;
    }
  }
}

std::vector<remote::trace_peer> cycle::trace_peers() const {
  std::vector<remote::trace_peer> all(agents_.size());
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    all[i].url = agents_[i].link->url();
    std::copy_n(agents_[i].link->heap_id().begin(), 2, all[i].heap_id);
    std::copy_n(agents_[i].ticket.ticket, 2, all[i].ticket);
  }
  for (const std::uint32_t t : marks_->tablets()) {
    const agent* const a = by_number_[hit.tablets[t].agent.load(std::memory_order_relaxed)];
    if (!a) continue;
    std::vector<protocol::tablet_range>& ranges = all[static_cast<std::size_t>(a - agents_.data())].tablets;
    if (!ranges.empty() && ranges.back().first + ranges.back().count == t)
      ++ranges.back().count;
    else
      ranges.push_back({t, 1});
  }
  return all;
}

// One message to an agent; whether marking has come any further by it.
bool cycle::exchange(agent& a, waves& w) {
  const std::size_t n = std::min(slots_per_message, a.pending.size() - a.pending_from);
  std::vector<slot_t> ghosts;
  protocol::trace_answer said{};
  protocol::trace_counts counted{};
  check(a.link->trace(report_.number, ++a.message, std::span(a.pending).subspan(a.pending_from, n), ghosts_per_answer,
                      call_deadline(), said, a.counts ? &counted : nullptr, ghosts),
        a, "does not trace");
  a.pending_from += n;
  if (a.pending_from == a.pending.size()) {
    a.pending.clear();
    a.pending_from = 0;
  }
  const auto index = static_cast<std::size_t>(&a - agents_.data());
  a.idle = said.idle != 0;
  const bool given = n != 0 || !ghosts.empty();
  const bool exchanged = w.answered(index, a.idle, given, a.counts ? &counted : nullptr);
  cycle_part& part = report_.agents[index];
  part.ghosts += ghosts.size();
  part.ghosts_sent = counted.ghosts_sent;
  part.peers_lost = counted.peers_lost;
  part.marked = said.marked;
  part.scanned_bytes = said.scanned_bytes;
  const bool moved = said.marked != a.said.marked || said.scanned_bytes != a.said.scanned_bytes;
  a.said = said;
  for (const slot_t g : ghosts) {
    if (g == 0 || g >= hit.slots) throw error(errc::corrupt, fmt::format("{} names slot {:#x}", a.link->url(), g));
    if (agent_of(g) != &a || marks_->is_newer(g)) add(g);
  }
  return given || moved || exchanged;
}

void cycle::mark_by_agents() {
  const time_point begun = clock::now();
  time_point progress = begun;
  duration look_again = look_again_first;
  const bool talk = std::any_of(agents_.begin(), agents_.end(), [](const agent& a) { return a.counts; });
  waves w(agents_.size());
  for (;;) {
    const std::uint32_t seen = owner_.traced_.load(std::memory_order_acquire);
    take_logged();
    bool near_left = true;
    for (int steps = 0; near_left && steps < near_steps_a_round; ++steps) {
      near_left = near_->step();
      pace();
    }
    w.begin(near_left || !logged_.empty());
    ++report_.waves;
    bool moved = near_left, idle = true;
    for (agent& a : agents_) {
      moved |= exchange(a, w);
      idle &= a.idle;
    }
    const bool pending = std::any_of(agents_.begin(), agents_.end(), [](const agent& a) { return !a.pending.empty(); });
    if (w.end() && !pending) return;
    if (mutated(mutation::end_marking_early) && idle) return;
    if (mutated(mutation::one_wave) && w.quiet()) return;
    if (moved) {
      progress = clock::now();
      look_again = look_again_first;
    } else if (clock::now() - progress > owner_.options_.call_within) {
      throw error(errc::timed_out, "the agents make no progress");
    }
    if (pending || near_left || (idle && !w.agents_are_at_it())) continue;
    const duration least =
        talk ? std::min<duration>((clock::now() - begun) / ask_later_by, look_again_most) : duration::zero();
    const time_point from = clock::now() + least;
    owner_.wait_traced(seen, std::max(look_again, least));
    for (duration left; (left = from - clock::now()) > duration::zero() && !owner_.stopping_.load();)
      owner_.wait_traced(owner_.traced_.load(std::memory_order_acquire), left);
    look_again = std::min<duration>(look_again * 2, look_again_most);
  }
}

}  // namespace fm::detail
