// The notices that are due, and their thread; see notices.h.
#include "collector/roots/notices.h"

#include "base/log.h"
#include "collector/roots/weak_cells.h"
#include "os/os.h"
#include <farmem/base/error.h>
#include <fmt/format.h>

#include <system_error>

namespace fm::detail {

void death_notices::add(slot_t slot, std::function<void()> notice) {
  std::list<watched> one;
  one.push_back({name_weakly(slot), std::move(notice)});
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      throw error(errc::out_of_memory, fmt::format("a thread for notices of dead objects: {}", e.what()));
    }
  watched_.splice(watched_.end(), one);
}

void death_notices::look() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto w = watched_.begin(); w != watched_.end();) {
    const auto next = std::next(w);
    if (!is_named(w->object)) {
      due_.splice(due_.end(), watched_, w);
      ++found_;
    }
    w = next;
  }
  changed_.notify_all();
}

void death_notices::await_told() noexcept {
  std::unique_lock lock(mutex_);
  const std::uint64_t all = found_;
  changed_.wait(lock, [&] { return told_ >= all; });
}

bool death_notices::all_told() noexcept {
  const std::lock_guard lock(mutex_);
  return told_ == found_;
}

bool death_notices::is_own_thread() noexcept {
  const std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

void death_notices::stop() noexcept {
  std::list<watched> others;  // what they carry is the program's, too: it goes without the lock
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    others.swap(watched_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void death_notices::run() noexcept {
  os::name_thread("fm-notices");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !due_.empty(); });
    if (due_.empty()) return;
    std::list<watched> one;
    one.splice(one.end(), due_, due_.begin());
    lock.unlock();
    try {
      one.front().notice();
    } catch (const std::exception& e) {
      log::error("a notice of a dead object threw: {}", e.what());
    } catch (...) {
      log::error("a notice of a dead object threw");
    }
    one.clear();
    lock.lock();
    ++told_;
    changed_.notify_all();
  }
}

}  // namespace fm::detail
