// When marking by agents is over. The owner sends rounds of messages, waves, and every agent answers whether it is idle, and,
// if it talks to other agents, how many ghosts it has sent to them and received from them in this cycle. Used by src/gc/cycle.cc.
//
// Over means: no agent has anything to mark or to trace, nothing is on its way between agents, and the owner has nothing for anybody.
//
// An agent that is idle (store/protocol.h) has nothing to do and nothing for the owner, and all ghosts that it has ever sent
// were acknowledged, which their receiver does when it has marked and queued them. So if at one moment all agents are idle and the
// owner has nothing, it is over: a message of which an agent does not know yet that it was received leaves that agent busy, and one that
// it has given up holds nothing that the owner was not given as well. It stays over, since an idle agent becomes busy by what it
// receives only; what comes late of a message that was given up is marked already. But for slots that are newer with the owner,
// who alone marks those, and ones that no longer matter: they make the receiver busy once more, to no effect, since what
// they refer to is marked and a slot that the owner has marked is never released.
//
// That there was such a moment is known after
//   - two waves in a row that were quiet, the second begun when the first had ended, with the same counts. Quiet: all were idle, and
//     the owner had nothing, sent nothing and was given nothing. Between its two answers an agent received nothing: it counts that
//     when it has queued it, is busy until then, and was idle with the same count. Nor did the owner send it anything. So it was
//     idle all the time in between; and all of these times contain the moment at which the first wave ended;
//   - one quiet wave, if no agent has ever sent a ghost to another one when it answers. Suppose that some agent became busy after its
//     answer, and take the first one: by a ghost that was sent by another agent, before that one's answer, which would have counted
//     it, or after, and then that one had become busy after its answer, and earlier. In a cycle in which agents do not talk
//     nobody has.
#pragma once

#include "remote/agent_session.h"

#include <cstring>
#include <vector>

namespace fm::detail {

class waves {
 public:
  explicit waves(std::size_t agents) : counts_(agents) {}

  /// A new wave. `owner_has`: the owner has something to trace or to send.
  void begin(bool owner_has) noexcept {
    quiet_ = !owner_has;
    same_ = true;
    none_sent_ = true;
  }
  /// An answer. `given`: the agent was sent slots, or has brought some. `counts`: null of one that does not talk; whether they are
  /// others than the last time.
  bool answered(std::size_t agent, bool idle, bool given, const protocol::trace_counts* counts) noexcept {
    quiet_ = quiet_ && idle && !given;
    if (!counts) return false;
    const bool changed = std::memcmp(&counts_[agent], counts, sizeof *counts) != 0;
    same_ = same_ && !changed;
    none_sent_ = none_sent_ && counts->ghosts_sent == 0;
    counts_[agent] = *counts;
    return changed;
  }
  /// The wave has ended. True: marking is over.
  bool end() noexcept {
    at_it_ = quiet_ && was_quiet_ && !same_;
    const bool over = quiet_ && (none_sent_ || (was_quiet_ && same_));
    was_quiet_ = quiet_;
    return over;
  }

  // ---- of the wave that has ended ----
  [[nodiscard]] bool quiet() const noexcept { return quiet_; }
  /// It was quiet, as the one before, but agents have sent ghosts to each other in between: they may do so for long.
  [[nodiscard]] bool agents_are_at_it() const noexcept { return at_it_; }

 private:
  std::vector<protocol::trace_counts> counts_;  ///< of the last answers
  bool quiet_ = false, was_quiet_ = false;
  bool same_ = false, none_sent_ = false;
  bool at_it_ = false;
};

}  // namespace fm::detail
