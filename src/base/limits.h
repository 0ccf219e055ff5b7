// Limits and tuning constants of the library, a section for each layer, with the reason beside each number. A change
// here changes how fast something goes or how much of it may wait, and never whether it is right. Numbers that belong
// to a format on the wire or in memory stand beside the format, and what a program can set stands in its options. Each
// layer reads its own section only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

// ---- channel ----

namespace fm::detail::channel_limits {

/// When a connection of a byte path has ended, the session says why, and the other way round. Nobody waits longer for
/// that.
constexpr auto word_within = std::chrono::seconds(1);
/// Sending the part that gives a graph up. The sender has failed by then, and its caller waits.
constexpr auto abort_within = std::chrono::seconds(1);
/// A verdict that finds the peer's queue of notices full is sent again for so long; then the channel breaks.
constexpr auto verdict_within = std::chrono::seconds(10);
/// A message of the session that did not go in this time ends the channel.
constexpr auto operation_within = std::chrono::seconds(10);
/// Refusals that nobody has asked for; older ones are forgotten.
constexpr std::uint64_t refusals_max = 64;
/// Parts that may come beyond the window because they give their graph up, which needs no credit.
constexpr std::uint64_t parts_over_credit = 4;
/// Bytes of the reason for a refusal, or for giving a graph up, that travel.
constexpr std::size_t reason_bytes_max = 2048;
/// Bytes of a peer's text in a message of ours.
constexpr std::size_t quoted_bytes_max = 400;

/// An empty ring goes on at its beginning after so many bytes: a reader that keeps up then leaves it in the processors'
/// caches.
constexpr std::uint64_t ring_restart_from = 512u << 10;
/// Polling before sleeping costs less than a wake-up while the other process is about to answer.
constexpr auto ring_spin_for = std::chrono::microseconds(40);
constexpr auto stream_spin_for = std::chrono::microseconds(30);
/// A ring's bell is the other process's to write, too, and two waiters may take a stream's bell from each other: who
/// sleeps looks again by itself.
constexpr auto ring_wait_max = std::chrono::milliseconds(100);
constexpr auto stream_wait_max = std::chrono::milliseconds(100);
/// Bytes that are read beyond a head while large messages come. Less means another system call, more means copying.
constexpr std::size_t stream_ahead_of_large = 4096;
/// Bytes of an object that has not come whole which are worth a call of their own.
constexpr std::uint64_t straight_from = 4096;
/// An object over this share of a part may be cut in pieces.
constexpr std::uint64_t small_share = 4;
/// Objects that a traversal looks at in one section, which holds up eviction and cycles.
constexpr std::uint32_t objects_each_section = 256;

}  // namespace fm::detail::channel_limits

// ---- fabric ----

namespace fm::fabric::fabric_limits {

/// While requests are in flight the session thread looks around so often, for deadlines and for lanes that nobody
/// attends.
constexpr auto session_tick = std::chrono::milliseconds(10);
/// Ticks without anything in flight, after which the session thread sleeps without a timeout.
constexpr int quiet_ticks_max = 10;
/// How often a listener looks for connections whose deadline is over.
constexpr int listener_tick_ms = 100;
/// A client that stops in the middle of a frame is cut off after so long.
constexpr auto stall_max = std::chrono::seconds(10);
/// Unsent bytes of a connection or lane beyond which the server reads no more requests from it: the bound on what a
/// client that does not read costs.
constexpr std::size_t unsent_bytes_max = 1u << 20;
/// The buffer that a stream is read into, at both ends.
constexpr std::size_t stream_in_bytes = 64u << 10;
/// What one system call sends.
constexpr std::size_t stream_out_bytes_max = 256u << 10;
constexpr std::size_t stream_out_parts_max = 128;
/// Looks at the socket that asked last, for each look at all others: whoever asked last is the likeliest to ask next.
constexpr int listener_spin_rounds = 16;

/// verbs: an answer about a region.
constexpr auto region_within = std::chrono::seconds(10);
/// verbs: draining a queue pair. After that, destroying it does the same.
constexpr auto drain_within = std::chrono::seconds(1);
/// verbs: what registering lent memory leaves of the limit on locked memory. A connection that is made again must find
/// room for its own buffers, or the session is lost; lent memory can be copied instead.
constexpr std::uint64_t locked_bytes_left = 16ull << 20;
/// verbs: one work request carries no more, so that what comes behind it on the lane is not held up for long.
constexpr std::uint64_t work_request_bytes_max = 256u << 10;
/// verbs: a limit on locked memory below this is called wrong by the doctor, and one above it worth knowing.
constexpr std::uint64_t locked_bytes_enough = 1ull << 30;

}  // namespace fm::fabric::fabric_limits

// ---- pool ----

namespace fm::pool_detail::pool_limits {

/// A session does not tell its owner when it is up; whoever waits for that looks again after so long.
constexpr auto until_up = std::chrono::milliseconds(1);
/// An object that could not keep its slot is in the next free one: one read looks at so many slots and bytes.
constexpr std::uint32_t probe_bytes = 4096;
constexpr std::uint32_t probe_slots_max = 16;
/// Where a read is a copy, looking on is cheaper than asking, for so many slots; of objects above so many bytes the
/// header alone.
constexpr std::uint32_t seek_slots_max = 256;
constexpr std::uint32_t seek_whole_upto = 256;
/// Reads of an object that met a writer each time, before the agent is asked.
constexpr int torn_max = 32;

}  // namespace fm::pool_detail::pool_limits

// ---- paged ----

namespace fm::detail::paged_limits {

/// Fetches that are under way at once ahead of a sequential stream.
constexpr std::size_t fetches_ahead = 4;
/// Blocks that one step of eviction looks at; cooling unmaps all of them by one system call.
constexpr std::size_t blocks_each_step = 16;
/// Blocks one after the other, beside the first, that make a stream.
constexpr std::uint64_t stream_run_min = 2;

}  // namespace fm::detail::paged_limits
