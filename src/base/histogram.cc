// Reading quantiles out of histograms (farmem/base/histogram.h).
//
// Invariant: a quantile is the upper edge of the bucket that it falls into, and never more than the maximum that was
// seen. Statistics call it, from any thread.
#include "base/base.h"

namespace fm {

std::uint64_t histogram_snapshot::quantile_ns(double q) const noexcept {
  if (count == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(q * double(count - 1));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    seen += buckets[i];
    if (seen > rank) return std::min(detail::histogram::upper_edge(i), max_ns);
  }
  return max_ns;
}

namespace detail {

histogram_snapshot histogram::snapshot() const noexcept {
  histogram_snapshot s;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    s.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    s.count += s.buckets[i];
  }
  s.sum_ns = sum_.load(std::memory_order_relaxed);
  s.max_ns = max_.load(std::memory_order_relaxed);
  return s;
}

}  // namespace detail
}  // namespace fm
