// In which order the tablets of a lost agent get their new primaries: those that threads wait for come first.
//
// A tablet is swept before it names another agent (address_sweep.h). That takes up to some milliseconds, and an agent has
// hundreds of tablets. So whoever waits for one waits for that one, and not for all.
//
// By the collector's thread alone.
#pragma once

#include "cache/tablets/tablet_home.h"
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace fm::detail {

class promotion_queue {
 public:
  explicit promotion_queue(std::span<const tablet_move> moves) {
    for (const tablet_move& m : moves)
      for (std::uint32_t t = m.first; t < m.first + m.count; ++t) to_sweep_.emplace(t, m.to);
  }
  /// The tablet to sweep now: the awaited one, if it is still to be swept. Nothing when all are swept. O(log tablets).
  [[nodiscard]] std::optional<std::uint32_t> next(std::optional<std::uint32_t> awaited) const {
    if (to_sweep_.empty()) return {};
    return awaited && to_sweep_.contains(*awaited) ? *awaited : to_sweep_.begin()->first;
  }
  void note_swept(std::uint32_t tablet) {
    const auto it = to_sweep_.find(tablet);
    swept_.push_back({.first = tablet, .count = 1, .to = it->second, .granted = true});
    to_sweep_.erase(it);
  }
  /// Swept, and not taken yet. O(swept).
  [[nodiscard]] bool is_swept(std::uint32_t tablet) const {
    return std::any_of(swept_.begin(), swept_.end(), [&](const tablet_move& m) { return m.first == tablet; });
  }
  /// What may name its new primary now.
  [[nodiscard]] std::vector<tablet_move> take_swept() { return std::exchange(swept_, {}); }

 private:
  std::map<std::uint32_t, std::uint32_t> to_sweep_;  ///< tablet to new primary
  std::vector<tablet_move> swept_;
};

}  // namespace fm::detail
