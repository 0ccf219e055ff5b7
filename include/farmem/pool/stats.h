// Statistics of a pool: of this process and of its agents, and the results of compaction and verification. fm::pool and
// the agents fill them in; application code reads them.
// Invariant: counters only grow while the pool is open. docs/reference/metrics.md lists the same fields in tables; a
// test compares them.
#pragma once

#include <cstdint>
#include <farmem/base/histogram.h>
#include <farmem/base/units.h>
#include <farmem/pool/options.h>
#include <string>
#include <vector>

namespace fm {

/// Statistics of one size class on one agent.
struct pool_class_stats {
  std::uint32_t slot_bytes = 0;                   ///< bytes of a slot, header included
  std::uint32_t block_bytes = 0;                  ///< bytes of a block
  pool_identity identity = pool_identity::birth;  ///< identity in use, after pool_options::fallback
  bool compacted = true;                          ///< whether blocks of the class may be merged
  std::uint64_t blocks = 0;                       ///< blocks with memory
  std::uint64_t slots = 0;                        ///< slots of those blocks
  std::uint64_t objects = 0;                      ///< objects in them
  std::uint64_t payload_bytes = 0;                ///< bytes of those objects, without headers
  std::uint64_t aliases = 0;                      ///< virtual blocks beyond one for each block, left behind by merges
  std::uint64_t merges_tried = 0;                 ///< pairs of blocks that compaction looked at
  std::uint64_t merges_made = 0;                  ///< of `merges_tried`: merged
  std::uint64_t merges_in_conflict = 0;  ///< of `merges_tried`: not merged, because both had the same id or slot
  std::uint64_t ids_in_conflict = 0;     ///< ids or slots that such pairs had in common
  std::uint64_t objects_moved = 0;       ///< objects that merges copied to the other block
  std::uint64_t slots_kept = 0;          ///< of `objects_moved`: those that kept their slot number

  /// Share of slots that are free, in [0, 1]; 0 without slots. O(1).
  [[nodiscard]] double fragmentation() const noexcept {
    return slots == 0 ? 0.0 : 1.0 - double(objects) / double(slots);
  }
};

/// Statistics of a pool on one agent. Counters cover all clients since the pool was made.
struct pool_agent_stats {
  std::string url;         ///< URL of the agent; of a part with replicas: of its primary
  std::string backup;      ///< of a part with replicas: URL of the agent that has a copy; empty: none has one now
  std::uint64_t term = 0;  ///< of a part with replicas: how often its agents have changed, from 1
  std::uint64_t quota_bytes = 0;  ///< most bytes of regions that the pool may take from the agent
  std::uint64_t frame_bytes = 0;  ///< bytes of blocks and of the table: the pool's active memory
  std::uint64_t waiting_bytes =
      0;                          ///< of `frame_bytes`: emptied blocks that wait until all clients have passed an epoch
  std::uint64_t books_bytes = 0;  ///< bytes of the agent's records of blocks and objects, beyond `frame_bytes`
  std::uint64_t region_bytes = 0;         ///< bytes of the regions taken from the agent
  std::uint64_t epoch = 0;                ///< current epoch of the pool
  std::uint64_t vblocks = 0,              ///< virtual blocks in use
      vblocks_reused = 0,                 ///< times that a virtual block was used again
      vblocks_retired = 0;                ///< virtual blocks that cannot be used again: their generations are used up
  std::uint64_t allocations = 0,          ///< objects allocated
      frees = 0,                          ///< objects freed
      writes = 0,                         ///< objects written
      reads = 0,                          ///< reads that the agent answered
      releases = 0;                       ///< pointers released
  std::uint64_t expiring = 0;             ///< objects that are there and expire; 0 if the agent is older than that
  std::uint64_t expired = 0;              ///< of `frees`: objects that were freed because they had expired
  std::uint64_t compaction_steps = 0;     ///< steps of compaction made
  std::uint64_t longest_step_ns = 0;      ///< longest step of compaction, ns
  std::uint32_t clients = 0,              ///< clients that have the pool open
      clients_fenced = 0;                 ///< clients whose lease ran out
  std::vector<pool_class_stats> classes;  ///< size classes that have blocks, or had merges
};

/// Statistics of fm::pool. Counters since this process opened the pool.
struct pool_stats {
  // ---- of this process ----
  std::uint64_t direct_reads = 0;     ///< reads answered by one one-sided read, where the pointer said
  std::uint64_t corrected_reads = 0;  ///< reads answered one-sidedly at another place; the pointer was corrected
  std::uint64_t scans = 0;            ///< calls of pool::scan_read
  std::uint64_t rpc_reads = 0;        ///< reads that the agent answered, corrections included
  std::uint64_t torn = 0;             ///< one-sided reads that met a change and were repeated
  std::uint64_t moved = 0;            ///< one-sided reads of a place where the object no longer is
  std::uint64_t words_refreshed = 0;  ///< words of the table that were read again, one at a time
  std::uint64_t chunks_read = 0;      ///< chunks of the table that were read, 512 words each
  std::uint64_t discarded = 0;        ///< one-sided reads that were discarded, because the lease ended before they did
  std::uint64_t reconnects = 0;       ///< connections that were made again
  std::uint64_t epochs_passed = 0;    ///< epochs that this process has passed and reported to an agent
  std::uint64_t stalls = 0;           ///< reads that needed a correction and took longer than 1 ms
  histogram_snapshot corrections;     ///< durations of the reads that needed a correction, ns

  std::vector<pool_agent_stats> agents;  ///< one entry for each agent
};

/// Result of pool::compact, over all agents.
struct pool_compaction {
  std::uint64_t merges_tried = 0;    ///< pairs of blocks that were looked at
  std::uint64_t merges_made = 0;     ///< pairs of blocks that were merged
  std::uint64_t objects_moved = 0;   ///< objects that were copied
  std::uint64_t bytes_returned = 0;  ///< bytes of blocks that became free
};

/// Result of pool::verify, over all agents.
struct pool_report {
  std::uint64_t objects = 0;        ///< objects found
  std::uint64_t payload_bytes = 0;  ///< bytes of those objects, without headers
  std::uint64_t faults = 0;         ///< contradictions found
  std::string text;                 ///< the first faults, one a line
  /// Whether no fault was found.
  [[nodiscard]] bool ok() const noexcept { return faults == 0; }
};

}  // namespace fm
