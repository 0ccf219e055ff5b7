// Order statistics of benchmark samples. Every figure is over all samples: nothing is dropped, trimmed or winsorised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm::bench {

/// Spread of one figure over the rounds of a comparison.
struct summary {
  std::size_t count = 0;
  double min = 0, p25 = 0, median = 0, p75 = 0, max = 0, mean = 0;
};

/// Quantiles interpolate between neighbours. An empty input gives zeros. O(n log n).
summary summarize(std::vector<double> values);

/// Distribution of single operations, pooled over all rounds. Nanoseconds.
struct latency_summary {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};

/// Quantile q is the smallest sample that is not exceeded by a share q of all of them. Reorders `ns`. O(n log n).
latency_summary summarize_latency(std::vector<std::uint32_t>& ns);

}  // namespace fm::bench
