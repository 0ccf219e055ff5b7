// How much processor time this process asks for: what its threads ran, and what they were ready to run and did not get.
#pragma once

#include <cstdint>

namespace fm::os {

struct processor_times {
  std::uint64_t ran_ns = 0;  ///< of all threads since the process began, those included that have ended
  std::uint64_t waited_ns =
      0;  ///< of the threads that live, ready to run and not running; 0 where the kernel does not tell
};

/// Reads a file of /proc for each thread: some microseconds a thread. Thread-safe.
processor_times processor_times_of_process() noexcept;

/// Processors that the process may use, by its affinity and by the limit of its cgroup (cpu.max); more than 0. Thread-safe.
double usable_processors() noexcept;

}  // namespace fm::os
