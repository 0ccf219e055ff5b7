// How a program steers a collection, and the report that it gets: evacuation options, the parts of a cycle, its cost.
#pragma once

#include <cstdint>
#include <farmem/error.h>
#include <farmem/units.h>
#include <string>
#include <vector>

namespace fm {

/// In which order an evacuation lays objects down in an agent's memory. `address` empties one region after the other; the other
/// two follow references, so that what is reached together lies together and comes with one fetch (Semeru, section 4).
enum class evacuation_order : std::uint32_t { address = 0, depth_first = 1, breadth_first = 2 };

/// What agents move after each collection, beside the program.
struct evacuation_options {
  evacuation_order order = evacuation_order::address;
  double below_live_ratio = 0.5;  ///< regions with a lower share of live bytes; 1: all that are full, 0: none
};

/// What one collection evacuates.
enum class evacuate {
  sparse,  ///< as the heap's options say
  all,     ///< every region that is full, in the order that the options say
};

/// What a collection is of.
enum class generation : std::uint8_t {
  all,
  young,  ///< objects that were never written home, and that nothing which was refers to: no agent takes part
};

/// One agent's part in a cycle.
struct cycle_part {
  std::string agent;
  std::uint64_t marked = 0;         ///< objects
  std::uint64_t scanned_bytes = 0;  ///< of home copies
  std::uint64_t tracing_ns = 0;     ///< CPU time
  std::uint64_t ghosts =
      0;  ///< references that it met and left to the owner: to other agents' objects, and to newer ones
  std::uint64_t ghosts_sent =
      0;  ///< references to other agents' objects that it sent to those agents (collector_options::agents_talk)
  std::uint32_t peers_lost =
      0;  ///< agents that it could not, or could no longer, reach for that: through the owner, then
  std::uint64_t freed_objects = 0, freed_bytes = 0;        ///< home copies that nothing names any more
  std::uint64_t objects = 0, live_bytes = 0, regions = 0;  ///< after the sweep
  // evacuation
  evacuation_order order =
      evacuation_order::address;  ///< that was followed: address where room was too short for another
  std::uint64_t evacuated_objects = 0, evacuated_bytes = 0;
  std::uint64_t sparse_regions = 0, emptied_regions = 0;  ///< that were worth it / of them, without objects now
  std::uint64_t evacuation_ns = 0;                        ///< CPU time
  bool left_behind = false;                               ///< for want of room
  errc evacuation = errc::ok;  ///< anything else: how it went on is not known; cancelled: another cycle was wanted
};

/// What one collection did. Times in ns.
struct cycle_report {
  std::uint64_t number = 0;  ///< 0: there was none; collections of young objects are counted by themselves
  generation of = generation::all;
  std::string cause;
  errc status = errc::ok;  ///< anything else: given up, and `failure` says why; `freed` is what was proven dead before
  std::string failure;
  std::uint64_t total_ns = 0, scan_ns = 0, mark_ns = 0, sweep_ns = 0, evacuate_ns = 0;
  std::uint64_t paced_ns = 0;  ///< of them slept away, to leave the program its cores (heap_options::collect_share)
  std::uint64_t snapshot_pause_ns = 0, final_pause_ns = 0;  ///< of those that succeeded
  std::uint32_t pauses = 0, pauses_abandoned = 0;
  std::uint64_t waves = 0;  ///< rounds of messages to all agents while they marked
  std::uint64_t roots = 0;
  std::uint64_t newer = 0,
                traced_here =
                    0;  ///< frames that may be newer than home copies (or young ones) / of them, reached and traced
  std::uint64_t overwritten = 0;  ///< slots from the threads' logs
  std::uint64_t marked = 0, dead = 0;
  std::uint64_t freed = 0;  ///< of the dead; the others were being written or fetched, and stay for the next cycle
  std::uint64_t freed_bytes =
      0;  ///< of young ones, as their home copies would have had; of a whole cycle see the agents' parts
  std::uint64_t weak_cleared = 0;
  std::uint64_t cpu_ns = 0;  ///< CPU time of the collector's thread; the agents' is in their parts
  std::vector<cycle_part> agents;
  std::uint64_t faults = 0;  ///< contradictions found with heap_options::verify_cycles; then status is corrupt
  std::vector<std::string> fault_texts;  ///< the first of them

  [[nodiscard]] bool ok() const noexcept { return status == errc::ok && number != 0; }
  /// One line for people.
  [[nodiscard]] std::string text() const;
};

}  // namespace fm
