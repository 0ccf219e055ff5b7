// The log of pauses, and the utilisation that they leave to a program (farmem/base/pauses.h).
//
// Invariant: bounded_utilisation is exact, though it looks at few windows. A utilisation is least in a window that
// begins where a pause begins or ends where one ends: shifting any other window does not raise it in one of the two
// directions. A stretch of two windows or more falls into parts of one to two windows, one of which is no better than
// the whole, so only those are looked at. Epochs add pauses, and statistics read them.
#include "base/base.h"

#include <algorithm>

namespace fm {

namespace {

using ns_t = std::int64_t;

// Pauses on a clock that begins with 0, clipped to [0, end].
class paused_time {
 public:
  paused_time(std::span<const pause_record> pauses, time_point from, ns_t end) : before_(pauses.size() + 1) {
    for (const pause_record& p : pauses) {
      const ns_t begin = std::chrono::nanoseconds(p.begin - from).count();
      begins.push_back(std::clamp<ns_t>(begin, ends.empty() ? 0 : ends.back(), end));
      ends.push_back(std::clamp<ns_t>(begin + static_cast<ns_t>(p.ns), begins.back(), end));
      before_[ends.size()] = before_[ends.size() - 1] + ends.back() - begins.back();
    }
  }
  // Of the stretch from `a` to `b`, what was not paused.
  [[nodiscard]] double share_left(ns_t a, ns_t b) const { return 1.0 - double(until(b) - until(a)) / double(b - a); }
  std::vector<ns_t> begins, ends;

 private:
  [[nodiscard]] ns_t until(ns_t t) const {
    const auto i = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), t) - begins.begin());
    return i == 0 ? 0 : before_[i - 1] + std::min(t, ends[i - 1]) - begins[i - 1];
  }
  std::vector<ns_t> before_;
};

}  // namespace

double bounded_utilisation(std::span<const pause_record> pauses, time_point from, time_point to, duration window) {
  const ns_t end = std::chrono::nanoseconds(to - from).count();
  if (end <= 0) return 1;
  const ns_t w = std::clamp<ns_t>(std::chrono::nanoseconds(window).count(), 1, end);
  const paused_time p(pauses, from, end);
  double least = 1;
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    const ns_t a = std::min(p.begins[i], end - w);
    least = std::min(least, p.share_left(a, a + w));
    for (std::size_t j = i; j < pauses.size() && p.ends[j] < a + 2 * w; ++j)
      if (p.ends[j] > a + w) least = std::min(least, p.share_left(a, p.ends[j]));
    const ns_t b = std::max(p.ends[i], w);
    least = std::min(least, p.share_left(b - w, b));
  }
  return std::max(least, 0.0);
}

namespace detail {

void pause_log::add(const pause_record& p) noexcept {
  const std::lock_guard lock(mutex_);
  ring_[count_++ % kept] = p;
}

std::vector<pause_record> pause_log::since(time_point since, bool& complete) const {
  std::vector<pause_record> out;
  const std::lock_guard lock(mutex_);
  const std::uint64_t first = count_ > kept ? count_ - kept : 0;
  // What was overwritten began before the oldest that is left.
  complete = first == 0 || ring_[first % kept].begin < since;
  out.reserve(count_ - first);
  for (std::uint64_t i = first; i < count_; ++i)
    if (ring_[i % kept].begin >= since) out.push_back(ring_[i % kept]);
  return out;
}

}  // namespace detail
}  // namespace fm
