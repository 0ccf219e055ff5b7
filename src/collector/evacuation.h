// The last phase of a full cycle: the agents evacuate sparse regions (protocol/heap_messages.h, "Evacuating"), beside
// the program and without it. The owner only asks, and asks again how far they are, for the report.
//
// Nothing depends on it. If an agent does not answer, or another cycle is wanted, the owner stops asking. An agent
// moves objects safely at any time, and the next cycle's request takes the place of this one's. Run by the collector's
// thread.
#pragma once

#include "collector/collector.h"

namespace fm::detail {

class evacuation {
 public:
  evacuation(collector& owner, cycle_report& report, evacuate what)
      : owner_(owner), cache_(owner.cache()), report_(report), what_(what) {}
  evacuation(const evacuation&) = delete;
  evacuation& operator=(const evacuation&) = delete;
  /// Fills the parts' evacuation in, and evacuate_ns. Throws nothing.
  void run() noexcept;

 private:
  void ask_all(const protocol::evacuate_body& message);
  /// Asks one agent; true when something was moved since the last time. `ended` when it is not worth asking again.
  bool ask(remote::agent_session& link, const protocol::evacuate_body& message, cycle_part& part, bool& ended) noexcept;
  [[nodiscard]] bool is_in_the_way() const noexcept;

  collector& owner_;
  object_cache& cache_;
  cycle_report& report_;
  const evacuate what_;
};

}  // namespace fm::detail
