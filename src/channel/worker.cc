// The queue and the thread of a channel's asynchronous operations; see worker.h. Owns their order. The channel that
// owns the worker calls it, from any thread.
#include "worker.h"

#include "os/os.h"

#include <system_error>
#include <utility>

namespace fm::detail {

std::thread worker::started() {
  try {
    return std::thread([this] { run(); });
  } catch (const std::system_error&) {
    throw error(errc::out_of_memory, "no thread can be started for operations of a channel");
  }
}

std::shared_ptr<transfer> worker::begin(time_point deadline, std::function<void(transfer&)> job) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return stopping_ || queue_.size() < waiting_max; }))
    throw error(errc::timed_out, "all places of a channel's queue are taken by operations that are not over");
  if (stopping_) throw error(errc::cancelled, "the channel is closed");
  auto outcome = std::make_shared<transfer>();
  // Before the job is queued: of one that this throws for, nothing is left to be carried out later.
  if (!thread_.joinable()) thread_ = started();
  queue_.push_back({std::move(job), outcome});
  changed_.notify_all();
  return outcome;
}

namespace {

void fail(transfer& outcome, errc code, std::string_view what, std::string_view more = {}) noexcept {
  outcome.code = code;
  try {
    outcome.text = what;
    outcome.text += more;
  } catch (const std::bad_alloc&) {  // the code says enough
  }
}
void fail(transfer& outcome, const error& e) noexcept {
  std::string_view text = e.what();
  const std::string_view name = to_string(e.code());  // the next error has it, too
  if (text.starts_with(name) && text.substr(name.size()).starts_with(": ")) text.remove_prefix(name.size() + 2);
  fail(outcome, e.code(), text);
}

}  // namespace

void worker::run() noexcept {
  os::name_thread("fm-channel");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const queued q = std::move(queue_.front());
      lock.unlock();
      try {
        q.job(*q.outcome);
      } catch (const error& e) {
        fail(*q.outcome, e);
      } catch (const std::bad_alloc&) {
        q.outcome->code = errc::out_of_memory;
      } catch (const std::exception& e) {
        fail(*q.outcome, errc::cancelled, "a function of the program threw: ", e.what());
      } catch (...) {
        fail(*q.outcome, errc::cancelled, "a function of the program threw");
      }
      q.outcome->happen();
    }
    lock.lock();
    queue_.pop_front();
    ++over_;
    changed_.notify_all();
  }
}

bool worker::drain(time_point deadline) noexcept {
  std::unique_lock lock(mutex_);
  const std::uint64_t last = over_ + queue_.size();
  return changed_.wait_until(lock, deadline, [&] { return over_ >= last; });
}

void worker::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace fm::detail
