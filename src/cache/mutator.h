// A thread's state in one heap: what it leases (leases.h) and its counters. Heaps have thousands of threads that sleep,
// so it is small.
//
// Invariant: only its thread writes it, but for what leases.h takes back, and for a fetch's record, which belongs to
// the fetch while it is in flight. Counters, `completed` and `posted_at` are read by others. In a pause the collector
// reads the run of slots (slots.h).
#pragma once

#include "cache/frames/shared_segments.h"
#include "cache/tablets/slot_marks.h"
#include "fetch.h"
#include "table/table.h"
#include <array>
#include <atomic>
#include <boost/intrusive/list.hpp>

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
  owned_counter touches, waits_for_fetch, prefetches;
  owned_counter stalls_for_memory;
};

/// Of whatever a round of leases.h may have set to null: sequentially consistent where the sanitizer must see why.
constexpr std::memory_order limit_order = FM_TSAN ? std::memory_order_seq_cst : std::memory_order_relaxed;

/// Where a thread bump-allocates, in sections.
struct bump {
  bump(fill_kind k, mutator* owner) noexcept : kind(k), of(owner) {}
  std::atomic<char*> limit{nullptr};  ///< the end of `own`, or null: nothing is left, or it is being taken back
  piece own;
  segment* large = nullptr;  ///< a run taken for one large frame that is not yet published
  const fill_kind kind;
  mutator* const of;  ///< null: the evictor's
};

/// Records for detached fetches; they are leased together.
struct fetch_chunk {
  static constexpr std::uint32_t size = limits::fetches_leased;
  std::array<fetch, size> records;
};

using lessee_hook = boost::intrusive::list_base_hook<>;

class mutator : public lessee_hook {
 public:
  static constexpr std::uint32_t chunks_max = limits::fetches_max / fetch_chunk::size;

  explicit mutator(object_cache& c) : cache(c) { waited.from.store(this, std::memory_order_relaxed); }

  object_cache& cache;
  thread_state* thread = nullptr;          ///< its thread; null when that has ended
  bump made{fill_kind::made, this};        ///< for new objects
  bump fetched{fill_kind::fetched, this};  ///< for what was remote
  slot_t next_slot = 0;                    ///< the run that slots are taken from, in sections: up to here ...
  std::atomic<slot_t> slot_limit{0};       ///< ... or null, as bump::limit
  std::atomic<slot_t> end_slot{0};         ///< its end, whatever the limit says
  slot_page rest;                          ///< free slots for the next runs
  slot_t filling = 0;                      ///< the pages of the HIT that are kept open for this thread ...
  std::uint64_t filling_slots = 0;         ///< ... and how many slots they have
  std::uint64_t run_slots = 0;             ///< in the last run or page ...
  std::uint64_t wanted_slots = 0;          ///< ... and how many it was to have: the next one is longer
  std::uint64_t run_from = 0;              ///< bytes_made() when the run began
  std::uint64_t run_expected = 0;          ///< bytes that its agent is charged with for it ...
  std::uint64_t run_most = 0;              ///< ... and from which on the rest of it goes back; 0: none is charged
  std::uint32_t run_agent = 0;             ///< ... of all three, the agent
  std::uint64_t allocated_unreported = 0;  ///< bytes, see collection_requests
  std::uint64_t objects_unreported = 0;
  std::uint32_t next_agent = 0;
  std::uint32_t next_fetch = 0;
  fetch waited;                                   ///< the miss that the thread waits for
  std::array<fetch_chunk*, chunks_max> chunks{};  ///< records for detached fetches
  std::uint32_t chunk_count = 0;
  std::atomic<std::uint32_t> fetches{0};     ///< records that may be used, or null, as bump::limit
  std::atomic<std::uint32_t> completed{0};   ///< detached fetches that have ended; their thread sleeps on it ...
  std::atomic<std::uint32_t> sleeping{0};    ///< ... when this is set
  std::atomic<std::byte*> staging{nullptr};  ///< elastic reads land here; or null, as bump::limit
  std::byte* staging_held = nullptr;
  std::uint64_t leased = 0;  ///< bytes, as leases.h counts them
  bool asked = false;        ///< in this round of leases.h
  bool fills = false;        ///< it has a piece, as leases.h counts
  /// 1: outside of sections, and yet it uses its piece: it writes a new object there, which may take long.
  std::atomic<std::uint32_t> writes_new{0};
  mutator_counters counters;

  /// Bytes of all the objects that it has made, as at home.
  [[nodiscard]] std::uint64_t bytes_made() const noexcept {
    return counters.allocated_bytes.get() + counters.allocated_objects.get() * header::bytes;
  }
  /// Before it looks at the limit of its piece outside of a section ...
  void begin_new() noexcept {
#if FM_TSAN
    writes_new.exchange(1, std::memory_order_seq_cst);
#else
    writes_new.store(1, std::memory_order_relaxed);
    os::light_fence();
#endif
  }
  /// ... and after it has entered one.
  void end_new() noexcept { writes_new.store(0, FM_TSAN ? std::memory_order_seq_cst : std::memory_order_release); }
  /// In a section: the next slot is there.
  [[nodiscard]] bool has_slot() const noexcept {
    const slot_t limit = slot_limit.load(limit_order);  // null: perhaps somebody takes the run just now
    return limit != 0 && next_slot < limit;
  }
};
/// A thread that does nothing costs the heap 1 KiB, and what it leases out of the budget.
static_assert(sizeof(mutator) <= 1024);

}  // namespace fm::detail
