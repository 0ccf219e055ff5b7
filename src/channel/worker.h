// A thread that carries out operations, begun when the first one comes. A channel has one for what it sends and one for
// what it receives.
//
// Invariants owned here: operations are carried out in the order in which they were begun, one at a time, and at most
// waiting_max of them wait. Who begins one more waits for a place, until the deadline. channel_core calls it, from any
// thread.
//
// The queue is under a lock and not lock-free. An operation carries a graph, and begins with an allocation. A push and a
// pop under a lock that nobody contends for take less than waking the thread (measured at driver::queue_notice).
#pragma once

#include <farmem/channel/operation.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace fm::detail {

class worker {
 public:
  static constexpr std::size_t waiting_max = 64;

  worker() = default;
  ~worker() { stop(); }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  /// Has `job` done, and its outcome put into what is returned. Waits for a place in the queue; throws timed_out,
  /// cancelled, out_of_memory if there is no thread and none can be started.
  std::shared_ptr<transfer> begin(time_point deadline, std::function<void(transfer&)> job);
  /// Waits until all that was begun before is over; false at the deadline.
  bool drain(time_point deadline) noexcept;
  /// Ends when what is queued has been done, which fails quickly once its channel is broken.
  void stop() noexcept;

 private:
  std::thread started();
  void run() noexcept;

  struct queued {
    std::function<void(transfer&)> job;
    std::shared_ptr<transfer> outcome;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<queued> queue_;  ///< the first one is being carried out
  std::uint64_t over_ = 0;    ///< operations that are
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fm::detail
