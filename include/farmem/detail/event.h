// Awaiting an event that another thread brings about, such as the end of a transfer on a channel. A run loop waits on
// its bell; an event rings it when it happens, and the loop then looks at its awaits.
//
// Invariants owned here
//   - An event happens once, and its outcome is there before has_happened() says so.
//   - A suspended await holds a share of its event and nothing else: its coroutine may be destroyed at any time.
//
// Used by channel_operation and by the run loop (src/tasks).
#pragma once

#include <farmem/tasks/await.h>
#include <memory>
#include <mutex>

namespace fm::detail {

/// What a sleeping run loop waits on.
struct bell {
  std::atomic<std::uint32_t> rings{0};
  void ring() noexcept {
    rings.fetch_add(1, std::memory_order_seq_cst);
    os::futex_wake(rings, 1);
  }
};

/// Something that happens once. Thread-safe.
class event {
 public:
  [[nodiscard]] bool has_happened() const noexcept { return word_.load(std::memory_order_acquire) == happened; }
  /// Says that it has, after whatever it brings is in its place.
  void happen() noexcept {
    word_.store(happened, std::memory_order_release);
    os::futex_wake(word_, INT32_MAX);
    std::shared_ptr<bell> b;
    {
      const std::lock_guard lock(mutex_);
      b = bell_;
    }
    if (b) b->ring();
  }
  /// Sleeps until it has happened, or until the deadline; whether it has.
  bool wait(time_point deadline) noexcept {
    while (!has_happened())
      if (clock::now() >= deadline || !os::futex_wait(word_, 0, deadline)) break;
    return has_happened();
  }
  /// Rings when it happens; look at has_happened() afterwards.
  void tell(std::shared_ptr<bell> b) noexcept {
    const std::lock_guard lock(mutex_);
    bell_ = std::move(b);
  }

 private:
  static constexpr std::uint32_t happened = 1;
  std::atomic<std::uint32_t> word_{0};
  std::mutex mutex_;
  std::shared_ptr<bell> bell_;
};

/// One await of an event. Outside of a run loop it blocks the thread.
class event_wait : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  explicit event_wait(std::shared_ptr<event> event) noexcept : event_(std::move(event)) {}
  event_wait(const event_wait&) = delete;
  event_wait& operator=(const event_wait&) = delete;

  bool await_ready();
  void await_suspend(std::coroutine_handle<> resume_when_it_has_happened);

  // ---- for the run loop ----
  [[nodiscard]] bool ready() const noexcept { return event_->has_happened(); }
  void resume() { coroutine_.resume(); }

 private:
  std::shared_ptr<event> event_;
  std::coroutine_handle<> coroutine_;
};

/// Marks what may be awaited in an fm::task beside fetches and tasks.
struct event_operation {};

}  // namespace fm::detail
