// Limits and tuning constants of paged ranges, with the reason beside each number; as base/limits.h, which has those of
// the other layers. The files of paged_core read them. Those of a range's agents are in homes/home_limits.h.
#pragma once

#include "paged/homes/home_limits.h"
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::detail::paged_limits {

/// Fetches that are under way at once ahead of a sequential stream.
constexpr std::size_t fetches_ahead = 4;
/// Blocks that one step of eviction looks at; cooling unmaps all of them by one system call.
constexpr std::size_t blocks_each_step = 16;
/// Blocks one after the other, beside the first, that make a stream.
constexpr std::uint64_t stream_run_min = 2;
/// A fault thread waits so long for an agent, or for another fault on the same block: some round trips, and a block of
/// 2 MiB at 20 Gbit/s. Then it parks the fault and serves others.
constexpr auto wait_in_place = std::chrono::milliseconds(1);
/// Faults that are parked at a time. Each is a thread of the program that sleeps; with more, the kernel keeps them
/// unread.
constexpr std::size_t parked_max = 256;
/// A parked fault that no answer will wake is tried again after so long; the longer it has waited, the later.
constexpr auto parked_again_after = std::chrono::milliseconds(2);
constexpr auto parked_again_at_last = std::chrono::milliseconds(20);
/// This part of the fetch slots stays free of all agents but one, so that silent ones do not have them all.
constexpr std::size_t fetch_reserve_share = 4;

/// The thread that reads ahead waits so long for an agent of which nothing comes: some blocks of 2 MiB at 1 Gbit/s. Then
/// it passes over that agent's blocks.
constexpr auto ahead_waits = std::chrono::milliseconds(100);

/// Stripes that could not be mended, or moved, are tried again after so long: an agent may have come back.
constexpr auto mend_again_after = std::chrono::milliseconds(50);
constexpr auto mend_again_at_last = std::chrono::seconds(1);
/// Stripes that are copied together: so that messages to agents overlap, and write-backs of few stripes wait.
constexpr std::size_t copies_most = 8;
constexpr std::size_t copies_bytes = 1u << 20;
/// The mender looks so often whether an agent has made a region.
constexpr auto region_again_after = std::chrono::milliseconds(1);
/// Old places that may still be read, of stripes that have moved: then the mender waits for the oldest.
constexpr std::size_t moved_away_most = 256;
/// While the program waits for pages, the mender takes this part of a core. It rests no longer than that at a time: an
/// agent was slow.
constexpr int mend_share = 4;
constexpr auto mend_pause_most = std::chrono::milliseconds(20);
/// From one look of the mender to the next, at least: what fails at once may wake it again at once.
constexpr auto mend_pause_least = std::chrono::milliseconds(1);
/// Agents are evened out until none has more than its share and this part of it.
constexpr std::uint64_t even_share = 16;
/// An agent that was slow has so much longer to copy stripes.
constexpr int slow_times = 4;
/// An agent that does not answer is asked so often, within suspect_within in all, before it is given up.
constexpr std::uint32_t silent_looks = 2;
/// While a member waits for its agent, it looks so often whether the range is being closed.
constexpr auto look_at_close = std::chrono::milliseconds(20);

/// Blocks of local memory, and slots: so that eviction, fetches and faults need not wait for each other one by one.
constexpr std::size_t blocks_least = 8;

}  // namespace fm::detail::paged_limits
