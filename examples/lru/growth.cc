// The verdict; see growth.h.
#include "growth.h"

#include <fmt/format.h>

#include <algorithm>

#include "../support/machine.h"

namespace fm::example {

namespace {

constexpr double warm_at = 1.5, enough_at = 3;  // times the agents' memory
constexpr double tolerance = 1.05;
constexpr std::uint64_t tolerance_bytes = 8_MiB;  // what a region, a segment and the allocator make of chance
constexpr std::size_t samples_min = 8;

struct peak {
  std::uint64_t first = 0, second = 0;
  [[nodiscard]] bool grew() const { return double(second) > double(first) * tolerance + double(tolerance_bytes); }
};

}  // namespace

void growth_check::add(const memory_sample& s) {
  const auto join = [](memory_sample& to, const memory_sample& later) {
    to = {later.made_bytes, std::max(to.local_bytes, later.local_bytes), std::max(to.agents_bytes, later.agents_bytes)};
  };
  if (in_last_ != 0 && in_last_ < joined_) {
    join(samples_.back(), s);
    ++in_last_;
    return;
  }
  if (samples_.size() == samples_max) {
    for (std::size_t i = 0; i < samples_max / 2; ++i) {
      samples_[i] = samples_[2 * i];
      join(samples_[i], samples_[2 * i + 1]);
    }
    samples_.resize(samples_max / 2);
    joined_ *= 2;
  }
  samples_.push_back(s);
  in_last_ = 1;
}

growth_check::verdict growth_check::judge() const {
  const auto capacity = double(capacity_bytes_);
  const auto warm = std::find_if(samples_.begin(), samples_.end(),
                                 [&](const memory_sample& s) { return double(s.made_bytes) >= capacity * warm_at; });
  const double made = samples_.empty() ? 0 : double(samples_.back().made_bytes);
  const auto left = std::size_t(samples_.end() - warm);
  if (made < capacity * enough_at || left < samples_min)
    return {false,
            fmt::format("TOO SHORT to tell whether memory grows: objects of {:.1f} times the agents' memory were "
                        "made, {:.1f} times is needed; give more --seconds or --requests",
                        made / capacity, enough_at)};
  peak local, agents;
  for (auto s = warm; s != samples_.end(); ++s) {
    const bool second = std::size_t(s - warm) >= left / 2;
    auto& l = second ? local.second : local.first;
    auto& a = second ? agents.second : agents.first;
    l = std::max(l, s->local_bytes);
    a = std::max(a, s->agents_bytes);
  }
  const auto line = [](const char* what, const peak& p) {
    return fmt::format("{} at most {} in the first half after the warm-up, {} in the second{}", what, mib(p.first),
                       mib(p.second), p.grew() ? ": GREW" : "");
  };
  return {!local.grew() && !agents.grew(), line("local memory", local) + "; " + line("agents", agents)};
}

}  // namespace fm::example
