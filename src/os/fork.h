// What happens to the process's own state when the program forks. A child has one thread, the one that forked; every
// lock that another thread held would stay locked in it, and what that lock guards might be half changed.
//
// Invariant owned here: when a child begins, no lock of a fork_guard is held, and what it guards is whole. For that,
// fork takes all of them, in the order of their ranks, and both processes give them back. A lock of a later rank may be
// taken under one of an earlier rank, and never the other way round. Whoever owns a lock of the whole process makes
// one static fork_guard; whoever makes something on first use has it made before, see at_load. Locks of single objects of the parent are nobody's in a child, which does not use these.
#pragma once

#include <cstdint>

namespace fm::os {

/// The order of the process's locks.
enum class fork_rank : std::uint8_t {
  pauses,   ///< one pause at a time
  heaps,    ///< heaps by number
  threads,  ///< threads in sections
  leaves,   ///< nothing is taken under these
};

/// Static objects alone: never taken back.
class fork_guard {
 public:
  /// `before` takes the locks; `in_parent` and `in_child` give them back, and `in_child` may change what they guard. In
  /// a child, only what a signal handler may do is allowed, beside unlocking.
  fork_guard(fork_rank rank, void (*before)() noexcept, void (*in_parent)() noexcept,
             void (*in_child)() noexcept) noexcept;

 private:
  friend struct fork_guards;
  const fork_rank rank_;
  void (*const before_)() noexcept;
  void (*const in_parent_)() noexcept;
  void (*const in_child_)() noexcept;
  fork_guard* next_ = nullptr;
};

/// The guard of one std::mutex, or of anything that locks like it.
template <auto& Lock>
fork_guard guard_at_fork(fork_rank rank) noexcept {
  return {rank, []() noexcept { Lock.lock(); }, []() noexcept { Lock.unlock(); }, []() noexcept { Lock.unlock(); }};
}

/// Has `make` called when the library is loaded: a function that keeps something in a local static, and no fork_guard
/// calls. If a thread were just making it at a fork, the child would wait for that thread for ever. Static objects alone.
struct at_load {
  explicit at_load(void (*make)()) { make(); }
};

/// How many forks this process is away from the one that loaded the library. What one of its ancestors opened has a
/// smaller number, and belongs to that. Wait-free.
[[nodiscard]] std::uint32_t fork_depth() noexcept;

}  // namespace fm::os
