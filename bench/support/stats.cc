// Order statistics; see stats.h.
#include "stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fm::bench {
namespace {

double interpolated(const std::vector<double>& sorted, double q) {
  const double at = q * double(sorted.size() - 1);
  const auto below = std::size_t(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - double(below));
}

double nearest_rank(const std::vector<std::uint32_t>& sorted, double q) {
  const auto rank = std::size_t(std::ceil(q * double(sorted.size())));
  return sorted[rank == 0 ? 0 : rank - 1];
}

}  // namespace

summary summarize(std::vector<double> values) {
  summary s;
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  s.count = values.size();
  s.min = values.front();
  s.max = values.back();
  s.p25 = interpolated(values, 0.25);
  s.median = interpolated(values, 0.5);
  s.p75 = interpolated(values, 0.75);
  s.mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  return s;
}

latency_summary summarize_latency(std::vector<std::uint32_t>& ns) {
  latency_summary s;
  if (ns.empty()) return s;
  std::sort(ns.begin(), ns.end());
  s.count = ns.size();
  s.mean = std::accumulate(ns.begin(), ns.end(), 0.0) / double(ns.size());
  s.p50 = nearest_rank(ns, 0.5);
  s.p90 = nearest_rank(ns, 0.9);
  s.p99 = nearest_rank(ns, 0.99);
  s.p999 = nearest_rank(ns, 0.999);
  s.max = ns.back();
  return s;
}

}  // namespace fm::bench
