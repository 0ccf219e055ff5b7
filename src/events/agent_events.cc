// The queue and its thread; see agent_events.h.
//
// Invariant: the program's function is called without a lock, by one thread.
#include "agent_events.h"

#include "base/base.h"
#include "base/limits.h"
#include "base/log.h"
#include "os/os.h"

#include <utility>

namespace fm {

std::string_view to_string(agent_change change) noexcept {
  switch (change) {
    case agent_change::silent: return "silent";
    case agent_change::back: return "back";
    case agent_change::full: return "full";
    case agent_change::lost: return "lost";
    case agent_change::rehomed: return "rehomed";
    case agent_change::leaving: return "leaving";
    case agent_change::staying: return "staying";
    case agent_change::left: return "left";
    case agent_change::added: return "added";
    case agent_change::replicated: return "replicated";
    case agent_change::taken_over: return "taken over";
  }
  return "unknown";
}

namespace detail {

void agent_events::start(std::function<void(const agent_event&)> tell) {
  if (!tell) return;
  tell_ = std::move(tell);
  thread_ = std::thread([this] {
    os::name_thread("fm-events");
    run();
  });
}

void agent_events::post(agent_event e) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!tell_ || stopping_) return;
    if (queue_.size() >= limits::agent_events_max) {
      ++missed_;
      return;
    }
    try {
      queue_.push_back(std::move(e));
    } catch (const std::bad_alloc&) {
      ++missed_;
      return;
    }
    queue_.back().missed = std::exchange(missed_, 0);
  }
  changed_.notify_one();
}

void agent_events::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (!thread_.joinable()) return;
  FM_CHECK(std::this_thread::get_id() != thread_.get_id(), "on_agent_event must not close its heap, pool or range");
  thread_.join();
}

void agent_events::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const agent_event e = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      tell_(e);
    } catch (const std::exception& thrown) {
      log::error("on_agent_event threw: {}", thrown.what());
    } catch (...) {
      log::error("on_agent_event threw");
    }
    lock.lock();
  }
}

}  // namespace detail
}  // namespace fm
