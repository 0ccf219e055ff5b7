// What a heap tells about itself: counters, histograms, and the verdict of a verification.
#pragma once

#include <farmem/collect.h>
#include <farmem/error.h>
#include <farmem/histogram.h>
#include <farmem/pauses.h>
#include <farmem/units.h>
#include <string>
#include <vector>

namespace fm {

/// How much heap::stats finds out.
enum class detail_level : std::uint8_t {
  counters,  ///< what is counted anyway: O(threads)
  types,     ///< and objects by type: O(slots), asking the agents
};

/// The objects of one type.
struct type_stats {
  std::string name;           ///< as the program spells it; an array of T is "T[]"
  std::uint64_t objects = 0;  ///< made and not collected yet
  std::uint64_t bytes = 0;    ///< of their home copies, headers included; what is only in the cache: what they will be
  std::uint64_t resident_only_objects = 0, resident_only_bytes = 0;  ///< of them: never written back, no home copy yet
};

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
  std::uint64_t bytes_bounced = 0;  ///< copied on their way to or from an RDMA device; 0 where all memory is registered
  // collecting
  std::uint64_t collections = 0, collections_failed = 0;
  std::uint64_t collected_objects = 0, collected_bytes = 0;  ///< home copies that are gone
  std::uint64_t evacuated_objects = 0, evacuated_bytes = 0;  ///< moved by agents after collections, as far as was told
  std::uint64_t emptied_regions = 0;                         ///< by that
  std::uint64_t young_collections = 0, young_collections_failed = 0;     ///< of young objects, between the others
  std::uint64_t young_collected_objects = 0, young_collected_bytes = 0;  ///< that never went home
  cycle_report last_cycle, last_young;
  histogram_snapshot pause_ns;  ///< of the collections: all threads stopped
  histogram_snapshot miss_ns;   ///< from the failed test to the usable object
  histogram_snapshot stall_ns;  ///< waiting for memory
  histogram_snapshot
      gate_ns;  ///< what threads waited at the gate of pauses, of all heaps of the process; a wait is a sample
  /// The last pauses of the process (4096 at most) since the heap was opened, of collections and of eviction, those that
  /// were abandoned too: whatever kept threads from beginning to use objects. In order.
  std::vector<pause_record> recent_pauses;
  time_point observed_from, observed_until;  ///< the time in which `recent_pauses` are all that there were

  /// Objects by type, most bytes first; with detail_level::types only. An object is counted at most once: by its agent if that
  /// stores a home copy, else by its frame. What is unreachable is counted until a collection frees it. While other threads
  /// use the heap, what is made or freed meanwhile may or may not be counted, and what is written back for the first time just then
  /// may be missed.
  std::vector<type_stats> types;
  std::uint32_t agents_not_counted =
      0;  ///< lost ones, and others that did not answer: of their objects only frames are counted

  /// Bounded mutator utilisation: the least share of the time that pauses left to the threads, in any stretch of at least
  /// `window` that was observed. In [0, 1]. It tells of pauses and not of misses or eviction (base/pauses.h).
  [[nodiscard]] double bmu(duration window) const {
    return bounded_utilisation(recent_pauses, observed_from, observed_until, window);
  }
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
