// Pauses of a process as a record in time, and the share of time that they leave to its threads: bounded mutator
// utilisation (Sachindran, Moss and Berger, "MC2: High-performance garbage collection for memory-constrained
// environments", section 4.2).
// Invariant: records are in order of time and do not overlap, because one pause runs at a time. Epochs write the log;
// fm::heap_stats reads it.
#pragma once

#include <cstdint>
#include <farmem/base/units.h>
#include <mutex>
#include <span>
#include <vector>

namespace fm {

/// One pause of the process: from the closing of the gate, at which threads wait, to its opening.
struct pause_record {
  time_point begin;        ///< when the gate closed
  std::uint64_t ns = 0;    ///< how long it was closed, ns
  bool abandoned = false;  ///< not all threads stopped in time; those that came to the gate waited all the same
};

/// Bounded mutator utilisation: the least share of time, in [0, 1], that `pauses` leave in any stretch of at least
/// `window` between `from` and `to`. The pauses must be in order and must not overlap. If the whole time is shorter
/// than `window`, the result is the share of the whole time. O(n * pauses in two windows). Sachindran, Moss and Berger,
/// section 4.2.
double bounded_utilisation(std::span<const pause_record> pauses, time_point from, time_point to, duration window);

namespace detail {

/// The last pauses. Thread-safe.
class pause_log {
 public:
  static constexpr std::size_t kept = 4096;

  void add(const pause_record& p) noexcept;
  /// Those that began at `since` or later, the oldest first. `complete` becomes whether there were no others.
  [[nodiscard]] std::vector<pause_record> since(time_point since, bool& complete) const;

 private:
  mutable std::mutex mutex_;
  pause_record ring_[kept];
  std::uint64_t count_ = 0;
};

}  // namespace detail
}  // namespace fm
