// Waiting for a turn; see collection_turns.h.
//
// Invariant: waiting_ has room for a collector of each heap that a process may have, so that nobody needs memory here.
#include "collector/collection_turns.h"
#include "collector/collector.h"
#include "os/os.h"

#include <algorithm>
#include <new>

namespace fm::detail {

namespace {

collection_turns turns;

const os::fork_guard turns_at_fork(
    os::fork_rank::pauses, []() noexcept { turns.lock(); }, []() noexcept { turns.unlock(); },
    []() noexcept { turns.begin_again_in_child(); });

}  // namespace

collection_turns& collection_turns::of_process() noexcept { return turns; }

collection_turns::collection_turns() { waiting_.reserve(heaps_max); }

void collection_turns::begin_again_in_child() noexcept {
  waiting_.clear();
  running_ = false;
  new (&changed_) std::condition_variable;
  mutex_.unlock();
}

void collection_turns::begin(collector& c) noexcept {
  std::unique_lock lock(mutex_);
  waiting_.push_back(&c);
  changed_.wait(lock, [&] { return !running_ && waiting_.front() == &c; });
  waiting_.erase(waiting_.begin());
  running_ = true;
}

void collection_turns::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  changed_.notify_all();
}

bool collection_turns::holds_somebody_up() noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [](const collector* c) { return c->is_waited_for(); });
}

}  // namespace fm::detail
