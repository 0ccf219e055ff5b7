// Statistics of a heap: counters, gauges and histograms (heap_stats), and the result of a verification (verify_report).
// detail::heap_core fills them in; application code reads them.
// Invariant: counters only grow while the heap is open. docs/reference/metrics.md lists the same fields in tables; a
// test compares them.
#pragma once

#include <farmem/base/error.h>
#include <farmem/base/histogram.h>
#include <farmem/base/pauses.h>
#include <farmem/base/units.h>
#include <farmem/heap/collect.h>
#include <string>
#include <vector>

namespace fm {

/// How much heap::stats counts.
enum class detail_level : std::uint8_t {
  counters,  ///< the counters that threads keep anyway: O(threads)
  types,     ///< also the objects by type: O(slots), and the agents are asked
};

/// The objects of one type.
struct type_stats {
  std::string name;           ///< as the program spells it; an array of T is "T[]"
  std::uint64_t objects = 0;  ///< allocated and not collected yet
  std::uint64_t bytes = 0;  ///< of their home copies, headers included; an object without one counts as its copy would
  std::uint64_t resident_only_objects = 0,  ///< of `objects`: never written back, so without a home copy
      resident_only_bytes = 0;              ///< of `bytes`: those of `resident_only_objects`
};

/// Counters since the heap was opened, and gauges of the present. Bytes unless stated otherwise. Each value is exact;
/// together they are one consistent snapshot only while no other thread uses the heap.
struct heap_stats {
  // objects
  std::uint64_t allocated_objects = 0,  ///< objects made
      allocated_bytes = 0;              ///< payload bytes of those objects
  // reading
  std::uint64_t misses = 0;          ///< accesses that had to fetch the object from its agent
  std::uint64_t misses_by_slot = 0;  ///< of `misses`: the address was unknown or stale, so the agent looked the slot up
  std::uint64_t ghost_hits = 0;      ///< of `misses`: the object had left a short while before, unused
  std::uint64_t failed_misses = 0;   ///< of `misses`: those that ended in an error
  std::uint64_t waits_for_fetch = 0;    ///< accesses that waited for another thread's fetch of the same object
  std::uint64_t fetched_bytes = 0;      ///< bytes read from agents
  std::uint64_t touches = 0;            ///< accesses to cold objects that were still in the cache
  std::uint64_t prefetches = 0;         ///< fetches posted by fm::prefetch
  std::uint64_t elastic_installs = 0;   ///< neighbours that were installed along with a missed object
  std::uint64_t elastic_touches = 0;    ///< of `elastic_installs`: used later
  std::uint64_t elastic_untouched = 0;  ///< of `elastic_installs`: evicted without being used
  // eviction and write-back
  std::uint64_t segments_cooled = 0,       ///< segments whose objects were made cold
      segments_released = 0;               ///< segments that eviction emptied and returned to the free list
  std::uint64_t dropped_objects = 0;       ///< objects evicted: their frames are gone, their home copies are current
  std::uint64_t written_objects = 0,       ///< dirty objects copied into write-back batches
      written_bytes = 0;                   ///< bytes of those copies
  std::uint64_t acknowledged_objects = 0;  ///< of `written_objects`: the agent acknowledged the copy
  std::uint64_t cancelled_drops = 0;       ///< objects that stayed because they were touched during write-back
  std::uint64_t write_failures = 0;        ///< objects whose write-back failed; they stay dirty and resident
  std::uint64_t relocations = 0;           ///< objects that moved on instead of leaving, because they were used again
  std::uint64_t stragglers = 0,            ///< objects touched again that kept a segment from being released
      pauses = 0,                          ///< attempts of eviction to stop all threads, to move stragglers
      pauses_abandoned = 0;                ///< of `pauses`: not all threads stopped in time
  // gauges
  std::uint64_t cache_bytes = 0,           ///< size of the cache, whole segments
      cache_used_bytes = 0;                ///< bytes of the segments that are not free
  std::uint32_t segments_free = 0,         ///< segments that nothing uses
      segments_filled = 0,                 ///< segments that are full and wait to be cooled
      segments_trial = 0,                  ///< segments of fetched objects that are to be used again, or leave
      segments_active = 0,                 ///< segments of objects that were made, or used again
      segments_writing = 0;                ///< segments that wait for acknowledgements or for sections to end
  std::uint64_t hit_bytes = 0;             ///< bytes of the heap indirection table (HIT) in memory
  std::uint64_t hit_pages_given_back = 0,  ///< pages of the HIT that were given back to the operating system
      hit_pages_opened_again = 0;          ///< given back pages that were needed again
  std::uint64_t hit_words_aside = 0;       ///< resident objects whose page of the HIT is given back, 16 bytes each
  std::uint64_t cache_memory_bytes = 0,    ///< of `cache_bytes`: those of segments that have memory, free ones included
      hit_record_bytes = 0,             ///< bytes of the records of the HIT's pages, and of the bits of young objects
      handle_bytes = 0,                 ///< bytes of the cells that handles point to. All heaps of the process together
      book_bytes = 0,                   ///< bytes of the cache's books: of segments, of ghosts, of words aside
      buffer_bytes = 0;                 ///< bytes of write-back batches and of the buffers that they are sent from
  std::uint64_t stalls_for_memory = 0;  ///< times that a thread waited for memory
  std::uint64_t waits_expired = 0;      ///< waits for memory, or for another thread's fetch, that their deadline ended
  std::uint64_t batches = 0,            ///< write-back batches sent
      batches_resent = 0,               ///< of `batches`: sent again after a broken connection
      reconnects = 0,                   ///< connections to agents that were made again
      regions = 0,                      ///< gauge: regions of the agents that this heap knows
      regions_retired = 0;              ///< regions that the agents took back
  std::uint32_t agents_lost = 0;        ///< agents that are lost
  std::uint64_t tablets_rehomed = 0;    ///< tablets, of 65,536 slots each, that got another agent after a loss
  std::uint64_t tablets_promoted = 0;   ///< those of them that a backup took over, with all objects
  std::uint32_t agents_left = 0;        ///< agents that were removed, or asked to be left
  std::uint64_t tablets_handed_over = 0;     ///< tablets that another agent serves, while the one that did lives
  std::uint64_t tablets_moved_for_load = 0;  ///< of `tablets_handed_over`: because that agent was overloaded
  std::uint64_t tablets_degraded = 0;    ///< gauge: tablets that fewer agents store than heap_options::replicas says
  std::uint64_t tablets_replicated = 0,  ///< tablets that got a new member of their replica set
      replicated_objects = 0,            ///< objects that were copied for that
      replicated_bytes = 0;              ///< bytes of these objects
  std::uint64_t lost_objects = 0;        ///< gauge: objects that a lost agent took along, until a collection frees them
  std::uint64_t threads = 0,             ///< threads that have used the heap and have not ended
      thread_bytes = 0,       ///< bytes that threads have for themselves: unused frames and slots, buffers, records
      leases_taken_back = 0;  ///< times that such memory of a thread that did not use it went back to the heap
  std::uint64_t bytes_bounced = 0;  ///< bytes copied between registered and other memory for an RDMA device; 0 is best
  // collection
  std::uint64_t collections = 0,              ///< full collections that have ended
      collections_failed = 0;                 ///< of `collections`: those that were given up
  std::uint64_t collected_objects = 0,        ///< objects that full collections freed
      collected_bytes = 0;                    ///< bytes of home copies that full collections freed
  std::uint64_t evacuated_objects = 0,        ///< objects that agents moved after collections, as far as they reported
      evacuated_bytes = 0;                    ///< bytes of `evacuated_objects`
  std::uint64_t emptied_regions = 0;          ///< regions that evacuation emptied
  std::uint64_t young_collections = 0,        ///< collections of young objects that have ended
      young_collections_failed = 0;           ///< of `young_collections`: those that were given up
  std::uint64_t young_collected_objects = 0,  ///< objects that they freed, none of which was ever written back
      young_collected_bytes = 0;  ///< bytes that the home copies of `young_collected_objects` would have had
  cycle_report last_cycle,        ///< report of the last full collection
      last_young;                 ///< report of the last collection of young objects
  histogram_snapshot pause_ns;    ///< pauses of collections that stopped all threads, ns
  histogram_snapshot miss_ns;     ///< misses, ns: from the failed test of the word to the usable object
  histogram_snapshot stall_ns;    ///< waits for memory, ns
  /// Waits of threads for pauses to end, ns; one sample a wait. All heaps of the process together.
  histogram_snapshot gate_ns;
  /// Calls that may wait which were made in scopes that had shown more than 64 objects: such scopes are not left while
  /// they wait, so others wait for them as for any open scope. All heaps of the process together, since it began.
  std::uint64_t blocked_in_scopes = 0;
  /// The last pauses of the process since the heap was opened, at most 4096, in order. Pauses of collections and of
  /// eviction, abandoned ones included: whatever kept threads from beginning to use objects.
  std::vector<pause_record> recent_pauses;
  time_point observed_from,  ///< begin of the time in which `recent_pauses` are all pauses that happened
      observed_until;        ///< end of that time: when stats() was called

