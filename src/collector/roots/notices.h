// Notices of dead objects (heap::on_dead), and the thread that runs them, `fm-notices`, which the first one starts.
//
// A notice is the program's code. It may read what is far, allocate, or wait for whatever it likes. So it does not run on the
// collector's thread: a collection, or the promotion of a replica, could not begin before it ends, and a notice that waits
// for one of these would wait for itself.
//
// Invariants owned here
//   - A notice runs once, after a collection has found its object dead, one at a time, without a lock and outside of sections.
//   - One whose object was found dead runs before the heap is closed.
//
// The collector's thread looks after each collection; callers of collect wait for what it has found. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <farmem/detail/barriers/weak_cell.h>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace fm::detail {

class death_notices {
 public:
  death_notices() = default;
  death_notices(const death_notices&) = delete;
  death_notices& operator=(const death_notices&) = delete;
  ~death_notices() { stop(); }

  /// Throws out_of_memory.
  void add(slot_t slot, std::function<void()> notice);
  /// A collection has ended: the notices of what it found dead are due. O(notices).
  void look() noexcept;
  /// Waits until all that were due when it was called have run. Not by one of them.
  void await_told() noexcept;
  /// None is due, and none runs.
  [[nodiscard]] bool all_told() noexcept;
  /// The caller is a notice.
  [[nodiscard]] bool is_own_thread() noexcept;
  /// Runs those that are due, and forgets the others. Not by a notice.
  void stop() noexcept;

 private:
  struct watched {
    weak_name object;
    std::function<void()> notice;
  };
  void run() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<watched> watched_, due_;
  std::uint64_t found_ = 0, told_ = 0;  ///< how many were ever due, and have run
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fm::detail
