// Wall and CPU time of a stretch of work, over this program and the processes that work for it (agents, workers).
#pragma once

#include <chrono>
#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace fm::bench {

/// Nanoseconds now, monotonic.
inline std::uint64_t now_ns() noexcept {
  return std::uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// CPU seconds, user and system, that all threads of a process have used; of this process and of its children that
/// were waited for when `pid` is 0. A process that is gone counts as 0: read it before stopping it.
double cpu_seconds(pid_t pid);

/// The sum over this process and `others`.
double cpu_seconds_with(const std::vector<pid_t>& others);

/// Keeps the compiler from removing the computation of `value`.
template <class T>
inline void keep(const T& value) noexcept {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Binds a process (0: the calling thread) to one core; false where the machine has no such core.
bool pin_to_core(pid_t pid, int core) noexcept;
/// Undoes that for the calling thread, and for those that it starts.
void use_all_cores() noexcept;
int core_count() noexcept;

}  // namespace fm::bench
