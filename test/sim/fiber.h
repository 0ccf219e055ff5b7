// Threads that are run by one thread of the kernel. Each thread of the program is a real one as far as the C library is
// concerned, with its own thread-local storage; but it is parked in the kernel from its first moment on, and the main thread
// runs its code for it: on another stack, and with the parked one's storage. Handing over to another thread is then a
// call, and not a trip through the kernel's scheduler, which takes a thousand times as long.
//
// x86-64 with glibc and the instructions of FSGSBASE only.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace fm::sim {

class fiber {
 public:
  /// Whether this machine can do it.
  static bool possible() noexcept;

  fiber() = default;
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// The thread that calls becomes one of them.
  void adopt() noexcept;
  /// Parks a new thread; the first switch to it calls `entry`, which does not return.
  bool make(void (*entry)() noexcept) noexcept;
  /// Goes on where `to` is; returns when somebody switches back.
  void switch_to(fiber& to) noexcept;
  /// Its code has run to the end: the parked thread leaves, too. Called by another one.
  void release() noexcept;
  [[nodiscard]] pthread_t handle() const noexcept { return handle_; }

 private:
  static void* park(void* self) noexcept;

  pthread_t handle_{};
  void* stack_pointer_ = nullptr;
  void* stack_ = nullptr;
  std::uint32_t parked_ = 0, go_ = 0;
};

}  // namespace fm::sim
