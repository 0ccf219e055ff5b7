// Telling the program what happens to its agents (heap_options::on_agent_event): a bounded queue, and a thread that
// calls the program's function.
//
// Invariant: whoever posts an event never waits for the program. An event that finds the queue full is dropped and
// counted, and the next one that is told says how many.
//
// Threads of sessions and the collector's thread post; heap_core owns it.
#pragma once

#include <condition_variable>
#include <deque>
#include <farmem/options.h>
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
