// How a program steers a collection (evacuation options), and the report that it gets of one: what was found, freed and
// moved, and what it cost. The collector fills reports in; application code reads them.
// Invariant: a report never changes once collect() has returned it. docs/reference/metrics.md lists its fields; a test
// compares them.
#pragma once

#include <cstdint>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <string>
#include <vector>

namespace fm {

/// The order in which an evacuation copies objects in an agent's memory. The last two follow references, so that
/// objects that are reached together lie together and come with one fetch (Semeru, section 4).
enum class evacuation_order : std::uint32_t {
  address = 0,       ///< one region after the other
  depth_first = 1,   ///< along references, depth first
  breadth_first = 2  ///< along references, breadth first
};

/// Evacuation after each collection: agents move objects while the program runs.
struct evacuation_options {
  evacuation_order order = evacuation_order::address;  ///< order in which objects are copied
  double below_live_ratio = 0.5;  ///< regions with a lower share of live bytes, in [0, 1]; 1: all full ones, 0: none
};

/// The regions that one collection evacuates.
enum class evacuate {
  sparse,  ///< as heap_options::evacuation says
  all,     ///< every full region, in the order that heap_options::evacuation says
};

/// The objects that a collection is about.
enum class generation : std::uint8_t {
  all,    ///< all objects; the agents take part
  young,  ///< objects that were never written back and that no written back object refers to; no agent takes part
};

/// One agent's part in a collection.
struct cycle_part {
  std::string agent;                ///< URL of the agent
  std::uint64_t marked = 0;         ///< objects that it marked
  std::uint64_t scanned_bytes = 0;  ///< bytes of home copies that it scanned
  std::uint64_t tracing_ns = 0;     ///< CPU time of its tracing, ns
  /// References that it left to the owner: to objects of other agents, and to objects that the owner traces because
  /// their frames are dirty.
  std::uint64_t remote_references = 0;
  std::uint64_t references_sent = 0;  ///< references to other agents' objects that it sent to those agents directly
  std::uint32_t peers_lost = 0;     ///< agents that it could not reach, so that those references went through the owner
  std::uint64_t freed_objects = 0,  ///< home copies that it freed
      freed_bytes = 0;              ///< bytes of those home copies
  std::uint64_t objects = 0,        ///< objects that it stored after the sweep
      live_bytes = 0,               ///< bytes of those objects
      regions = 0;                  ///< regions of the heap on it after the sweep
  // evacuation
  /// Order that was followed: address if there was too little room for another.
  evacuation_order order = evacuation_order::address;
  std::uint64_t evacuated_objects = 0,  ///< objects that it moved
      evacuated_bytes = 0;              ///< bytes of those objects
  std::uint64_t sparse_regions = 0,     ///< regions chosen for evacuation
      emptied_regions = 0;              ///< of those: without objects now
  std::uint64_t evacuation_ns = 0;      ///< CPU time of its evacuation, ns
  bool left_behind = false;             ///< objects stayed in chosen regions for want of room
  errc evacuation = errc::ok;  ///< result of the evacuation; cancelled: another cycle was wanted; else: outcome unknown
};

/// Report of one collection. Times in ns.
struct cycle_report {
  std::uint64_t number = 0;         ///< of the collection, from 1; young ones are counted apart; 0: there was none
  generation of = generation::all;  ///< objects that it was about
  std::string cause;                ///< why it ran: "allocation", or the `why` of the call
  errc status = errc::ok;           ///< ok, or why it was given up; objects in `freed` were proven dead before
  std::string failure;              ///< text of the error; empty if status is ok
  std::uint64_t total_ns = 0,       ///< duration of all phases
      scan_ns = 0,                  ///< duration of finding roots and dirty frames
      mark_ns = 0,                  ///< duration of marking
      sweep_ns = 0,                 ///< duration of freeing
      evacuate_ns = 0;              ///< duration of evacuation
  std::uint64_t paced_ns = 0;  ///< of `total_ns`: slept, to leave the program its cores (heap_options::collect_share)
  std::uint64_t snapshot_pause_ns = 0,   ///< the pause that took the snapshot
      final_pause_ns = 0;                ///< the pause that ended marking
  std::uint32_t pauses = 0,              ///< attempts at pauses
      pauses_abandoned = 0;              ///< of `pauses`: not all threads stopped in time
  std::uint64_t termination_rounds = 0;  ///< messages to all agents while they marked
  std::uint64_t roots = 0;               ///< roots
  std::uint64_t dirty = 0,        ///< frames that may differ from their home copies; for young ones: young frames
      traced_here = 0;            ///< of `dirty`: reached, and traced by the owner
  std::uint64_t overwritten = 0;  ///< overwritten references in the threads' logs
  std::uint64_t marked = 0,       ///< objects found alive
      dead = 0;                   ///< objects found dead
  std::uint64_t freed = 0;  ///< of `dead`: freed; the others were being written or fetched and wait for another cycle
  std::uint64_t freed_bytes = 0;   ///< bytes freed by a young collection, as home copies; else see cycle_part
  std::uint64_t weak_cleared = 0;  ///< dead objects that weak handles or notices named
  std::uint64_t cpu_ns = 0;        ///< CPU time of the collector's thread; that of agents is in their parts
  std::vector<cycle_part> agents;  ///< one part for each agent; empty for young collections
  std::uint64_t faults = 0;        ///< contradictions found with heap_options::verify_cycles; status is corrupt then
  std::vector<std::string> fault_texts;  ///< the first faults, in words

  /// Whether the collection ran and was not given up.
  [[nodiscard]] bool ok() const noexcept { return status == errc::ok && number != 0; }
  /// The report as one line of text.
  [[nodiscard]] std::string text() const;
};

}  // namespace fm
