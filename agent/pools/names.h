// The directory of a pool: names that its clients have given to objects, so that a process finds a first one without
// being told a pointer. It lives as long as the pool.
//
// Invariants owned here
//   - A name is 1 to pool_name_bytes_max bytes without a zero byte, and there are at most limits::pool_names_max of them.
//   - A name names one pointer. It keeps no object alive, and the object may be on another agent: pointers are only kept.
// With the pool's structure: exclusively for changes, shared for look-ups. pool_session calls it.
#pragma once

#include "agent/base/protocol.h"

#include <map>
#include <string>
#include <string_view>

#include "agent/base/limits.h"

namespace fm::agent {

class pool_names {
 public:
  struct pointer {
    std::uint64_t who = 0, what = 0;
    /// The hint is where the object was last seen, and no part of its name.
    [[nodiscard]] bool names_same(const pointer& o) const noexcept {
      return who == o.who && (what ^ o.what) << 16 == 0;
    }
  };

  static bool is_sound(std::string_view name) noexcept {
    return !name.empty() && name.size() <= pool_name_bytes_max && name.find('\0') == std::string_view::npos;
  }
  /// Errors: conflict if the name is bound to another object and `replace` is false; agent_full. O(log names), as all.
  errc bind(std::string_view name, const pointer& to, bool replace) {
    const auto at = by_name_.find(name);
    if (at == by_name_.end()) {
      if (by_name_.size() >= limits::pool_names_max) return errc::agent_full;
      by_name_.emplace(name, to);
      return errc::ok;
    }
    if (!replace && !at->second.names_same(to)) return errc::conflict;
    at->second = to;
    return errc::ok;
  }
  /// Errors: not_found.
  errc unbind(std::string_view name) {
    const auto at = by_name_.find(name);
    if (at == by_name_.end()) return errc::not_found;
    by_name_.erase(at);
    return errc::ok;
  }
  /// Null: there is no such name.
  [[nodiscard]] const pointer* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &at->second;
  }
  /// Calls `f(name, pointer)` for each. O(names).
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [name, at] : by_name_) f(name, at);
  }

 private:
  std::map<std::string, pointer, std::less<>> by_name_;
};

}  // namespace fm::agent
