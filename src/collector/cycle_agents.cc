// Beginning and ending a cycle on its agents; see cycle_agents.h.
#include "collector/cycle_agents.h"

#include "base/limits.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace fm::detail {

namespace {

/// Whether an agent that answers so simply does not take part; anything else is as bad as for any message.
bool declines(errc e) noexcept {
  return e == errc::refused || e == errc::unsupported || e == errc::version_mismatch || e == errc::agent_full ||
         e == errc::out_of_memory;
}

}  // namespace

cycle_agents::cycle_agents(collector& owner, cycle_report& report, const snapshot& of)
    : owner_(owner), report_(report), snapshot_(of) {
  object_cache::links& links = owner_.cache().agents();
  by_number_.resize(links.size());
  all_.reserve(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i]->lost()) continue;
    agent& a = all_.emplace_back();
    a.link = links[i].get();
    a.number = static_cast<std::uint32_t>(i);
    a.at = all_.size() - 1;
    by_number_[i] = &a;
    report_.agents.push_back({.agent = links[i]->url()});
  }
}

cycle_agents::agent* cycle_agents::of_tablet(std::uint32_t tablet) const noexcept {
  return by_number_[hit.tablets[tablet].agent.load(std::memory_order_relaxed)];
}

void cycle_agents::check_all_are_traced(const slot_marks& marks) const {
  if (!owner_.members().forget_left())
    throw error(errc::timed_out, "an agent that was the primary of a tablet does not answer that it is not any more");
  for (const std::uint32_t t : marks.tablets())
    if (!of_tablet(t) && owner_.cache().losses().has_replica(std::uint64_t{t} * tablet_slots))
      throw error(errc::agent_lost, fmt::format("{} is lost, and its backups have not taken over yet",
                                                owner_.cache().link_of(std::uint64_t{t} * tablet_slots).url()));
}

void cycle_agents::mark_lost(slot_marks& marks) const {
  for (std::size_t i = 0; i < marks.tablets().size(); ++i)
    if (!of_tablet(marks.tablets()[i])) std::memset(marks.marked(i), 0xff, protocol::marks_bytes);
}

time_point cycle_agents::call_deadline() const { return clock::now() + owner_.options().call_within; }

void cycle_agents::check(errc e, const agent& a, const char* what) const {
  snapshot_.check_stop();
  if (e != errc::ok) throw error(e, fmt::format("{} {}", a.link->url(), what));
}

void cycle_agents::begin_cycle(const slot_marks& marks, bool may_talk) {
  for (agent& a : all_) {
    check(a.link->begin_cycle(report_.number, call_deadline(), a.talks, a.ticket), a, "begins no cycle");
    // An agent in this process has no address by which others could find it.
    a.talks = a.talks && may_talk && !a.link->url().starts_with("local:");
  }
  begun_ = true;
  introduce(marks);
}

void cycle_agents::introduce(const slot_marks& marks) {
  for (bool again = true; again;) {
    again = false;
    const auto talkers = std::count_if(all_.begin(), all_.end(), [](const agent& a) { return a.talks; });
    const std::vector<remote::trace_peer> all = trace_peers(marks);
    for (agent& a : all_) {
      if (!a.talks) continue;
      if (talkers == 1 && !a.counts) {
        a.talks = false;  // with whom
        continue;
      }
      std::vector<remote::trace_peer> others;
      for (std::size_t i = 0; i < all_.size(); ++i)
        if (all_[i].talks && i != a.at) others.push_back(all[i]);
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

std::vector<remote::trace_peer> cycle_agents::trace_peers(const slot_marks& marks) const {
  std::vector<remote::trace_peer> all(all_.size());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    all[i].url = all_[i].link->url();
    std::copy_n(all_[i].link->heap_id().begin(), 2, all[i].heap_id);
    std::memcpy(all[i].ticket, all_[i].ticket.ticket, sizeof all[i].ticket);  // of a packed message: not aligned
  }
  for (const std::uint32_t t : marks.tablets()) {
    const agent* const a = of_tablet(t);
    if (!a) continue;
    std::vector<protocol::tablet_range>& ranges = all[a->at].tablets;
    if (!ranges.empty() && ranges.back().first + ranges.back().count == t)
      ++ranges.back().count;
    else
      ranges.push_back({t, 1});
  }
  return all;
}

void cycle_agents::end_cycle(bool completed) noexcept {
  if (!begun_) return;
  const duration within = completed ? owner_.options().call_within : limits::end_failed_within;
  for (agent& a : all_) {
    protocol::end_cycle_answer said{};
    if (a.link->lost() || a.link->end_cycle(report_.number, clock::now() + within, said) != errc::ok) continue;
    cycle_part& p = part(a);
    p.objects = said.objects;
    p.live_bytes = said.live_bytes;
    p.regions = said.regions;
    p.tracing_ns = said.tracing_ns;
  }
}

}  // namespace fm::detail
