// What `co_await p.fetch()` is: an await that ends when the object is here, with a pin on it.
//
// Inside of a run loop (handles/run.h) the fetch is posted at once, the coroutine is suspended, and the loop resumes it on
// the same thread. Anywhere else there is nobody to resume it: then the await fetches as p.read() does, in place, so that
// the same coroutine also runs under an executor that knows nothing of farmem.
//
// Invariants owned here
//   - A suspended await holds a root to its object and nothing else: no record of a fetch, no frame, no section. So its
//     coroutine may be destroyed at any time, and the fetch ends by itself (cache/fetch.h).
//   - A thread suspends only outside of every section.
#pragma once

#include <boost/intrusive/list.hpp>
#include <coroutine>
#include <exception>
#include <farmem/detail/awaited.h>
#include <farmem/ptr.h>

namespace fm {
namespace detail {

/// Throws errc::scope_misuse, naming the open scope, when this thread is inside of one.
void refuse_inside_scope(const char* what);

/// The part of an await that does not depend on the type. Neither movable nor thread-safe.
class fetch_wait : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  explicit fetch_wait(slot_t slot);
  fetch_wait(const fetch_wait&) = delete;
  fetch_wait& operator=(const fetch_wait&) = delete;
  /// Before it is resumed, this is its cancellation.
  ~fetch_wait();

  /// True when the object is here, or cannot be had, or there is no run loop and it was fetched in place.
  bool await_ready();
  void await_suspend(std::coroutine_handle<> resume_when_here);

  // ---- for the run loop ----
  /// One look; true when the await is over, one way or the other. Never throws.
  bool look() noexcept;
  void resume() { coroutine_.resume(); }
  [[nodiscard]] const awaited& state() const noexcept { return state_; }
  /// Whether the object's heap is still open, as far as it was known.
  [[nodiscard]] bool heap_open() const noexcept { return state_.cache && roots::get(root_) != 0; }

 protected:
  /// The pinned payload, for a read_pin to adopt. Throws what ended the await.
  char* take();

 private:
  void look_once();

  awaited state_;
  root_cell* root_ = nullptr;
  char* payload_ = nullptr;
  std::exception_ptr error_;
  std::coroutine_handle<> coroutine_;
};

}  // namespace detail

/// An object to be awaited; made by fm::ptr::fetch and fm::ref::fetch. Nothing happens before the co_await. A root, movable.
template <class T>
class [[nodiscard]] fetch_operation {
 public:
  explicit fetch_operation(ptr<T> p) noexcept : root_(std::move(p)) {}

  auto operator co_await() const {
    struct awaiter : detail::fetch_wait {
      using fetch_wait::fetch_wait;
      read_pin<T> await_resume() { return read_pin<T>::adopt(take()); }
    };
    return awaiter(root_.slot());
  }

 private:
  ptr<T> root_;
};

template <class T>
fetch_operation<T> ptr<T>::fetch() const {
  return fetch_operation<T>(*this);
}
template <class T>
fetch_operation<T> ref<T>::fetch() const {
  return fetch_operation<T>(root());
}

}  // namespace fm
