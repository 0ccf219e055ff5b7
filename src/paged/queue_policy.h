// The rules by which a block of pages moves through dcm's three queues (section 3.2). The caller keeps the queues.
//
//   filled -> active, or with probability epsilon proactive -> active -> inactive -> evicted
//                                  ^------- touched again ------'
//
// Proactive is held to its share of the memory, by moving its oldest to active's young end. Inactive is kept so long
// that a block that is touched again has the time to show it.
//
// Invariant: the policy has no state but its options; the random state is the caller's.
#pragma once

#include "base/random.h"
#include <algorithm>
#include <cstdint>

namespace fm::detail {

struct queue_policy {
  double promote_probability = 0.1;  ///< dcm's epsilon
  double proactive_share = 0.5;      ///< of the memory that proactive may have
  double inactive_share = 0.2;       ///< of the memory that is kept in inactive

  /// Whether a block that was just filled goes to proactive at once, so that of a scan that is longer than the memory a
  /// part is still there when it comes round again. `random` is 64 random bits.
  [[nodiscard]] bool promotes(std::uint64_t random) const noexcept { return happens(promote_probability, random); }
  /// Whether proactive, of `proactive` blocks out of `capacity`, must give up its oldest.
  [[nodiscard]] bool proactive_is_over(std::uint64_t proactive, std::uint64_t capacity) const noexcept {
    return static_cast<double>(proactive) > proactive_share * static_cast<double>(capacity);
  }
  /// How many blocks of `capacity` inactive wants to hold.
  [[nodiscard]] std::uint64_t inactive_target(std::uint64_t capacity, std::uint64_t at_least) const noexcept {
    return std::max(at_least, static_cast<std::uint64_t>(static_cast<double>(capacity) * inactive_share));
  }
};

}  // namespace fm::detail
