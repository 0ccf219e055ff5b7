// fm::histogram_snapshot: a histogram of durations with bounded relative error, a copy of a detail::histogram at one
// moment. Many threads write detail::histogram without locks.
// Invariant: every sample is counted, and a bucket is at most 1/16 wide relative to its values. The library records
// misses, stalls, pauses and faults; application code reads the copies.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace fm {

/// A copy of a histogram of durations in ns. A bucket is at most 1/16 wide, relative to its values.
struct histogram_snapshot {
  std::uint64_t count = 0;                       ///< samples
  std::uint64_t sum_ns = 0;                      ///< sum of all samples, ns
  std::uint64_t max_ns = 0;                      ///< largest sample, ns
  std::array<std::uint64_t, 16 * 48> buckets{};  ///< samples by duration, see detail::histogram::upper_edge

  /// Upper edge, in ns, of the bucket that holds quantile `q` in [0, 1]; 0 without samples. O(buckets).
  [[nodiscard]] std::uint64_t quantile_ns(double q) const noexcept;
  /// Mean of the samples, ns; 0 without samples. O(1).
  [[nodiscard]] double mean_ns() const noexcept { return count ? double(sum_ns) / double(count) : 0.0; }
};

namespace detail {

class histogram {
 public:
  /// Counts one sample. Thread-safe, wait-free.
  void add(std::uint64_t ns) noexcept {
    buckets_[index(ns)].fetch_add(1, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(ns, std::memory_order_relaxed);
    std::uint64_t seen = max_.load(std::memory_order_relaxed);
    while (ns > seen && !max_.compare_exchange_weak(seen, ns, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] histogram_snapshot snapshot() const noexcept;

  /// Bucket of a value: the top five bits of it, so that a bucket is at most 1/16 wide.
  static constexpr std::size_t index(std::uint64_t ns) noexcept {
    if (ns < 16) return ns;
    const int top = 63 - std::countl_zero(ns);
    const std::size_t i = std::size_t(top - 3) * 16 + ((ns >> (top - 4)) & 15);
    return i < 16 * 48 ? i : 16 * 48 - 1;
  }
  /// The largest value that falls into bucket `i`.
  static constexpr std::uint64_t upper_edge(std::size_t i) noexcept {
    if (i < 16) return i;
    const int top = int(i / 16) + 3;
    return ((std::uint64_t{16} + i % 16 + 1) << (top - 4)) - 1;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 16 * 48> buckets_{};
  std::atomic<std::uint64_t> count_{0}, sum_{0}, max_{0};
};

}  // namespace detail
}  // namespace fm
