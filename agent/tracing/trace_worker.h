// The state of one tracing worker between steps, and the part of it that exists only inside one.
// Invariant owned here: regions that a step has entered are left when it ends.
// Only the tracer's own files (tracer.cc, trace_scan.cc, trace_peers.cc) use it; a worker is used by one thread at a
// time.
#pragma once

#include "agent/base/limits.h"
#include "tracer.h"

namespace fm::agent {

/// A slot on its way from the stack to being scanned.
struct tracer::item {
  slot_t slot;
  const entry_t* entry;
  const std::byte* copy;  ///< once resolved; null: nothing to scan
  std::uint64_t room;     ///< bytes at `copy` that the object may take
  bool dirty;             ///< at the owner, who scans it
};

struct tracer::worker {
  explicit worker(std::uint64_t slots)
      : stack_max(slots),
        stack(slots + limits::trace_ring_items),
        entered_(home_address::region_limit * sizeof(entered), detail::page_bytes) {
    inside.reserve(limits::trace_step_budget / 4 + limits::trace_ring_items);
  }

  // ---- between steps ----
  bool busy = false;
  std::uint64_t stack_max;
  std::uint64_t top = 0;
  std::vector<slot_t> stack;    ///< with room for the ring's items beyond stack_max
  slot_t resume_slot = 0;       ///< an object whose scan was put off, or 0
  std::uint64_t resume_at = 0;  ///< its next reference
  bool rescanning = false;
  std::uint32_t rescan_tablet = 0;
  std::uint32_t rescan_word = 0;  ///< next word of mark bits
  std::uint64_t rescan_bits = 0;  ///< of the word before, not scanned yet
  std::uint32_t remote_reference_count = 0;
  slot_t remote_references[limits::trace_references_batch];
  std::atomic<std::uint64_t> held{0};  ///< slots in the stack at the end of the last step

  // ---- in a step ----
  struct entered {
    std::uint32_t generation;  ///< 0: not entered
    const std::byte* base;
  };
  os::reservation entered_;  ///< by region number
  std::vector<region*> inside;
  std::int64_t budget = 0;
  std::uint64_t marked = 0, scanned_bytes = 0;

  [[nodiscard]] bool has_work() const noexcept { return top != 0 || resume_slot != 0 || rescanning; }
  [[nodiscard]] entered& at(std::uint32_t number) const noexcept {
    return reinterpret_cast<entered*>(entered_.base())[number];
  }
};

}  // namespace fm::agent