  /// Objects by type, most bytes first; empty unless detail_level::types was asked for. An object is counted at most
  /// once: by its agent if it has a home copy, else by its frame. Unreachable objects count until a collection frees
  /// them. While other threads use the heap, an object that is made, freed or first written back during the call may be
  /// missed.
  std::vector<type_stats> types;
  /// Agents that were lost or did not answer. Of their objects, only resident ones are counted.
  std::uint32_t agents_not_counted = 0;

  /// Bounded mutator utilisation: the least share of time, in [0, 1], that pauses left to threads in any observed
  /// stretch of at least `window`. Covers pauses, not misses or eviction. See fm::bounded_utilisation.
  [[nodiscard]] double bmu(duration window) const {
    return bounded_utilisation(recent_pauses, observed_from, observed_until, window);
  }
  /// All memory of this node that is named here, in bytes. What threads have for themselves is a part of the cache and of
  /// the HIT, but for less than 1 KiB each.
  [[nodiscard]] std::uint64_t named_bytes() const noexcept {
    return cache_memory_bytes + hit_bytes + hit_record_bytes + handle_bytes + book_bytes + buffer_bytes;
  }
  /// The counters as several lines of text.
  [[nodiscard]] std::string text() const;
};

/// Result of fm::heap::verify.
struct verify_report {
  std::uint64_t frames = 0,           ///< frames in the cache that hold their slot's object
      resident = 0,                   ///< words of the HIT that name a frame
      remote = 0,                     ///< words of the HIT that name an address on an agent
      unknown = 0,                    ///< words of the HIT that name nothing, while the agent stores the object
      entries = 0;                    ///< entries that agents store
  std::uint64_t agent_objects = 0,    ///< objects that agents store
      agent_live_bytes = 0,           ///< bytes of the current copies on agents
      agent_garbage_bytes = 0,        ///< bytes on agents of copies that are no longer current
      agent_metadata_bytes = 0;       ///< bytes of the agents' own records
  std::uint64_t faults = 0;           ///< contradictions found
  std::vector<std::string> messages;  ///< the first faults, in words
  /// Whether no fault was found.
  [[nodiscard]] bool ok() const noexcept { return faults == 0; }
};

}  // namespace fm
