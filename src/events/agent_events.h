// Telling the program what happens to its agents (on_agent_event of heaps, pools and paged ranges): a bounded queue, and a thread
// that calls the program's function.
//
// Invariant: whoever posts an event never waits for the program. An event that finds the queue full is dropped and
// counted, and the next one that is told says how many.
//
// Threads of sessions, of the collector and of the mender post; heap_core, paged_core and pool::impl own one each.
#pragma once

#include <condition_variable>
#include <deque>
#include <farmem/base/agent_event.h>
#include <functional>
#include <mutex>
#include <thread>

namespace fm::detail {

class agent_events {
 public:
  ~agent_events() { stop(); }
  /// Starts the thread, if there is somebody to tell. Once.
  void start(std::function<void(const agent_event&)> tell);
  void post(agent_event e) noexcept;
  /// Waits for the call that is being made; what is queued is not told any more. Not from that call.
  void stop() noexcept;

 private:
  void run() noexcept;

  std::function<void(const agent_event&)> tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<agent_event> queue_;
  std::uint64_t missed_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fm::detail
