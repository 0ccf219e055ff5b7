// What a heap is opened with.
#pragma once

#include <farmem/collect.h>
#include <farmem/units.h>
#include <string>
#include <vector>

namespace fm {

/// Options of fm::heap. Every field has a default that works on any machine.
struct heap_options {
  std::uint64_t cache = 256ull << 20;  ///< local memory for objects, bytes; at least 8 segments
  std::vector<std::string> agents = {
      "local:"};                             ///< `local:`, `shm://PATH`, `tcp://HOST:PORT`; objects are spread over all
  std::uint64_t local_memory = 1ull << 30;   ///< bytes of the agent inside this process, for `local:`
  std::uint64_t local_region = 16ull << 20;  ///< its region size, bytes, a power of two
  std::string name;                          ///< for the agents' logs and status; default: the program's name
  std::uint64_t quota = 0;                   ///< bytes wanted on each agent; 0: what the agent gives
  std::uint64_t segment = 0;                 ///< bytes, a power of two; 0: 1 MiB, less for small caches
  std::uint64_t slots = 0;                   ///< slot range of the process, decided by its first heap; 0: 2^40
  std::uint64_t hit = 0;             ///< bytes of the HIT (8 a slot) to hold in memory; 0: all. Pages over it that
                                     ///< name few near objects are given back and ask the agents when needed again
  std::uint32_t hit_residents = 64;  ///< near objects (of 512) up to which a page of the HIT may be given back
  bool collect = true;               ///< start collections when enough was allocated; heap::collect works without
  /// Bytes allocated between collections, those not counted that died young; 0: as much as is live and at least half of the
  /// cache, within what the agents have.
  std::uint64_t collect_every = 0;
  /// In between, when an eighth of the cache was allocated, and less than half of it is free or what was allocated is of 1 KiB
  /// and more on average, collect young objects here, without the agents: those that were never written home, and that nothing
  /// which was refers to. They die without having gone anywhere. With `collect`; not held to `collect_share`.
  bool collect_young = true;
  /// Begin the next collection when the last one has ended and 1 MiB was allocated since, or after a second: garbage is found
  /// soonest, and agents trace all the time (Semeru, section 4). With `collect`.
  bool collect_continuously = false;
  double collect_share =
      0.1;  ///< of a core, that a collection takes from the program while nothing waits for it; 1: all it can
  bool verify_cycles =
      false;  ///< verify both sides before, within and after every collection, beside the program; slow,
              ///< for tests and debugging. What it finds is logged and in cycle_report::faults
  /// While they trace, agents tell each other of references to each other's objects. Where they cannot reach each other, or one is too
  /// old, or does not want to (its setting `peers`), and with false, that goes through this process.
  bool agents_talk = true;
  evacuation_options evacuation;  ///< what the agents move after each collection, and in which order they lay it down
  double promote_probability = 0.1;                   ///< dcm's epsilon
  bool elastic = true;                                ///< fetch neighbours where that pays
  bool background_evictor = true;                     ///< evict ahead of need, on a thread of its own
  duration access_within = std::chrono::seconds(10);  ///< a miss takes at most this, then timed_out or agent_lost
  duration memory_within = std::chrono::seconds(5);   ///< an allocation waits at most this for memory, then cache_full
  duration reconnect_within = std::chrono::seconds(5);  ///< a broken connection is retried so long, then agent_lost
  duration connect_within = std::chrono::seconds(5);    ///< opening fails after this
  /// `verbs://`: let the device look pages of the cache up when it needs them, instead of locking them in memory. Where it cannot,
  /// there is a warning that names it, and they are locked.
  bool on_demand_paging = false;
};

}  // namespace fm
