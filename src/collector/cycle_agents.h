// The agents that take part in a full cycle: those that were not lost when it began. Begins and ends the cycle on them,
// and introduces those to each other that talk (protocol/heap_messages.h).
//
// Invariant owned here: an agent that takes remote references from other agents says with every answer how many it has
// sent and received, or the end of marking would not be known. So an agent that was named to others, and then declines
// to know of them, is named to nobody any more.
//
// Used by full_cycle and by its marking, its sweep and its verifier, on the collector's thread.
#pragma once

#include "collector/snapshot.h"
#include "remote/agent_session.h"
#include <vector>

namespace fm::detail {

class cycle_agents {
 public:
  struct agent {
    remote::agent_session* link = nullptr;
    std::uint32_t number = 0;  ///< of the heap's agents
    std::size_t at = 0;        ///< in this cycle, and in the report's parts
    bool talks = false;        ///< to other agents; both hear of each other
    bool counts = false;       ///< it has heard of others, so its answers say how many references it sent and received
    protocol::begin_cycle_answer ticket{};
  };

  /// Adds a part for each of them to the report.
  cycle_agents(collector& owner, cycle_report& report, const snapshot& of);
  cycle_agents(const cycle_agents&) = delete;
  cycle_agents& operator=(const cycle_agents&) = delete;

  /// After the snapshot, and before anybody traces. `may_talk`: to each other.
  void begin_cycle(const slot_marks& marks, bool may_talk);
  /// Ends the cycle on all of them, if it has begun on all, and completes the report's parts.
  void end_cycle(bool completed) noexcept;

  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  auto begin() noexcept { return all_.begin(); }
  auto end() noexcept { return all_.end(); }
  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }
  agent& operator[](std::size_t i) noexcept { return all_[i]; }
  /// Who stores the objects of a tablet of the heap; null: it was lost before the cycle began.
  [[nodiscard]] agent* of_tablet(std::uint32_t tablet) const noexcept;
  /// Throws agent_lost if an agent was lost whose objects a backup has: nobody would trace them before it has taken over.
  void check_all_are_traced(const slot_marks& marks) const;
  /// Marks all objects of lost agents: nothing is known of them, so they live.
  void mark_lost(slot_marks& marks) const;
  [[nodiscard]] cycle_part& part(const agent& a) noexcept { return report_.agents[a.at]; }
  /// Throws the agent's error, or that the heap is being closed.
  void check(errc e, const agent& a, const char* what) const;
  /// Of one message that is sent now.
  [[nodiscard]] time_point call_deadline() const;

 private:
  void introduce(const slot_marks& marks);
  [[nodiscard]] std::vector<remote::trace_peer> trace_peers(const slot_marks& marks) const;

  collector& owner_;
  cycle_report& report_;
  const snapshot& snapshot_;
  std::vector<agent> all_;
  std::vector<agent*> by_number_;  ///< null: lost before the cycle began
  bool begun_ = false;
};

}  // namespace fm::detail
