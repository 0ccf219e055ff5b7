// fm::paged_stats: counters and gauges of a paged range. The range fills them in; application code reads them.
// Invariant: counters only grow while the range lives. docs/reference/metrics.md lists the same fields in a table; a
// test compares them.
#pragma once

#include <array>
#include <farmem/base/histogram.h>
#include <farmem/base/units.h>
#include <string>

namespace fm {

/// Counters since the range was opened, and gauges of the present. Each value is exact, but they are not taken at one
/// moment.
struct paged_stats {
  static constexpr std::size_t orders = 10;  ///< number of block sizes: `4 KiB << 0` to `4 KiB << 9`

  std::uint64_t faults = 0;         ///< accesses that were served, of all kinds below
  std::uint64_t faults_remote = 0;  ///< of `faults`: the block was fetched from an agent
  std::uint64_t faults_new = 0;     ///< of `faults`: the block was never written, so it was filled with zeros
  std::uint64_t faults_write = 0;   ///< of `faults`: first write to a block that had only been read
  std::uint64_t faults_near =
      0;  ///< of `faults`: the block was in local memory but not mapped (read ahead, or sampled)
  std::uint64_t hits_inactive =
      0;  ///< inactive blocks that were touched before eviction and entered the proactive queue
  std::uint64_t hits_writing = 0;  ///< the same while the block was being written back; the write was wasted
  std::uint64_t waits = 0;         ///< accesses that waited for another access to the same block
  std::uint64_t failed = 0;        ///< accesses that failed, each time before paged_options::on_failure was asked

  std::uint64_t fetched_bytes = 0;     ///< bytes read from agents
  std::uint64_t written_bytes = 0;     ///< bytes written to agents and acknowledged
  std::uint64_t write_failures = 0;    ///< write-backs that failed and must be repeated
  std::uint64_t writes_cancelled = 0;  ///< write-backs that succeeded for blocks that were touched meanwhile
  std::uint64_t dropped_blocks = 0;    ///< clean blocks evicted without a write
  std::uint64_t waits_for_room = 0;    ///< accesses that had to evict before they could be served
  std::uint64_t promoted = 0;          ///< blocks that entered the proactive queue at random when they were filled

  std::uint64_t stretched = 0;  ///< blocks that will be fetched together with their buddies
  std::uint64_t reduced = 0;    ///< blocks that will be fetched as single pages, because at most half of each was used
  std::array<std::uint64_t, orders>
      beside_pages{};  ///< pages that came along with a requested one, by the size of their block
  std::array<std::uint64_t, orders> sampled_pages{},  ///< such pages of sampled blocks that were evicted
      sampled_used{};                                 ///< of `sampled_pages`: used
  std::uint64_t ahead_pages = 0;                      ///< pages read ahead of a sequential access
  std::uint64_t ahead_sampled = 0,                    ///< sampled blocks among them, one in each window
      ahead_used = 0;                                 ///< of `ahead_sampled`: used
  std::uint64_t ahead_bytes = 0;                      ///< bytes read ahead, also because the program asked for them
  std::array<std::uint64_t, orders>
      filled_blocks{};  ///< blocks filled since the range was opened, by size `4 KiB << i`
  std::array<std::uint64_t, orders> resident_blocks{};  ///< blocks resident now, by size; only stats(true) counts them

  std::uint64_t capacity_bytes = 0;    ///< gauge: size of the range
  std::uint64_t local_bytes = 0;       ///< gauge: limit of local memory
  std::uint64_t local_used_bytes = 0;  ///< gauge: bytes resident or being fetched
  std::uint64_t active_bytes = 0,      ///< gauge: bytes in the active queue, approximate
      proactive_bytes = 0,             ///< gauge: bytes in the proactive queue, approximate
      inactive_bytes = 0;              ///< gauge: bytes in the inactive queue, approximate
  std::uint64_t regions = 0;           ///< gauge: regions of the agents in use
  std::uint64_t agents_up = 0;         ///< gauge: agents that are connected
  std::uint64_t agents_lost = 0;       ///< agents that were given up
  std::uint64_t degraded_bytes = 0;  ///< gauge: of the range, that fewer agents store than paged_options::replicas says
  std::uint64_t surplus_bytes = 0;   ///< gauge: of the range, that more agents store, after paged::set_replicas
  std::uint64_t mended_bytes = 0;    ///< bytes copied from agent to agent: after a loss, to empty one, to even them out
  std::uint64_t lost_pages = 0;      ///< pages that no agent had any more when theirs were lost
  std::uint64_t reconnects = 0;      ///< connections to agents that were made again
  histogram_snapshot fault_ns;       ///< durations of served faults, ns: from arrival at the library to the end

  /// Share, in [0, 1], of the pages fetched beside the requested ones that were used, estimated by samples. A sample
  /// speaks for the pages of its kind: those of blocks of one size, or those read ahead. A kind without samples does
  /// not count. 1 without samples. O(1).
  [[nodiscard]] double prefetch_accuracy() const;
  /// The counters as several lines of text.
  [[nodiscard]] std::string text() const;
};

}  // namespace fm
