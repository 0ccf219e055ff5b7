// What a paged range tells about itself.
#pragma once

#include <array>
#include <farmem/histogram.h>
#include <farmem/units.h>
#include <string>

namespace fm {

/// Counters since the range was opened, and gauges of the moment. Not one consistent moment, but each is true.
struct paged_stats {
  static constexpr std::size_t orders = 10;  ///< 4 KiB << 0 to 9

  std::uint64_t faults = 0;         ///< accesses that were served, of all kinds below
  std::uint64_t faults_away = 0;    ///< fetched from an agent
  std::uint64_t faults_new = 0;     ///< never written before: zeroes, without asking anybody
  std::uint64_t faults_write = 0;   ///< first write to a block that was only read
  std::uint64_t faults_near = 0;    ///< in local memory and not mapped: read ahead, or sampled
  std::uint64_t hits_inactive = 0;  ///< touched again before eviction: went to the proactive queue
  std::uint64_t hits_writing = 0;   ///< the same while it was being written back: that was in vain
  std::uint64_t waits = 0;          ///< accesses that waited for another one's fetch
  std::uint64_t failed = 0;         ///< accesses that failed, before each decision what to do about it

  std::uint64_t fetched_bytes = 0;
  std::uint64_t written_bytes = 0;     ///< to agents, acknowledged
  std::uint64_t write_failures = 0;    ///< write-backs that must be repeated
  std::uint64_t writes_cancelled = 0;  ///< finished, but the block was touched meanwhile
  std::uint64_t dropped_blocks = 0;    ///< evicted without writing
  std::uint64_t waits_for_room = 0;    ///< accesses that had to evict before they could be served
  std::uint64_t promoted = 0;          ///< blocks that entered the proactive queue by luck

  std::uint64_t stretched = 0;  ///< blocks that will be fetched with their buddies
  std::uint64_t reduced = 0;    ///< blocks of which half or less was used, that will be fetched as single pages
  /// Pages that came along with one that was asked for, of the blocks that were sampled, and how many of these were used.
  std::uint64_t sampled_pages = 0, sampled_used = 0;
  /// Sampled blocks that were read ahead, and how many of these were used.
  std::uint64_t ahead_sampled = 0, ahead_used = 0;
  std::uint64_t ahead_bytes = 0;                        ///< read ahead
  std::array<std::uint64_t, orders> filled_blocks{};    ///< by size, 4 KiB << i: since the range was opened
  std::array<std::uint64_t, orders> resident_blocks{};  ///< by size: now; only stats(true) counts them

  std::uint64_t capacity_bytes = 0;
  std::uint64_t local_bytes = 0;                                            ///< the limit
  std::uint64_t local_used_bytes = 0;                                       ///< resident or being fetched
  std::uint64_t active_bytes = 0, proactive_bytes = 0, inactive_bytes = 0;  ///< of the queues, about
  std::uint64_t regions = 0;                                                ///< of the agents, in use
  std::uint64_t agents_up = 0;                                              ///< agents whose connection stands
  std::uint64_t reconnects = 0;
  histogram_snapshot fault_ns;  ///< from the fault's arrival at the library to its end

  /// Of what was fetched beside the pages asked for, by the samples: the share that was used. 1 when there are none.
  [[nodiscard]] double prefetch_accuracy() const {
    const std::uint64_t all = sampled_pages + ahead_sampled;
    return all == 0 ? 1.0 : double(sampled_used + ahead_used) / double(all);
  }
  /// A few lines for people.
  [[nodiscard]] std::string text() const;
};

}  // namespace fm
