// fm::task: a coroutine that awaits fetches of objects. It starts when it is awaited or run (run.h), has one awaiter,
// and gives its result or its exception to that one.
//
// A task and everything that it awaits belong to one thread. It awaits p.fetch(), other tasks, and operations of
// channels. The run loop could not resume it from anything else, so nothing else compiles.
#pragma once

#include <concepts>
#include <coroutine>
#include <exception>
#include <farmem/detail/event.h>
#include <optional>
#include <type_traits>
#include <utility>

namespace fm {

template <class T = void>
class task;

namespace detail {

template <class A>
constexpr bool is_task = false;
template <class T>
inline constexpr bool is_task<task<T>> = true;
/// Whether a task may await an A.
template <class A>
constexpr bool awaited_in_task = is_task<A> || std::is_base_of_v<event_operation, A>;
template <class T>
inline constexpr bool awaited_in_task<fetch_operation<T>> = true;

class task_promise_base {
 public:
  std::suspend_always initial_suspend() noexcept { return {}; }

  /// Resumes the awaiter of the task; a run loop finds the task in its list of finished ones.
  struct final_awaiter {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) noexcept {
      task_promise_base& p = h.promise();
      if (p.finished_) p.next_finished_ = std::exchange(*p.finished_, &p);
      return p.awaiter_ ? p.awaiter_ : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  final_awaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { error_ = std::current_exception(); }

  template <class Awaitable>
  decltype(auto) await_transform(Awaitable&& a) {
    static_assert(awaited_in_task<std::remove_cvref_t<Awaitable>>,
                  "an fm::task awaits p.fetch() and other fm::tasks; something else would never be resumed by fm::run");
    refuse_inside_scope("co_await");
    return std::forward<Awaitable>(a);
  }

  // ---- for the run loop and for awaiters ----
  void set_awaiter(std::coroutine_handle<> h) noexcept { awaiter_ = h; }
  /// False when that was called before.
  bool begin_await() noexcept { return !std::exchange(awaited_, true); }
  void set_finished(task_promise_base** list, std::size_t index) noexcept {
    finished_ = list;
    index_ = index;
  }
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] task_promise_base* next_finished() const noexcept { return next_finished_; }

 protected:
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::coroutine_handle<> awaiter_;
  task_promise_base** finished_ = nullptr;
  task_promise_base* next_finished_ = nullptr;
  std::size_t index_ = 0;
  bool awaited_ = false;
  std::exception_ptr error_;
};

template <class T>
class task_promise : public task_promise_base {
 public:
  task<T> get_return_object() noexcept;
  template <class U = T>
  requires std::constructible_from<T, U&&>
  void return_value(U&& value) { value_.emplace(std::forward<U>(value)); }
  T take() {
    rethrow();
    return *std::exchange(value_, std::nullopt);
  }

 private:
  std::optional<T> value_;
};

template <>
class task_promise<void> : public task_promise_base {
 public:
  task<void> get_return_object() noexcept;
  void return_void() noexcept {}
  void take() { rethrow(); }
};

}  // namespace detail

/// A coroutine with a result of type T. Movable. It starts when it is awaited or given to fm::run. Destroying it
/// destroys its coroutine frame wherever it is suspended; fetches that it awaits end by themselves. Each task allocates
/// one coroutine frame. A task belongs to one thread.
template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;  ///< required of coroutines
  using value_type = T;                          ///< type of the result
  static_assert(!std::is_reference_v<T>, "a task gives a value, an fm::ptr or a pin");

  /// An empty task, which is done.
  task() noexcept = default;
  /// Takes over the coroutine of `o`, which is empty afterwards.
  task(task&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  /// Exchanges the coroutines of both.
  task& operator=(task&& o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~task() {
    if (handle_) handle_.destroy();
  }

  /// Whether it has run to its end, or is empty. O(1).
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }

  /// Runs the task in place until it first suspends; the awaiter goes on when the task has ended. Gives its result or
  /// rethrows its exception. Throws scope_misuse if a scope is open, and invalid_argument if the task was moved from, or
  /// is awaited for the second time.
  auto operator co_await() {
    struct awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() const noexcept { return handle.done(); }
      // Not by symmetric transfer: without optimization it is a call, and a loop over tasks that never suspend would
      // grow the stack.
      bool await_suspend(std::coroutine_handle<> h) {
        handle.resume();
        if (handle.done()) return false;
        handle.promise().set_awaiter(h);
        return true;
      }
      T await_resume() { return handle.promise().take(); }
    };
    if (!handle_) throw error(errc::invalid_argument, "a task is awaited that was moved from");
    if (!handle_.promise().begin_await())
      throw error(errc::invalid_argument, "a task is awaited twice: the first await has its result");
    return awaiter{handle_};
  }

  // ---- for the run loop ----
  /// The coroutine, for the run loop.
  [[nodiscard]] std::coroutine_handle<promise_type> handle() const noexcept { return handle_; }

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  std::coroutine_handle<promise_type> handle_;
};

template <class T>
task<T> detail::task_promise<T>::get_return_object() noexcept {
  return task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
}
inline task<void> detail::task_promise<void>::get_return_object() noexcept {
  return task<void>(std::coroutine_handle<task_promise>::from_promise(*this));
}

}  // namespace fm
