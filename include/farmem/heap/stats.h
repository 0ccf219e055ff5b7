// What a heap tells about itself: counters, histograms, and the verdict of a verification.
#pragma once

#include <farmem/base.h>
#include <farmem/gc.h>
#include <string>
#include <vector>

namespace fm {

/// Counters since the heap was opened; bytes unless said otherwise. A consistent snapshot only when nothing runs.
struct heap_stats {
  // objects
  std::uint64_t allocated_objects = 0, allocated_bytes = 0;
  // reading
  std::uint64_t misses = 0;           ///< accesses that had to fetch
  std::uint64_t misses_by_slot = 0;   ///< of them: the hint was unknown or old
  std::uint64_t failed_misses = 0;    ///< ended in an error
  std::uint64_t waits_for_fetch = 0;  ///< accesses that waited for another thread's fetch
  std::uint64_t fetched_bytes = 0;
  std::uint64_t touches = 0;      ///< accesses to cold objects: found in the cache
  std::uint64_t relocations = 0;  ///< of them: moved on to proactive
  std::uint64_t prefetches = 0;
  std::uint64_t elastic_installs = 0;   ///< neighbours that came with a fetch
  std::uint64_t elastic_touches = 0;    ///< of them: used
  std::uint64_t elastic_untouched = 0;  ///< of them: evicted untouched
  // evicting and writing back
  std::uint64_t segments_cooled = 0, segments_released = 0;
  std::uint64_t dropped_objects = 0;
  std::uint64_t written_objects = 0, written_bytes = 0;
  std::uint64_t acknowledged_objects = 0;
  std::uint64_t cancelled_drops = 0;  ///< touched while their write-back was in flight
  std::uint64_t write_failures = 0;   ///< objects whose write-back failed and which stayed dirty
  std::uint64_t stragglers = 0, pauses = 0, pauses_abandoned = 0;
  // now
  std::uint64_t cache_bytes = 0, cache_used_bytes = 0;
  std::uint32_t segments_free = 0, segments_active = 0, segments_proactive = 0, segments_inactive = 0,
                segments_writing = 0;
  std::uint64_t hit_bytes = 0;  ///< of the HIT in memory
  std::uint64_t hit_pages_given_back = 0, hit_pages_opened_again = 0;
  std::uint64_t hit_words_aside = 0;  ///< resident objects whose page is given back, 16 bytes each
  std::uint64_t stalls_for_memory = 0;
  std::uint64_t batches = 0, batches_resent = 0, reconnects = 0, regions = 0, regions_retired = 0;
  // collecting
  std::uint64_t collections = 0, collections_failed = 0;
  std::uint64_t collected_objects = 0, collected_bytes = 0;  ///< home copies that are gone
  cycle_report last_cycle;
  histogram_snapshot pause_ns;  ///< of the collections: all threads stopped
  histogram_snapshot miss_ns;   ///< from the failed test to the usable object
  histogram_snapshot stall_ns;  ///< waiting for memory

  /// Several lines for people.
  [[nodiscard]] std::string text() const;
};

/// What fm::heap::verify found.
struct verify_report {
  std::uint64_t frames = 0, resident = 0, away = 0, unknown = 0, entries = 0;
  std::uint64_t agent_objects = 0, agent_live_bytes = 0, agent_garbage_bytes = 0, agent_metadata_bytes = 0;
  std::uint64_t faults = 0;
  std::vector<std::string> messages;  ///< the first faults, in words
  [[nodiscard]] bool ok() const noexcept { return faults == 0; }
};

}  // namespace fm
