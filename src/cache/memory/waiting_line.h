// The order in which threads get memory: who came first is served first, and nobody overtakes a thread that waits.
//
// Invariants owned here
//   - The first of a line alone may take what frees memory for it; everybody else sleeps until it has left the line.
//   - A thread leaves the line with its frame, or with its error, so the line always moves.
//
// memory_pressure has four lines: threads that hold frames, threads that want an object larger than a segment, all
// others, and makers of objects beside a full agent.
#pragma once

#include "cache/mutator.h"
#include "os/os.h"
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <mutex>

namespace fm::detail {

class waiting_line {
 public:
  /// One thread's place in a line, from its arrival to its end.
  class place : public boost::intrusive::list_base_hook<> {
   public:
    place(waiting_line& line, const bump& of) noexcept : line_(&line), of_(of) { line_->join(*this); }
    ~place() { line_->leave(*this); }
    place(const place&) = delete;
    place& operator=(const place&) = delete;

    [[nodiscard]] bool is_first() const noexcept { return first_.load(std::memory_order_acquire) != 0; }
    /// Goes to the end of another line, if it stands in another one.
    void stand_in(waiting_line& line) noexcept {
      if (line_ == &line) return;
      line_->leave(*this);
      first_.store(0, std::memory_order_relaxed);
      line_ = &line;
      line_->join(*this);
    }
    /// Waits until it is first, or until `deadline`.
    void wait_until(time_point deadline) noexcept { os::futex_wait(first_, 0, deadline); }

   private:
    friend class waiting_line;
    waiting_line* line_;
    const bump& of_;
    std::atomic<std::uint32_t> first_{0};
  };

  /// Whether another thread than the owner of this bump is to be served before it. Wait-free.
  [[nodiscard]] bool is_before(const bump& b) const noexcept {
    const bump* first = first_.load(std::memory_order_relaxed);
    return first != nullptr && first != &b;
  }
  /// Whether the owner of this bump is the next to be served. Wait-free.
  [[nodiscard]] bool is_next(const bump& b) const noexcept { return first_.load(std::memory_order_relaxed) == &b; }
  [[nodiscard]] bool empty() const noexcept { return first_.load(std::memory_order_relaxed) == nullptr; }

 private:
  void join(place& p) noexcept {
    const std::lock_guard lock(mutex_);
    places_.push_back(p);
    if (&places_.front() == &p) begin_turn(p);
  }
  void leave(place& p) noexcept {
    const std::lock_guard lock(mutex_);
    const bool was_first = &places_.front() == &p;
    places_.erase(boost::intrusive::list<place>::s_iterator_to(p));
    if (!was_first) return;
    first_.store(nullptr, std::memory_order_relaxed);
    if (!places_.empty()) begin_turn(places_.front());
  }
  // With mutex_: until it is given back the place cannot go away.
  void begin_turn(place& p) noexcept {
    first_.store(&p.of_, std::memory_order_relaxed);
    p.first_.store(1, std::memory_order_release);
    os::futex_wake(p.first_, 1);
  }

  std::mutex mutex_;
  boost::intrusive::list<place> places_;
  std::atomic<const bump*> first_{nullptr};
};

}  // namespace fm::detail
