// Marking by the agents: each traces the objects that it stores (Mako, section 5). The owner contributes what only it
// knows: the roots, and which of its frames are dirty.
//
//   tell_dirty   before anybody traces: the agents hear which slots are dirty here, so they do not scan those home
//                copies
//   mark         termination rounds: what is dirty is traced here; other slots go to the agents that store them, and so
//                do remote references, from agent to agent or through here, until nobody has anything left
//                (termination.h)
//
// Invariant owned here: a slot that is dirty here is scanned by the owner, and any other by its agent. A slot whose
// frame has been written back and evicted since the scan becomes its agent's.
//
// Used by full_cycle, on the collector's thread.
#pragma once

#include "collector/cycle_agents.h"
#include "collector/marking/compute_tracer.h"
#include "collector/marking/mark_strategy.h"
#include "collector/marking/termination.h"
#include <vector>

namespace fm::detail {

class agent_marking final : public mark_strategy, private tracing_elsewhere {
 public:
  /// After the scan that notes what is dirty.
  agent_marking(collector& owner, cycle_report& report, snapshot& of, cycle_agents& agents);
  agent_marking(const agent_marking&) = delete;
  agent_marking& operator=(const agent_marking&) = delete;

  /// All of it before anything is traced: an agent must not scan a home copy that is older than the snapshot.
  void tell_dirty();
  void add(slot_t slot) override { local_.add(slot); }
  void mark() override;

 private:
  /// The work of one agent, and its last answer.
  struct progress {
    std::vector<slot_t> pending;   ///< slots that it has to mark, as they go into messages
    std::size_t pending_from = 0;  ///< those before were sent
    std::uint32_t message = 0;     ///< number of its last trace
    bool idle = false;
    protocol::trace_answer said{};
  };

  void run_rounds();
  /// One message to an agent; whether marking has come any further by it.
  bool exchange(cycle_agents::agent& a, termination_rounds& rounds);
  void read_marks();
  cycle_agents::agent* agent_of(slot_t slot) noexcept;

  // tracing_elsewhere
  void refers_to(slot_t slot) override;
  void went_home(slot_t slot) override;

  collector& owner_;
  cycle_report& report_;
  snapshot& snapshot_;
  cycle_agents& agents_;
  slot_marks& marks_;
  std::vector<progress> progress_;  ///< by the agent's place in the cycle
  compute_tracer local_;            ///< of what is dirty here
};

}  // namespace fm::detail
