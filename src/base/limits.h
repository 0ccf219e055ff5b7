// The library's limits and tuning constants: maxima, thresholds and time-outs that somebody may want to find or to
// change, each with its reason. What a user may set stands in the options (farmem/options.h), what a format fixes
// stands beside the format, and the agent has limits of its own.
//
// Invariant: nothing here changes what is correct. Every value may be changed, and then something takes longer, or
// needs more. Everything in the library may read it; each layer keeps to its section.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::detail::limits {

// ---- collector ----

// When a full cycle is due (src/collector/triggers.cc).

/// Bytes allocated between two full cycles, at least, where the agents have room for that: a cycle has a fixed price in
/// messages and pauses. What young collections freed does not count.
constexpr std::uint64_t least_between = 32ull << 20;
/// The same where the agents have little room: below this a cycle would follow on a cycle.
constexpr std::uint64_t least_between_full = 1ull << 20;
/// The most of it where collection is continuous: simulations and tests want many cycles.
constexpr std::uint64_t least_between_continuous = 1ull << 20;
/// A continuous collector rests no longer than this, even if nothing is allocated.
constexpr auto longest_rest = std::chrono::seconds(1);
/// The share of the agents' memory that a heap may use before cycles follow each other at the least interval.
constexpr double most_used = 0.8;
/// A cycle that frees less than this part of what is live was in vain: allocation is told that memory is full.
constexpr std::uint64_t made_room_share = 64;
/// A cycle stops resting when `between / hurry_share` was allocated since it began.
constexpr std::uint64_t hurry_share = 4;

// When a young collection is due (src/collector/triggers.cc).

/// The part of the cache that is allocated between two young collections: they end before the evictor writes back what
/// is young.
constexpr std::uint64_t young_share = 8;
/// A young collection that frees less than this part of what was allocated since the last one was in vain, and the next
/// comes later. One that took more than this part of a core is as good as in vain.
constexpr std::uint64_t young_worth = 4;
/// The average bytes of an object from which on young collections run however much of the cache is free: large objects
/// cost next to nothing to free, and their memory is better used again than taken new.
constexpr std::uint64_t young_large = 1024;
/// The bytes between young collections of large objects: they fit in a processor's cache, so that memory is used again
/// while it is warm.
constexpr std::uint64_t young_large_between = 8ull << 20;

// Somebody who waits for a cycle (src/collector/collector.cc).

/// A caller of collect() waits so long for write-backs that keep some of the dead; then the next cycle begins.
constexpr auto written_within = std::chrono::seconds(1);
/// Cycles after the one that was asked for, while some of the dead could not be freed.
constexpr int again_max = 4;

// Pauses (src/collector/snapshot.cc).

/// One attempt to stop the threads. It holds the program even if it fails.
constexpr auto one_pause_within = std::chrono::microseconds(200);
/// A thread that has no core cannot leave its section as long as the others run. After this many failures attempts get
/// longer: the others wait at the gate meanwhile and leave it theirs.
constexpr std::uint32_t short_attempts = 8;
constexpr auto longest_attempt = std::chrono::milliseconds(10);
/// The rest between two attempts: few enough attempts fit into any 10 ms.
constexpr auto backoff_first = std::chrono::milliseconds(1);
constexpr auto backoff_most = std::chrono::milliseconds(20);
/// All attempts of a young collection: one that cannot begin is not worth waiting for, the next one may.
constexpr auto young_pause_within = std::chrono::seconds(1);
/// Room for what waiting threads name, made before the pause: nothing is allocated in one.
constexpr std::size_t threads_expected = 1024;
/// Room for what the final pause takes from the SATB log, for the same reason.
constexpr std::size_t final_log_slots = 1 << 16;

// The owner's share of the work (src/collector/snapshot.cc).

/// CPU time of a slice, after which the collector rests as much longer as its share asks.
constexpr std::uint64_t slice_ns = 300'000;
/// The longest rest: a cycle goes on.
constexpr auto rest_most = std::chrono::milliseconds(30);
/// Roots between two looks at the clock, and pages of the table.
constexpr std::uint64_t roots_between_looks = 8192;
constexpr std::uint64_t pages_between_looks = 8;

// Messages to agents (src/collector/agent_marking.cc, sweep.cc).

/// Slots to mark in one message: 256 KiB.
constexpr std::size_t slots_per_message = 32768;
/// Remote references in one answer: 512 KiB.
constexpr std::uint32_t references_per_answer = 65536;
/// Pages of slots in one message.
constexpr std::size_t pages_per_message = 4096;
/// Steps of the local tracer between two rounds of messages: agents do not wait long for what it finds.
constexpr int local_steps_a_round = 32;
/// Agents that talk need the owner for nothing but to find out that they have ended. It does not ask more often than
/// makes marking longer by this part.
constexpr int ask_later_by = 32;
/// Agents that work are asked again at once, then less and less often.
constexpr auto look_again_first = std::chrono::microseconds(200);
constexpr auto look_again_most = std::chrono::milliseconds(5);
/// An agent that does not hear of the end of a failed cycle throws the marks away when the next one begins.
constexpr auto end_failed_within = std::chrono::milliseconds(200);

// Tracing on the compute node (src/collector/compute_tracer.cc).

/// Room on the mark stack for dirty objects; what overflows is found again by tablet.
constexpr std::size_t local_stack_slots = 1 << 20;
/// Objects on their way through the tracer at the same time, and of those, with the frame being prefetched or fetched.
constexpr std::uint32_t ring_items = 128;
constexpr std::uint32_t looked_items = 64;
/// Fewer fetches are not worth a post.
constexpr std::uint32_t together_items = 24;
/// Objects in one step: the SATB log is looked at in between.
constexpr std::uint32_t step_objects = 512;
/// Looks at a completion before the tracer sleeps, and the longest sleep.
constexpr int polls_before_sleep = 4096;
constexpr auto sleep_most = std::chrono::milliseconds(1);

// The sweep, roots and the SATB log.

/// Words of dead slots freed between two looks at the clock: two pages of the table.
constexpr std::size_t words_swept_at_once = 16;
/// Contradictions whose texts are kept: a broken heap has thousands.
constexpr std::size_t faults_told = 20;
/// Cells of root handles that are allocated together.
constexpr std::size_t cells_per_chunk = 512;
/// Slots in a thread's SATB log: the queue's lock is taken once for so many stores.
constexpr std::size_t log_slots = 1024;
/// Slots that a thread remembers having logged in this cycle, by hash.
constexpr std::size_t recent_slots = 256;

}  // namespace fm::detail::limits
