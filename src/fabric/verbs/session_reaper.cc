// The thread that gives up registrations of sessions that are over; see session_reaper.h.
#include "session_reaper.h"

#include "os/os.h"

namespace fm::fabric::verbs {

session_reaper::~session_reaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  come_.notify_one();
  thread_.join();
}

void session_reaper::take(std::unique_ptr<server_session> s) noexcept {
  s->close_lanes();
  {
    const std::lock_guard lock(mutex_);
    try {
      waiting_.push_back(std::move(s));
    } catch (const std::bad_alloc&) {
    }
  }
  come_.notify_one();
}

std::size_t session_reaper::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + (ending_one_ ? 1 : 0);
}

void session_reaper::drain() noexcept {
  std::unique_lock lock(mutex_);
  gone_.wait(lock, [this] { return waiting_.empty() && !ending_one_; });
}

void session_reaper::run() noexcept {
  os::name_thread("fm-verbs-end");
  std::unique_lock lock(mutex_);
  for (;;) {
    come_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::unique_ptr<server_session> next = std::move(waiting_.back());
    waiting_.pop_back();
    ending_one_ = true;
    lock.unlock();
    next.reset();
    lock.lock();
    ending_one_ = false;
    gone_.notify_all();
  }
}

}  // namespace fm::fabric::verbs
