// The lock of a pool's structure: shared by whoever serves its objects, exclusive for whoever changes what they stand
// on. Made for many that share it for a moment: each serving thread says that it is inside in a cache line of its own.
//
// Invariants owned here
//   - While somebody has it exclusively, nobody else is inside. Either the one who comes in sees `exclusive_`, or the
//     one who has set that sees who is inside: both write first and look then, sequentially consistent.
//   - Neither side keeps the other out. A thread that wants it exclusively waits for those inside and those that queue.
//     Threads that come later queue. A thread that queues is inside before it is had exclusively again, or the time
//     after that.
// Not recursive: a thread that is inside must not come in again.
#pragma once

#include "os/os.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace fm::agent {

constexpr unsigned serving_numbers = 64;
/// The lowest number below serving_numbers that no other living thread has; when all are taken, it is shared. A thread
/// keeps its own.
unsigned serving_number() noexcept;

/// Meets Lockable's lock and unlock, and the shared ones.
class structure_lock {
 public:
  structure_lock() = default;
  structure_lock(const structure_lock&) = delete;
  structure_lock& operator=(const structure_lock&) = delete;

  void lock() noexcept;
  void unlock() noexcept;
  void lock_shared() noexcept {
    seat& mine = seats_[serving_number()];
    mine.inside.fetch_add(1, std::memory_order_seq_cst);
    if (exclusive_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      queue(mine);
  }
  void unlock_shared() noexcept { leave(seats_[serving_number()]); }
  /// Somebody else wants it exclusively. Who wants to share it gets in between two exclusive turns without anybody
  /// stepping back.
  [[nodiscard]] bool is_wanted_exclusively() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }
  /// Somebody waits for it, shared or exclusively; for tests.
  [[nodiscard]] bool is_waited_for() const noexcept {
    return queued_.load(std::memory_order_relaxed) != 0 || waiting_.load(std::memory_order_relaxed) != 0;
  }

 private:
  struct alignas(fm::detail::cache_line_bytes) seat {
    std::atomic<std::uint32_t> inside{0};
  };
  void leave(seat& mine) noexcept {
    if (mine.inside.fetch_sub(1, std::memory_order_seq_cst) == 1 && exclusive_.load(std::memory_order_seq_cst) != 0)
        [[unlikely]]
      os::futex_wake(mine.inside, 1);
  }
  void queue(seat& mine) noexcept;

  std::array<seat, serving_numbers> seats_;
  std::atomic<std::uint32_t> exclusive_{0};  ///< 1: somebody has it so, or waits for those inside
  std::atomic<std::uint32_t> queued_{0};     ///< who came to share it then
  std::atomic<std::uint32_t> waiting_{0};    ///< for `mutex_`
  std::mutex mutex_;                         ///< of the one who has it exclusively
};

}  // namespace fm::agent
