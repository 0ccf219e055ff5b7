// Regions that an agent wants back. The owner agrees to a retirement when no read of the region can be in flight any
// more.
//
// Invariants owned here
//   - The agent session has made the region unreadable before the stamp of its retirement is taken, so what reads it
//     began earlier.
//   - A retirement is acknowledged when every section that may read has passed its stamp, and no fetch without a section
//     (fetch::posted_at) is in flight that was posted before.
//
// The agent sessions add retirements, and the evictor's rounds acknowledge them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fm::detail {

class object_cache;

class region_retirements {
 public:
  explicit region_retirements(object_cache& cache) noexcept : cache_(cache) {}
  /// An agent wants the region back. False: there is no memory to note it. Any thread.
  bool add(std::uint32_t agent, std::uint32_t region, std::uint32_t generation) noexcept;
  /// Acknowledges what has become safe. Any thread.
  void acknowledge() noexcept;

 private:
  struct retirement {
    std::uint32_t agent, region, generation;
    std::uint64_t stamp;
  };
  object_cache& cache_;
  std::mutex mutex_;
  std::vector<retirement> waiting_;  ///< in the order of their stamps
  std::atomic<std::uint32_t> pending_{0};
};

}  // namespace fm::detail
