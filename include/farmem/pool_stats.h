// What a pool tells about itself.
#pragma once

#include <cstdint>
#include <farmem/histogram.h>
#include <farmem/pool_options.h>
#include <farmem/units.h>
#include <string>
#include <vector>

namespace fm {

/// One size class on one agent.
struct pool_class_stats {
  std::uint32_t slot_bytes = 0;
  std::uint32_t block_bytes = 0;
  pool_identity identity = pool_identity::birth;  ///< as it came out, after pool_options::fallback
  bool compacted = true;                          ///< its blocks may be merged
  std::uint64_t blocks = 0;
  std::uint64_t slots = 0;
  std::uint64_t objects = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t aliases = 0;  ///< virtual blocks beyond one for each block: what merges have left
  std::uint64_t merges_tried = 0;
  std::uint64_t merges_made = 0;
  std::uint64_t merges_in_conflict = 0;  ///< tried in vain, because both blocks had the same id, or slot
  std::uint64_t ids_in_conflict = 0;
  std::uint64_t objects_moved = 0;
  std::uint64_t slots_kept = 0;  ///< of those, how many have the same slot as before

  /// Share of slots that are free, 0 to 1.
  [[nodiscard]] double fragmentation() const noexcept {
    return slots == 0 ? 0.0 : 1.0 - double(objects) / double(slots);
  }
};

struct pool_agent_stats {
  std::string url;
  std::uint64_t quota_bytes = 0;
  std::uint64_t frame_bytes = 0;    ///< blocks and table: the pool's active memory
  std::uint64_t waiting_bytes = 0;  ///< of these: emptied, until all clients have passed the epoch
  std::uint64_t region_bytes = 0;   ///< taken from the agent for them
  std::uint64_t epoch = 0;
  std::uint64_t vblocks = 0, vblocks_reused = 0, vblocks_retired = 0;
  std::uint64_t allocations = 0, frees = 0, writes = 0, reads = 0, releases = 0;  ///< of all clients
  std::uint64_t compaction_steps = 0;
  std::uint64_t longest_step_ns = 0;
  std::uint32_t clients = 0, clients_fenced = 0;
  std::vector<pool_class_stats> classes;  ///< that have blocks, or had merges
};

struct pool_stats {
  // ---- of this process ----
  std::uint64_t direct_reads = 0;     ///< answered by one read where the pointer said
  std::uint64_t corrected_reads = 0;  ///< answered one-sidedly at another place; the pointer was corrected
  std::uint64_t scans = 0;            ///< scan_read
  std::uint64_t rpc_reads = 0;        ///< answered by the agent, corrections included
  std::uint64_t torn = 0;             ///< reads that met a change, and were repeated
  std::uint64_t moved = 0;            ///< reads that came to a place where the object is not
  std::uint64_t words_refreshed = 0;  ///< of the table, one at a time
  std::uint64_t chunks_read = 0;      ///< of the table, 512 words each
  std::uint64_t discarded = 0;        ///< reads that ended after the lease did
  std::uint64_t reconnects = 0;
  std::uint64_t epochs_passed = 0;
  std::uint64_t stalls = 0;        ///< reads that were not answered at once and took longer than 1 ms
  histogram_snapshot corrections;  ///< time of reads that were not answered at once, ns

  std::vector<pool_agent_stats> agents;
};

/// What pool::compact did, on all agents.
struct pool_compaction {
  std::uint64_t merges_tried = 0;
  std::uint64_t merges_made = 0;
  std::uint64_t objects_moved = 0;
  std::uint64_t bytes_returned = 0;
};

/// What pool::verify found.
struct pool_report {
  std::uint64_t objects = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t faults = 0;
  std::string text;  ///< the first faults, one a line
  [[nodiscard]] bool ok() const noexcept { return faults == 0; }
};

}  // namespace fm
