// The library's limits and tuning constants: maxima, thresholds and time-outs that somebody may want to find or to
// change, each with its reason. A value that a user may set stands in the options (farmem/options.h). One that a format
// fixes stands beside the format. The agent has limits of its own.
//
// Invariant: nothing here changes the result of a correct program. Every value may be changed, and then something takes
// longer, or needs more memory. Everything in the library may read it; each layer keeps to its section.
#pragma once

#include "base/mutation.h"
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::detail::limits {

// ---- base ----

/// Bytes that copy_bytes copies at once where addresses are alike: below the size that glibc calls large (2112 bytes).
constexpr std::size_t copy_piece = 2048;

// ---- table ----

/// Who waits for a pause spins so long before it gives its core away. Attempts usually take less: a thread that gives
/// its core away gets it back late, and the gate is closed all the while. Only attempts that were made longer because
/// shorter ones fail do that.
constexpr auto pause_spin = std::chrono::microseconds(250);

// ---- cache: segments (arena.cc, frames.cc) ----

/// A cache has at least so many segments: some for its queues, and some in reserve.
constexpr std::uint32_t segments_min = 8;
/// Address space beyond the capacity, so that runs for large objects are found although the memory is scattered.
constexpr std::uint64_t address_space_factor = 4;
/// Bytes of cache from which on it is kept in huge pages; below, a page more or less matters.
constexpr std::uint64_t huge_pages_from = 64ull << 20;
/// Released runs that are remembered for large objects: they are looked through one by one.
constexpr std::size_t free_runs_max = 64;

// ---- cache: slots and allocation (slots.cc, allocation.cc) ----

/// Slots that a thread takes at a time: some HIT pages. A simulated program is too short to come to the end of many.
constexpr std::uint64_t slots_per_run = simulated ? 1024 : 2048;
/// Tablets that an agent is asked for at a time: one message for 262,144 objects.
constexpr std::uint32_t tablets_per_grant = simulated ? 1 : 4;
/// Bytes that a thread allocates before the heap hears of them: the counter is shared by all threads.
constexpr std::uint64_t report_every = 256 << 10;
/// Collections that made no room before whoever waits gives up: the first may have begun before the wait.
constexpr std::uint32_t collections_in_vain_max = 2;

// ---- cache: misses (miss.cc, elastic.h, mutator.h) ----

/// Bytes of a home copy that comes with an answer by slot; a longer one is read in a second step.
constexpr std::uint32_t answer_bytes_max = 512 << 10;
/// An object that moves this often between two looks is a fault.
constexpr int hint_rounds_max = 64;
/// Fetches that a thread has in flight: one that it waits for, and 64 detached ones.
constexpr std::uint32_t fetches_max = 65;
/// Bytes of a region that share one learned window: a smaller part learns more slowly, a larger one mixes more walks.
constexpr std::uint32_t window_part_bytes = 64 << 10;
/// Bytes that a miss reads at most with its object: each thread has a buffer of that size.
constexpr std::uint32_t window_max = 32 << 10;

// ---- cache: eviction and write-back (evictor.cc, writeback.cc) ----

/// Frames that one step looks at, so that helping never stalls a thread for long.
constexpr std::uint32_t frames_per_step = 512;
/// Frames whose words are prefetched together.
constexpr std::uint32_t look_ahead = 16;
/// Bytes of the segment ahead of the walk that are prefetched: it has not been touched for long.
constexpr std::uint64_t prefetch_bytes = 1024;
/// Times that a segment is cooled in vain before a pause moves what is touched all the while.
constexpr std::uint32_t rounds_before_pause = 2;
/// After so many sweeps an open batch leaves though it is not full: segments wait for it.
constexpr std::uint32_t sweeps_per_batch = 8;
/// A pause for moving stragglers is given up after so long.
constexpr auto straggler_pause_within = std::chrono::microseconds(200);
/// No such pause for so many times as long as the last one took: all of them together may stop threads for 2% of the
/// time.
constexpr int rest_after_pause = 50;
/// Acknowledged objects whose words are prefetched.
constexpr std::size_t acknowledged_ahead = 16;
/// References of a copied object, or elements that have some, that one step looks at.
constexpr std::uint64_t references_per_step = 4096;

// ---- cache: pages of the table (pages.cc) ----

/// Pages that one step looks at: 32,768 words, some tens of microseconds.
constexpr std::uint32_t pages_looked_at_per_step = 64;
/// Pages that one step passes over because they are not open.
constexpr std::uint32_t pages_passed_over_per_step = 8192;
/// Pages that wait for one grace period.
constexpr std::uint32_t pages_closed_together = 32;
/// Looks at a busy word before its page stays: a busy word is somebody's for a bounded time.
constexpr std::uint32_t page_busy_rounds_max = 1000;
/// After a round that gave nothing back: what is left are pages of resident objects.
constexpr auto idle_after_vain_round = std::chrono::milliseconds(10);

// ---- cache: collections (collection.cc) ----

/// Looks at a busy word before its slot stays for the next collection: a busy word is somebody's for a bounded time.
constexpr std::uint32_t sweep_rounds_max = 10000;
/// Words of 64 dead slots that eviction is held back for.
constexpr std::uint32_t words_with_one_hold = 16;

// ---- remote: connections to agents (keeper.cc, batches.cc, reconnect.cc, regions.h) ----

/// Between two requests for a region that an agent does not have yet: the first, and the longest after doubling.
constexpr std::chrono::nanoseconds open_delay_min = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds open_delay_max = std::chrono::milliseconds(100);
/// Between two looks at a session: it tells when a handshake is wanted, but not when it has let other requests in after
/// one.
constexpr std::chrono::nanoseconds until_up = std::chrono::milliseconds(1);
/// Bytes of type descriptions in one message.
constexpr std::size_t types_bytes_max = 256 << 10;
/// A batch that breaks this many connections in a row is given up: the agent may be closing them because of it.
constexpr std::uint32_t breaks_max = 8;
/// Batches in one post, of up to three requests each.
constexpr std::size_t batches_sent_at_once = 8;
/// Regions that are carved from at the same time; more than one when a large object does not fit into the first.
constexpr std::size_t open_regions_max = 4;

// ---- tasks: the run loop of coroutines (run.cc) ----

/// Spinning before a thread sleeps: about a round trip.
constexpr auto spin_for = std::chrono::microseconds(30);
/// Between two looks when the end of a fetch wakes the thread.
constexpr auto sleep_at_most = std::chrono::milliseconds(1);
/// Between two looks when nothing wakes it.
constexpr auto look_again_after = std::chrono::microseconds(100);

}  // namespace fm::detail::limits
