// How a request becomes done. Owns the invariant that it happens once, that the callback is the last access, and that
// callbacks which post again do not recurse: a completion that happens while the same thread is inside a callback of
// the same session is queued, and the outermost frame delivers it. Called by transports only.
#pragma once

#include "fabric/wire/request.h"

namespace fm::fabric {

/// The completions of one thread for one session; nests when a callback of one session posts on another.
class completion_frame {
 public:
  static void complete(const void* owner, request& r, errc status) noexcept {
    FM_ASSERT(r.state.load(std::memory_order_relaxed) == request::posted, "a request completes once, while posted");
    r.status = status;
    for (completion_frame* f = innermost_; f; f = f->outer_) {
      if (f->owner_ != owner) continue;
      f->waiting_.push_back(r);
      return;
    }
    completion_frame frame(owner);
    finish(r);
    while (!frame.waiting_.empty()) {
      request& next = frame.waiting_.front();
      frame.waiting_.pop_front();
      finish(next);
    }
  }

  /// True inside a callback of a request of `owner`, on this thread.
  static bool inside(const void* owner) noexcept {
    for (const completion_frame* f = innermost_; f; f = f->outer_)
      if (f->owner_ == owner) return true;
    return false;
  }

 private:
  explicit completion_frame(const void* owner) noexcept : owner_(owner), outer_(innermost_) { innermost_ = this; }
  ~completion_frame() { innermost_ = outer_; }

  static void finish(request& r) noexcept {
    const auto callback = r.on_done;  // without a callback, whoever sees the state may free the request at once
    r.state.store(request::done_state, std::memory_order_release);
    if (callback) callback(r);
  }

  static inline thread_local completion_frame* innermost_ = nullptr;

  const void* owner_;
  completion_frame* outer_;
  request_list waiting_;
};

}  // namespace fm::fabric
