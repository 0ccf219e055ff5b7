// A thread's state in one heap: the segments that it bump-allocates in, its run of fresh slots, its fetches, its
// counters.
//
// Invariant: only its thread writes it, but for a fetch's record, which belongs to the fetch while it is in flight.
// Counters, `completed` and `posted_at` are read by others. In a pause the collector reads the run of slots (slots.h).
#pragma once

#include "cache/frames/arena.h"
#include "fetch.h"
#include "slot_marks.h"
#include "table/table.h"
#include <atomic>
#include <memory>
#include <vector>

namespace fm::detail {

class object_cache;

/// A counter that one thread writes and others read: an addition is no atomic operation.
class owned_counter {
 public:
  void operator+=(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct mutator_counters {
  owned_counter allocated_objects, allocated_bytes;
  owned_counter misses, misses_by_slot, fetched_bytes, elastic_installs, elastic_touches;
  owned_counter touches, relocations, waits_for_fetch, prefetches;
  owned_counter stalls_for_memory;
};

/// Where a thread bump-allocates.
struct bump {
  segment* seg = nullptr;
  char* at = nullptr;
  char* end = nullptr;
  segment* large = nullptr;  ///< a run taken for one large frame that is not yet published
};

class mutator {
 public:
  static constexpr std::uint32_t fetches_max = limits::fetches_max;

  explicit mutator(object_cache& c) : cache(c), fetches(std::make_unique<fetch[]>(fetches_max)) {}

  object_cache& cache;
  bump young;                              ///< for fetches and allocations
  bump kept;                               ///< for re-referenced objects: becomes a proactive segment
  slot_t next_slot = 0, end_slot = 0;      ///< the run that slots are taken from, in sections
  slot_page rest;                          ///< free slots for the next runs
  slot_t filling = 0;                      ///< the pages of the HIT that are kept open for this thread ...
  std::uint64_t filling_slots = 0;         ///< ... and how many slots they have
  std::uint64_t allocated_unreported = 0;  ///< bytes, see collection_requests
  std::uint64_t objects_unreported = 0;
  std::uint32_t next_agent = 0;
  std::unique_ptr<fetch[]> fetches;  ///< [0] for the miss that the thread waits for, the rest for detached fetches
  std::uint32_t next_fetch = 1;
  std::vector<std::vector<fabric::request*>> together;  ///< of a prefetch, by agent: to be posted at once
  std::atomic<std::uint32_t> completed{0};  ///< detached fetches that have ended; their thread sleeps on it ...
  std::atomic<std::uint32_t> sleeping{0};   ///< ... when this is set
  std::unique_ptr<std::byte[]> staging;     ///< elastic reads land here
  std::uint64_t random = 0x9e3779b97f4a7c15;
  mutator_counters counters;
  std::atomic<bool> in_use{false};  ///< a thread owns it; free ones are reused by new threads
};

}  // namespace fm::detail
