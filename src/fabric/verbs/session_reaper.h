// Ends sessions beside the listener's thread. Giving up a session's registrations unpins its regions page by page: for tens
// of GiB that is seconds, in which the listener's thread serves the others.
//
// Invariant: a session that comes here has no lane, so no completion and no event of the connection manager names it, and
// the listener's thread has let go of it. Its device stays until drain() has returned.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server_session.h"

namespace fm::fabric::verbs {

/// Used by the listener's thread alone.
class session_reaper {
 public:
  session_reaper() : thread_([this] { run(); }) {}
  /// Ends what is left.
  ~session_reaper();
  session_reaper(const session_reaper&) = delete;
  session_reaper& operator=(const session_reaper&) = delete;

  /// Ends `s` soon; at once if there is no memory to note it.
  void take(std::unique_ptr<server_session> s) noexcept;
  /// Sessions that have not ended.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Waits until all of them have ended: as long as the kernel takes for their regions.
  void drain() noexcept;

 private:
  void run() noexcept;

  mutable std::mutex mutex_;  ///< below
  std::condition_variable come_, gone_;
  std::vector<std::unique_ptr<server_session>> waiting_;
  bool ending_one_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace fm::fabric::verbs
