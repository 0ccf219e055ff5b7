// The last phase of a collection: the agents evacuate sparse regions (store/protocol.h, "Evacuating"), beside the program
// and without it. The owner only asks, and asks again how far it is, for the report.
//
// Nothing depends on it: an agent that does not answer, or is still at it when another cycle is wanted, is left to itself. What
// it moves, it moves safely at any time, and the next cycle's request takes its place.
#pragma once

#include "collector/collector.h"

namespace fm::detail {

/// How often agents that work are asked again: at once, then more seldom.
constexpr auto look_again_first = std::chrono::microseconds(200);
constexpr auto look_again_most = std::chrono::milliseconds(5);

class evacuation {
 public:
  evacuation(collector& owner, cycle_report& report, evacuate what)
      : owner_(owner), cache_(owner.cache_), report_(report), what_(what) {}
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
