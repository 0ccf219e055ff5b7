// The rules by which a unit of local memory moves through dcm's three queues (section 3.2), whatever the unit is: a
// segment of objects (arena.h) or a block of pages (fm::paged). The caller keeps the queues.
//
//   filled -> active, or with probability epsilon proactive -> active -> inactive -> evicted
//                                  ^------- touched again ------'
//
// Proactive is held to its share of the memory, by moving its oldest to active's young end. Inactive is kept so long
// that a unit that is touched again has the time to show it.
//
// Invariant: the policy has no state but its options; the random state is the caller's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fm::detail {

struct queue_policy {
  double promote_probability = 0.1;  ///< dcm's epsilon
  double proactive_share = 0.5;      ///< of the memory that proactive may have
  double inactive_share = 0.2;       ///< of the memory that is kept in inactive

  /// Whether a unit that was just filled goes to proactive at once, so that of a scan that is longer than the memory a
  /// part is still there when it comes round again. `random` is 64 random bits.
  [[nodiscard]] bool promotes(std::uint64_t random) const noexcept {
    return static_cast<double>(random >> 11) * 0x1p-53 < promote_probability;
  }
  /// Whether proactive, of `proactive` units out of `capacity`, must give up its oldest.
  [[nodiscard]] bool proactive_is_over(std::uint64_t proactive, std::uint64_t capacity) const noexcept {
    return static_cast<double>(proactive) > proactive_share * static_cast<double>(capacity);
  }
  /// How many units of `capacity` inactive wants to hold.
  [[nodiscard]] std::uint64_t inactive_target(std::uint64_t capacity, std::uint64_t at_least) const noexcept {
    return std::max(at_least, static_cast<std::uint64_t>(static_cast<double>(capacity) * inactive_share));
  }
};

/// xorshift: enough for choosing units, and no state but a word.
[[nodiscard]] inline std::uint64_t next_random(std::uint64_t& state) noexcept {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

}  // namespace fm::detail
