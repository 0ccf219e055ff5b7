// Limits and tuning constants of channels, with the reason beside each number; see base/limits.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::detail::channel_limits {

/// When a connection of a byte path has ended, the session says why, and the other way round. Nobody waits longer.
constexpr auto word_within = std::chrono::seconds(1);
/// Sending the part that gives a graph up. The sender has failed by then, and its caller waits.
constexpr auto abort_within = std::chrono::seconds(1);
/// A verdict that finds the peer's queue of notices full is sent again for so long; then the channel breaks.
constexpr auto verdict_within = std::chrono::seconds(10);
/// A message of the session that did not go in this time ends the channel.
constexpr auto operation_within = std::chrono::seconds(10);
/// Pending objects that a sender looks at in a miss for some to fetch with it: a few times those that it fetches.
constexpr std::size_t looks_ahead = 256;
/// Refusals that nobody has asked for; older ones are forgotten.
constexpr std::uint64_t refusals_max = 64;
/// Parts that may come beyond the window because they give their graph up, which needs no credit.
constexpr std::uint64_t parts_over_credit = 4;
/// Bytes of the reason for a refusal, or for giving a graph up, that travel.
constexpr std::size_t reason_bytes_max = 2048;
/// Schemas of senders that a channel remembers having compared. More than a few mean that somebody makes them up.
constexpr std::size_t compared_max = 64;
/// Graphs that an end accepts unless its program says otherwise. Of a process of this machine, which its user started: what
/// a heap can hold.
constexpr std::uint64_t objects_max = 1ull << 32;
constexpr std::uint64_t bytes_max = 1ull << 40;
/// The same of anybody who reaches the port. The reader keeps about 100 bytes for each object: 2 GiB at most. What it keeps
/// for a reference to an object that has not come yet, 32 bytes, counts against the bytes.
constexpr std::uint64_t strangers_objects_max = 1ull << 24;
constexpr std::uint64_t strangers_bytes_max = 4ull << 30;
/// An adopted socket: bytes that wait to be written, from which on parts wait for room. Two of the largest parts.
constexpr std::size_t adopted_parts_bytes = 1u << 20;
/// The same, beyond which small messages are not taken: the other end asks and does not read the answers.
constexpr std::size_t adopted_bytes_max = 4u << 20;
/// Bytes of a peer's text in a message of ours.
constexpr std::size_t quoted_bytes_max = 400;

/// An empty ring goes on at its beginning after so many bytes: for a reader that keeps up, it stays in the caches.
constexpr std::uint64_t ring_restart_from = 512u << 10;
/// Polling before sleeping costs less than a wake-up while the other process is about to answer.
constexpr auto ring_spin_for = std::chrono::microseconds(40);
constexpr auto stream_spin_for = std::chrono::microseconds(30);
/// A ring's bell is the other process's to write, too, and two waiters may take a stream's bell from each other: who
/// sleeps looks again by itself.
constexpr auto ring_wait_max = std::chrono::milliseconds(100);
constexpr auto stream_wait_max = std::chrono::milliseconds(100);
/// Bytes that are read beyond a head while large messages come, and beyond the length of an array after another one. Less
/// means another system call, more means copying.
constexpr std::size_t stream_ahead_of_large = 1024;
/// Pieces of objects that a part is sent with from where they lie, and that stay in place until it is sent. Two entries
/// each, and few enough for a list on the stack.
constexpr std::size_t lent_max = 16;
/// Bytes of an object without references from which it is sent from where it lies: below that, a copy is cheaper than a
/// pin and an entry in the list of pieces.
constexpr std::uint64_t lent_from = 16u << 10;
/// Bytes of an object that has not come whole which are worth a call of their own.
constexpr std::uint64_t straight_from = 4096;
/// An object over this share of a part may be cut in pieces.
constexpr std::uint64_t small_share = 4;
/// Objects that a traversal looks at in one section, which holds up eviction and cycles.
constexpr std::uint32_t objects_each_section = 256;

}  // namespace fm::detail::channel_limits
