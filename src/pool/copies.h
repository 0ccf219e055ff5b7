// Which parts of a pool with replicas have their copies, as their primaries say.
//
// Invariant owned here: the program is told that all parts have their copies again only if one of them has had none since
// it was told last, or since the pool was opened, and no part is unknown.
// Sessions of the parts say what they hear, under their locks; pool::impl owns the one object. Thread-safe.
#pragma once

#include "events/agent_events.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fm::pool_detail {

enum class part_state : std::uint8_t { unknown, alone, copied };

class copies {
 public:
  copies(detail::agent_events& events, std::size_t parts) : events_(events), parts_(parts, part_state::unknown) {}

  /// Of the part with that slot, from 1.
  void note(std::uint32_t slot, part_state now) noexcept {
    {
      const std::lock_guard lock(mutex_);
      parts_[slot - 1] = now;
      if (!is_open_) return;
      lacked_ = lacked_ || now == part_state::alone;
      if (!lacked_ || !has_all()) return;
      lacked_ = false;
    }
    events_.post({.change = agent_change::replicated, .agent = {}});
  }
  /// The pool is open: what changes from now on is news.
  void opened() noexcept {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    lacked_ = std::any_of(parts_.begin(), parts_.end(), [](part_state s) { return s == part_state::alone; });
  }

 private:
  [[nodiscard]] bool has_all() const noexcept {
    return std::all_of(parts_.begin(), parts_.end(), [](part_state s) { return s == part_state::copied; });
  }

  detail::agent_events& events_;
  std::mutex mutex_;
  std::vector<part_state> parts_;
  bool is_open_ = false, lacked_ = false;
};

}  // namespace fm::pool_detail
