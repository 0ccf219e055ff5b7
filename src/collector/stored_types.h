// Which types each agent stores, as far as that is known before it is lost: an agent that is lost cannot be asked, and the
// owner's word of a slot has no type. After each full cycle the agents count some of their slots by type.
//
// What is counted is bounded: all slots of an agent with few tablets, otherwise samples at even distances, which begin
// elsewhere each time. Objects are allocated in runs of slots by thread, so many short samples say more than few long
// ones. A heap with a single agent is not counted, because there is nobody to have its tablets.
//
// Invariant owned here: the counts of an agent are of one round, the last in which it answered to the end.
//
// The collector's thread alone uses it, between two collections.
#pragma once

#include "base/limits.h"
#include <cstdint>
#include <farmem/heap/options.h>
#include <functional>
#include <map>
#include <vector>

namespace fm::detail {

class object_cache;

class stored_types {
 public:
  /// `samples`: of limits::census_sample_slots each, that are counted of one agent.
  explicit stored_types(object_cache& cache, std::size_t samples = limits::census_samples_max) noexcept
      : cache_(cache), samples_max_(samples) {}
  /// Asks all agents that are not lost, unless there is only one, or the last round is not long ago. `stop` is asked
  /// between two messages, and ends the round.
  void count(const std::function<bool()>& stop) noexcept;
  /// `lost` objects of the agent, by the proportions of what it stored, most objects first; empty when nothing is known.
  [[nodiscard]] std::vector<lost_type> estimate(std::uint32_t agent, std::uint64_t lost) const;

 private:
  using counts = std::map<std::uint32_t, std::uint64_t>;  ///< objects by type
  bool count_agent(std::uint32_t agent, counts& out, const std::function<bool()>& stop);

  object_cache& cache_;
  const std::size_t samples_max_;
  std::size_t round_ = 0;
  time_point next_{};
  std::vector<counts> by_agent_;
};

}  // namespace fm::detail
