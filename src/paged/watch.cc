// The agents of a range as its mender sees them: which are silent and are given up, which want to be left, and what the
// program is told of it. The mender's thread calls it, between passes over the stripes and in the middle of them.
//
// Invariant: no agent is given up that alone stores something (home::is_replaceable).
#include <fmt/format.h>

#include "base/log.h"
#include "core.h"

namespace fm::detail {

// Of several looks without an answer, the last one gives it up.
void paged_core::look_at(home_agent& a) noexcept {
  // A look that takes far longer than it may counts nothing: this process was not scheduled.
  const time_point begins = clock::now();
  const std::uint32_t generation = a.session().generation();
  const duration within = options_.suspect_within / paged_limits::silent_looks;
  const errc e = a.probe(within);
  if (e == errc::ok) a.answered();
  if (e == errc::cancelled || (e == errc::timed_out && clock::now() - begins >= 2 * within)) return;
  a.silent_looks = e == errc::timed_out ? a.silent_looks + 1 : 0;
  if (home_.replicas() == 1 || a.silent_looks < paged_limits::silent_looks || !home_.is_replaceable(a)) return;
  a.silent_looks = 0;
  log::warn("paged range {}: {} does not answer", name_, a.url());
  a.session().drop_connection(generation);  // and its session is not tried for long (home_agent::reconnect_for)
}

// Its transfer ends at once if it is given up.
void paged_core::look_meanwhile(home_agent& a) noexcept {
  if (home_.replicas() == 1 || !a.up() || (!a.is_silent() && !a.is_slow())) return;
  if (clock::now() < watched_ + options_.suspect_within / paged_limits::silent_looks) return;
  look_at(a);
  watched_ = clock::now();
}

// Agents that fall silent, are lost, or want to be left.
bool paged_core::watch_agents() noexcept {
  bool left = false, is_settled = true;
  auto states = agents_seen_;
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    home_agent& a = home_.agent(i);
    const bool is_gone = a.as.load() == home_agent::role::gone;
    states[i] = is_gone                     ? agent_state::gone
                : a.lost()                  ? agent_state::lost
                : a.wants_to_be_left.load() ? agent_state::wants_to_be_left
                                            : agent_state::serves;
    if (is_gone || a.lost() || !a.up()) continue;
    if (a.promise_is_unknown() && !a.is_silent()) share_again_ = true;
    if (!a.is_silent() && !a.is_slow()) continue;
    left = true;
    look_at(a);
    if (a.is_silent() && home_.replicas() > 1) is_settled = false;
  }
  watched_ = clock::now();
  const bool lacks_room = home_.lacks_room() && watched_ >= ask_again_;
  left = left || home_.lacks_room();
  if (lacks_room) ask_again_ = watched_ + paged_limits::mend_again_after;
  if (std::exchange(agents_seen_, states) == states && !share_again_ && !lacks_room) return left;
  // To share out would wait for an agent that is silent, at every look, and looks interrupt the pass that has to see all
  // stripes of a lost agent before the silent one may be given up. What needs room meanwhile gets it region by region.
  std::unique_lock lock(agents_change_, std::defer_lock);
  share_again_ = !is_settled || !lock.try_lock();
  if (!share_again_ && home_.serving() != 0) try {
      home_.share_out(options_.suspect_within, true);
    } catch (const error& e) {
      // Without room there is nothing to be done before an agent is added; other reasons pass.
      share_again_ = e.code() != errc::agent_full && e.code() != errc::quota_exceeded && e.code() != errc::agent_lost;
      log::warn("paged range {}: not all of it has a place any more: {}", name_, e.what());
    }
  if (lacks_room) home_.grow_for_writes(options_.suspect_within);
  return left || share_again_;
}

// What the program was not told yet. A change that is over before the mender looks is not told. True: one was lost, and
// what it stored may be elsewhere already.
bool paged_core::tell_changes() noexcept {
  if (!options_.on_agent_event) return false;
  bool whole = home_.degraded() == 0, is_lost = false;
  const auto post = [this](agent_change change, const char* agent) {
    try {
      events_.post({.change = change, .agent = agent});
    } catch (const std::bad_alloc&) {
      log::error("paged range {}: {} is {}, and nobody could be told", name_, agent, to_string(change));
    }
  };
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    home_agent& a = home_.agent(i);
    const home_agent::role as = a.as.load();
    told& t = told_[i];
    const auto tell = [&](agent_change change) { post(change, a.url()); };
    whole = whole && (!a.lost() || as == home_agent::role::gone || a.is_swept.load());
    if (!t.known && as != home_agent::role::joins) {
      t.known = true;
      t.is_over = as == home_agent::role::gone;  // it has left already
      if (!t.is_over) tell(agent_change::added);
    }
    if (!t.known || t.is_over) continue;
    if (as == home_agent::role::gone || a.lost()) {
      t.is_over = true;
      is_lost = is_lost || as != home_agent::role::gone;
      tell(as == home_agent::role::gone ? agent_change::left : agent_change::lost);
      continue;
    }
    if (const bool up = a.up(); std::exchange(t.is_up, up) != up) tell(up ? agent_change::back : agent_change::silent);
    if (const bool leaves = a.wants_to_be_left.load(); std::exchange(t.leaves, leaves) != leaves)
      tell(leaves ? agent_change::leaving : agent_change::staying);
  }
  whole = whole && !is_lost;
  if (std::exchange(told_whole_, whole) != whole && whole && home_.replicas() > 1) post(agent_change::replicated, "");
  return is_lost;
}

bool paged_core::must_watch() const noexcept {
  const time_point now = clock::now();
  if (home_.lacks_room() && now >= ask_again_) return true;
  if (now < watched_ + options_.suspect_within / paged_limits::silent_looks) return false;
  for (std::uint32_t i = 0; i < home_.agents(); ++i)
    if (const home_agent& a = home_.agent(i); a.up() && (a.is_silent() || a.is_slow())) return true;
  return false;
}

}  // namespace fm::detail
