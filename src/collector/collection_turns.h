// Whose collection runs: one at a time in a process, in the order in which they came. Outermost: no lock is held by who
// waits here. A fork does not wait for a collection: in the child none runs, and nobody waits.
//
// Collectors wait for their turn, and ask whether they hold another one up.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

namespace fm::detail {

class collector;

class collection_turns {
 public:
  static collection_turns& of_process() noexcept;
  /// Of a process, once: of_process.
  collection_turns();

  /// Waits until no other collection runs and it is this one's turn. Until end().
  void begin(collector& c) noexcept;
  void end() noexcept;
  /// Whether somebody waits for a collection that waits for its turn.
  [[nodiscard]] bool holds_somebody_up() noexcept;

  // ---- at a fork ----
  void lock() noexcept { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }
  void begin_again_in_child() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<collector*> waiting_;  ///< one of a heap at most; the first one is next
  bool running_ = false;
};

}  // namespace fm::detail
