// How long a wait goes on: until nothing has moved for its deadline, or until waits_at_most times its deadline.
//
// Invariant: the number that a caller gives as `moved` changes only when something happened that brings the end of its
// wait nearer. So a wait ends by its deadline beside a peer that has stopped, and not beside one that is slow. The bound
// in any case serves callers whose peers move for ever and never for them.
//
// Any layer may wait with it. The header that owns a wait says what counts as movement there.
#pragma once

#include "base/limits.h"
#include <algorithm>
#include <cstdint>
#include <farmem/base/units.h>

namespace fm::detail {

class patience {
 public:
  patience() = default;
  patience(duration within, time_point now, std::uint64_t moved) noexcept
      : within_(within), since_(now), last_(now + limits::waits_at_most * within), moved_(moved) {}

  /// Whether the wait has failed by `now`.
  [[nodiscard]] bool over(time_point now, std::uint64_t moved) noexcept {
    if (moved != moved_) {
      moved_ = moved;
      since_ = now;
    }
    return now >= until();
  }
  /// Something that the wait is for is still to come: it may last as long as if it had moved now. False at the end of
  /// waits_at_most deadlines.
  [[nodiscard]] bool goes_on(time_point now) noexcept {
    since_ = now;
    return now < last_;
  }
  /// When it fails if nothing moves.
  [[nodiscard]] time_point until() const noexcept { return std::min(since_ + within_, last_); }
  /// When to ask over() again at the latest: what moves in between is dated by that look.
  [[nodiscard]] time_point look_again(time_point now) const noexcept { return std::min(until(), now + within_ / 8); }

 private:
  duration within_{};
  time_point since_{};  ///< the last look that found a movement
  time_point last_{};
  std::uint64_t moved_ = 0;
};

}  // namespace fm::detail
