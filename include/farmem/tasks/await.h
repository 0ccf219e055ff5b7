// fm::fetch_operation, the awaitable of `co_await p.fetch()`: an await that ends when the object is resident, with a
// pin.
//
// Inside of a run loop (run.h) the coroutine is suspended, and the loop resumes it on the same thread. Its fetch is posted
// at once, or together with those of the coroutines that run next, some microseconds later. Without a run loop, nothing could resume it: the await fetches in place, as p.read() does. So the same
// coroutine also runs under an executor that does not know farmem.
//
// Invariants owned here
//   - A suspended await holds a root to its object and nothing else: no record of a fetch, no frame, no section. So its
//     coroutine may be destroyed at any time, and the fetch ends by itself.
//   - A thread suspends only outside of every section.
#pragma once

#include <boost/intrusive/list.hpp>
#include <coroutine>
#include <exception>
#include <farmem/detail/awaited.h>
#include <farmem/handles/ptr.h>

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
  /// What a fetch may be posted for between two looks; null if its heap has been closed.
  [[nodiscard]] awaited* unposted() noexcept { return root_ && roots::get(root_) != 0 ? &state_ : nullptr; }
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

/// An object to be awaited; fm::ptr::fetch and fm::ref::fetch make it. The fetch starts with the co_await. Movable; it
/// holds a root.
template <class T>
class [[nodiscard]] fetch_operation {
 public:
  /// For fm::ptr::fetch. O(1), posts nothing.
  explicit fetch_operation(ptr<T> p) noexcept : root_(std::move(p)) {}

  /// Awaits the object and gives a read_pin<T>. See fm::ptr::fetch.
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
fetch_operation<std::remove_const_t<T>> ptr<T>::fetch() const {
  return fetch_operation<std::remove_const_t<T>>(ptr<std::remove_const_t<T>>::from_slot(slot()));
}
template <class T>
fetch_operation<T> ref<T>::fetch() const {
  return fetch_operation<T>(root());
}

}  // namespace fm
