// Waiting for memory: what a thread does that finds no frame. It evicts itself, a step at a time, and sleeps only while
// others have every step in hand; at its deadline it says who holds the memory.
//
// Invariants owned here
//   - Every wait has a deadline, and the last attempt is made after it.
//   - A thread waits outside of sections when its section has handed out no pointer; otherwise it says meanwhile that
//     it reads nothing at home (thread_state::reads_nothing).
//
// Allocation, misses and the memory gate of user sections call it.
#pragma once

#include "mutator.h"
#include <atomic>
#include <farmem/detail/access.h>
#include <farmem/histogram.h>

namespace fm::detail {

class memory_pressure {
 public:
  explicit memory_pressure(object_cache& cache) noexcept : cache_(cache) {}

  /// Waits until the heap is no longer short of memory, evicting meanwhile, and for collections when the agents are
  /// full; returns at the deadline too, and when collections are in vain. `m`: the calling thread's. Outside of
  /// sections.
  void wait_at_gate(mutator& m, time_point deadline) noexcept;
  /// Threads that are, or are about to be, in wait_at_gate: closing the heap waits until they have left.
  std::atomic<std::uint32_t> gate_waiters{0};
  void await_gate_waiters() noexcept;

  /// Waits for memory with eviction; outside of a section. Throws cache_full at the deadline.
  void wait_for_memory(std::uint32_t segments, time_point deadline);
  /// A frame for what comes from home. Null when the section was left to wait for memory: the caller looks at the word
  /// again.
  char* frame_for_miss(mutator& m, slot_t slot, std::uint64_t payload_bytes, section_kind section);
  /// Sleeps until memory was released after `seen` (arena::release_count), or until `deadline`; wakes the evictor
  /// first.
  void sleep_until_released(std::uint32_t seen, time_point deadline) noexcept;

  /// Wants a collection if the agents are full: garbage can make room. Once until it has ended. False: none would help,
  /// or comes by itself.
  bool ask_for_room() noexcept;
  [[noreturn]] void throw_cache_full(std::uint64_t bytes);

  histogram stall_ns;

 private:
  object_cache& cache_;
};

}  // namespace fm::detail
