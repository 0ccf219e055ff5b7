// Waiting for memory: what a thread does that finds no frame. It evicts itself, a step at a time, and sleeps only while
// others have every step in hand; at its deadline it says who holds the memory.
//
// Invariants owned here
//   - Every wait has a deadline, and the last attempt is made after it.
//   - A thread waits outside of sections (access_wait.h). If they cannot be left, it says meanwhile that it reads
//     nothing at home (thread_state::reads_nothing).
//
// Allocation, misses and the memory gate of user sections call it.
#pragma once

#include "mutator.h"
#include <atomic>
#include <farmem/detail/word.h>
#include <farmem/histogram.h>

namespace fm::detail {

class memory_pressure {
 public:
  explicit memory_pressure(object_cache& cache) noexcept : cache_(cache) {}

  /// Waits until the heap is no longer short of memory, evicting meanwhile, and for collections when the agents are
  /// full; returns at the deadline too, and when collections are in vain. `m`: the calling thread's. Outside of
  /// sections.
  void wait_at_gate(mutator& m, time_point deadline) noexcept;
  /// Threads that are, or are about to be, in wait_at_gate, and those that have left their sections to wait in this
  /// cache: closing the heap waits until they have gone on.
  std::atomic<std::uint32_t> waiters{0};
  void await_waiters() noexcept;

  /// Waits for memory with eviction; outside of a section. Throws cache_full at the deadline.
  void wait_for_memory(std::uint32_t segments, time_point deadline);
  /// A frame, in a section. Null when the section was left to wait for memory: the caller looks at everything again.
  /// `slot`: what the caller is about to reach; 0: nothing.
  char* frame_in_section(mutator& m, slot_t slot, std::uint64_t payload_bytes);
  /// Sleeps until memory was released after `seen` (arena::release_count), or until `deadline`; wakes the evictor
  /// first.
  void sleep_until_released(std::uint32_t seen, time_point deadline) noexcept;

  /// Wants a collection if the agents are full: garbage can make room. Once until it has ended. False: none would help,
  /// or comes by itself.
  bool ask_for_room() noexcept;
  [[noreturn]] void throw_cache_full(std::uint64_t bytes);

  histogram stall_ns;
  /// Waits for memory, at the gate or for a fetch that their deadline ended.
  std::atomic<std::uint64_t> expired{0};

 private:
  object_cache& cache_;
};

}  // namespace fm::detail
