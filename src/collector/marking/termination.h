// When marking by agents is over. The owner sends rounds of messages, termination rounds. Every agent answers whether
// it is idle, and, if it talks to other agents, how many remote references it has sent to them and received from them
// in this cycle. Used by agent_marking; test/model/termination.pml is a model of it.
//
// Over means: no agent has anything to mark or to trace, nothing is on its way between agents, and the owner has
// nothing for anybody.
//
// An idle agent (protocol/heap_messages.h) has nothing to do and nothing for the owner, and all remote references that
// it has ever sent were acknowledged. Their receiver acknowledges them when it has marked and queued them. So if at one
// moment all agents are idle and the owner has nothing, it is over:
//   - If an agent does not know yet that its message was received, it is not idle. If it has given a message up, the
//     owner was given all that the message holds.
//   - It stays over, since an idle agent becomes busy only by what it receives. If a message that was given up comes
//     late, all that it holds is marked already.
//   - Two kinds of late slots make their receiver busy once more: those that are dirty at the owner, which alone marks
//     them, and those that no longer matter. Both are to no effect: all that they refer to is marked, and a slot that
//     the owner has marked is never released.
//
// That there was such a moment is known after one of these:
//   - Two quiet rounds in a row with the same counts, the second begun when the first had ended. A round is quiet if
//     all were idle, and the owner had nothing, sent nothing and was given nothing. Between its two answers an agent
//     received nothing: it counts a message when it has queued it, is busy until then, and was idle with the same
//     count. Nor did the owner send it anything. So it was idle all the time in between, and all of these times contain
//     the moment at which the first round ended.
//   - One quiet round, if no agent has ever sent a remote reference to another one when it answers. Suppose that some
//     agent became busy after its answer, and take the first one. It became so by a reference that another agent sent.
//     If that one sent it before its answer, the answer would have counted it. If it sent it afterwards, it had become
//     busy after its answer, and earlier. In a cycle in which agents do not talk, nobody has sent any.
#pragma once

#include "remote/agent_session.h"

#include <cstring>
#include <vector>

namespace fm::detail {

class termination_rounds {
 public:
  explicit termination_rounds(std::size_t agents) : counts_(agents) {}

  /// A new round. `owner_has`: the owner has something to trace or to send.
  void begin(bool owner_has) noexcept {
    quiet_ = !owner_has;
    same_ = true;
    none_sent_ = true;
  }
  /// An answer. `given`: the agent was sent slots, or has brought some. `counts`: null of one that does not talk;
  /// whether they are others than the last time.
  bool answered(std::size_t agent, bool idle, bool given, const protocol::trace_counts* counts) noexcept {
    quiet_ = quiet_ && idle && !given;
    if (!counts) return false;
    const bool changed = std::memcmp(&counts_[agent], counts, sizeof *counts) != 0;
    same_ = same_ && !changed;
    none_sent_ = none_sent_ && counts->references_sent == 0;
    counts_[agent] = *counts;
    return changed;
  }
  /// The round has ended. True: marking is over.
  bool end() noexcept {
    exchanging_ = quiet_ && was_quiet_ && !same_;
    const bool over = quiet_ && (none_sent_ || (was_quiet_ && same_));
    was_quiet_ = quiet_;
    return over;
  }

  // ---- of the round that has ended ----
  [[nodiscard]] bool quiet() const noexcept { return quiet_; }
  /// It was quiet, as the one before, but agents have sent remote references to each other in between: they may do so
  /// for long.
  [[nodiscard]] bool agents_exchange() const noexcept { return exchanging_; }

 private:
  std::vector<protocol::trace_counts> counts_;  ///< of the last answers
  bool quiet_ = false, was_quiet_ = false;
  bool same_ = false, none_sent_ = false;
  bool exchanging_ = false;
};

}  // namespace fm::detail
