// Accesses that found no fetch slot of an agent, in the order in which they came; see paged/parked.cc, which has them wait, and
// home_agent, which has one.
//
// Invariant: the first one is an access that waits, or nobody waits. So a position can be left at any time: the agent has
// fallen silent and another one has the page, the page was moved, or it is here already.
#pragma once

#include <atomic>
#include <mutex>

namespace fm::detail {

class fetch_line {
 public:
  /// Of one access. It stays where it is while it is in a line.
  struct position {
    position *before = nullptr, *after = nullptr;
  };

  void enter(position& p) noexcept {
    const std::lock_guard lock(mutex_);
    p = {.before = last_, .after = nullptr};
    if (last_ != nullptr)
      last_->after = &p;
    else
      first_.store(&p);
    last_ = &p;
  }
  void leave(position& p) noexcept {
    const std::lock_guard lock(mutex_);
    if (p.before != nullptr)
      p.before->after = p.after;
    else
      first_.store(p.after);
    if (p.after != nullptr)
      p.after->before = p.before;
    else
      last_ = p.before;
  }
  /// Its turn has come.
  [[nodiscard]] bool is_first(const position& p) const noexcept { return first_.load() == &p; }
  [[nodiscard]] bool empty() const noexcept { return first_.load() == nullptr; }

 private:
  std::mutex mutex_;                       ///< a leaf
  std::atomic<position*> first_{nullptr};  ///< written under mutex_
  position* last_ = nullptr;               ///< under mutex_
};

}  // namespace fm::detail
