// Limits and tuning constants of the library, a section for each layer, with the reason beside each number. A change
// here changes how fast something goes or how much of it may wait, and never whether it is right. Numbers that belong
// to a format on the wire or in memory stand beside the format, and what a program can set stands in its options. Each
// layer reads its own section only. Those of paged ranges are in src/paged/paged_limits.h, those of channels in
// src/base/channel_limits.h, those of replica sets in src/base/replica_limits.h, and those of pools in src/base/pool_limits.h.
#pragma once

#include "base/mutation.h"
#include <chrono>
#include <cstddef>
#include <cstdint>

// ---- fabric ----

namespace fm::fabric::fabric_limits {

/// While requests are in flight the session thread looks so often for deadlines and for lanes that nobody attends.
constexpr auto session_tick = std::chrono::milliseconds(10);
/// Of a session with several addresses: how long one of them is waited for, and a pause when none was right.
constexpr auto one_of_several_within = std::chrono::milliseconds(500);
constexpr auto between_rounds = std::chrono::milliseconds(20);
/// Pauses between attempts to connect again double up to the first. With several addresses, each of which is tried before
/// the next pause, another one may take over at any moment: so much for each of them. That is found within 99 ms with
/// three, and more of them are not asked more often.
constexpr auto reconnect_pause_most = std::chrono::milliseconds(250);
constexpr auto reconnect_pause_of_several = std::chrono::milliseconds(33);
/// Ticks without anything in flight, after which the session thread sleeps without a timeout.
constexpr int quiet_ticks_max = 10;
/// How often a listener looks for connections whose deadline is over.
constexpr int listener_tick_ms = 100;
/// A listener that ends, and a service that is done with a client, let clients handle the notices that they were sent for
/// so long: the last one may say why.
constexpr auto last_words_within = std::chrono::seconds(1);
/// A client that stops in the middle of a frame is cut off after so long.
constexpr auto stall_max = std::chrono::seconds(10);
/// Unsent bytes of a connection or lane beyond which the server reads no more requests: what a deaf client costs.
constexpr std::size_t unsent_bytes_max = 1u << 20;
/// Names that are being looked up at once in this process; the system may take minutes for each.
constexpr int lookups_max = 16;
/// Unsent descriptors, which count against the server's own limit.
constexpr std::size_t unsent_descriptors_max = 8;
/// Descriptors that a client has been sent and that no answer has claimed. Each comes with its answer: one is usual.
constexpr std::size_t unclaimed_descriptors_max = 8;
/// A thread that sleeps on a lane until its answer looks at its deadline so often; for the last stretch it waits otherwise.
constexpr auto receive_within = std::chrono::milliseconds(50);
/// Mappings that a session keeps of regions that were given back: 1 GiB of the usual regions. They hold no memory but page
/// tables.
constexpr std::size_t idle_mappings_max = 64;
/// The buffer that a stream is read into, at both ends.
constexpr std::size_t stream_in_bytes = 64u << 10;
/// What one system call sends.
constexpr std::size_t stream_out_bytes_max = 256u << 10;
constexpr std::size_t stream_out_parts_max = 128;
/// Looks at the socket of who asks alone, for each look at all others.
constexpr int listener_spin_rounds = 16;
/// Requests in a row after which a connection asks alone.
constexpr std::uint32_t listener_alone_after = 64;

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
/// After a cycle in vain the next one that is due for want of room waits so many times as long as it took.
constexpr int rest_after_vain_cycle = 9;
/// A cycle stops resting when `between / hurry_share` was allocated since it began.
constexpr std::uint64_t hurry_share = 4;

// When a young collection is due (src/collector/triggers.cc).

/// The part of the cache allocated between two young collections: they end before the evictor writes back the young.
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

// The owner's share of the work (src/collector/snapshot.cc).

/// CPU time of a slice, after which the collector rests as much longer as its share asks.
constexpr std::uint64_t slice_ns = 300'000;
/// The longest rest: a cycle goes on.
constexpr auto rest_most = std::chrono::milliseconds(30);
/// Roots between two looks at the clock, and pages of the table.
constexpr std::uint64_t roots_between_looks = 8192;
constexpr std::uint64_t pages_between_looks = 8;

// Counting what agents store by type (src/collector/stored_types.cc).

/// Slots of a sample: twice the longest run of slots that a thread gets, so that no sample is of one thread alone.
constexpr std::uint64_t census_sample_slots = 4096;
/// Samples of one agent in a round. Four tablets are counted whole: the agent looks at 262,144 headers.
constexpr std::size_t census_samples_max = 64;
/// A round rests so many times as long as it took: cycles may follow each other at once.
constexpr int rest_after_census = 9;

// Messages to agents (src/collector/marking/agent_marking.cc, src/collector/sweep.cc).

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

// Tracing on the compute node (src/collector/marking/compute_tracer.cc).

/// Room on the mark stack for dirty objects; what overflows is found again by tablet.
constexpr std::size_t local_stack_slots = simulated ? 8 : 1 << 20;
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
/// Cells of weak handles that are allocated together: 128 KiB, which is little beside the objects that they are of.
constexpr std::uint64_t cells_per_weak_chunk = simulated ? 64 : 16384;
/// Chunks of such cells: 2^32 cells, as many as the index of the cells can tell apart.
constexpr std::uint64_t weak_chunks_max = std::uint64_t{1} << 18;
/// Lists of free cells of weak handles: as many threads can give objects their cells at the same time.
constexpr std::size_t weak_free_lists = 8;
/// Slots in a chunk of the SATB log: the shared stack is used once for so many stores.
constexpr std::size_t log_slots = simulated ? 16 : 1024;
/// Chunks of the SATB log, those of threads included: 8 MiB. What threads log beyond that becomes bits, which cost more:
/// as much as some threads overwrite while the collector rests once.
constexpr std::size_t log_chunks_max = simulated ? 4 : 1024;
/// Slots that a thread remembers having logged in this cycle, by hash.
constexpr std::size_t recent_slots = 256;

// ---- base and os ----
/// A wait that goes on because something moves ends after so many times its deadline: what moves may never be for it.
constexpr int waits_at_most = 6;
/// Where spinning does not pay, one wait in so many spins: a core may have become free. Each time that it has not, half
/// as many do, down to one in spin_probe_rarest, where probes cost a tenth of a microsecond a wait. Powers of two.
constexpr std::uint32_t spin_probe_every = 32, spin_probe_rarest = 256;
/// Polls between two looks at the clock, which costs as much as some polls.
constexpr std::uint32_t spin_polls_per_look = 8;

/// Bytes that copy_bytes copies at once where addresses are alike: below the size that glibc calls large (2112 bytes).
constexpr std::size_t copy_piece = 2048;
/// A copy of so many bytes has all its lines loaded at once. Beyond, it is a loop whose next lines the processor foresees.
constexpr std::size_t loaded_ahead_most = 512;

// ---- table ----

/// Who waits for a pause spins so long before it gives its core away. Attempts usually take less: a thread that gives
/// its core away gets it back late, and the gate is closed all the while. Only attempts that were made longer because
/// shorter ones fail do that.
constexpr auto pause_spin = std::chrono::microseconds(250);
/// Who waits for sections to end: polling, where it pays, and then sleeps; the first, and the longest after doubling.
constexpr auto pass_spin = std::chrono::microseconds(20);
constexpr auto pass_nap_first = std::chrono::microseconds(50);
constexpr auto pass_nap_most = std::chrono::milliseconds(1);
/// Looks in a row that find no section of a thread, before looks pass over it: each costs about 0.1 us, and a thread that
/// comes back about 0.3 us. Threads that are outside of sections for nine tenths of their time are seen well before.
constexpr std::uint8_t looks_until_quiet = 64;

// ---- cache: segments (cache/frames/arena.cc, cache/frames.cc) ----

/// A cache has at least so many segments: some for its queues, and some in reserve.
constexpr std::uint32_t segments_min = 8;
/// A cache has room for so many of the largest objects: the one that is made, one that is read, and what else runs.
constexpr std::uint32_t objects_of_cache = 4;
/// Address space beyond the capacity, so that runs for large objects are found although the memory is scattered.
constexpr std::uint64_t address_space_factor = 4;
/// Bytes of cache from which on it is kept in huge pages; below, a page more or less matters.
constexpr std::uint64_t huge_pages_from = 64ull << 20;
/// Released runs that are remembered for large objects: they are looked through one by one.
constexpr std::size_t free_runs_max = 64;

// ---- cache: waiting for memory (cache/pressure.cc, cache/evictor.cc) ----
/// Sleeps of whoever waits for sections to end, which nobody announces: the first, and the longest after doubling. A
/// release of memory and an acknowledgement end them at once.
constexpr auto memory_nap_first = std::chrono::microseconds(100);
constexpr auto memory_nap_most = std::chrono::milliseconds(10);
/// Steps in a row that wait at the same dirty object for a batch, each after a longer sleep: 3 ms together. Sweeping on
/// would look at all dirty objects of the cache in vain.
constexpr std::uint32_t steps_held = 5;
/// While an agent refuses what is written back, new objects leave capacity / read_share to what is read, and so many
/// segments at least. With the reserve it is less than what the evictor keeps free, so that it can be reached.
constexpr std::uint32_t read_share = 16;
constexpr std::uint32_t read_segments_min = 2;
/// When no agent is left, capacity / stranded_share of clean frames may be changed: nothing is stored any more, and a
/// program should hear of it.
constexpr std::uint64_t stranded_share = 8;
/// Between two steps while agents refuse what is written back.
constexpr auto asked_again_after = std::chrono::milliseconds(5);
// ---- cache: what threads lease (cache/leases.cc, cache/frames/shared_segments.cc, cache/frames.cc) ----

/// The part of the cache that all threads together may have for themselves.
constexpr std::uint64_t lease_share = 8;
/// A thread gets this part of what is left of that.
constexpr std::uint64_t portions = 8;
/// Before a thread gets less than this, idle ones are taken from: the lock is taken once for so many bytes.
constexpr std::uint64_t good_portion = 4 << 10;
/// Leases between two attempts at that: each costs a fence that all processors feel.
constexpr std::uint64_t leases_between_rounds = 16;
/// Threads that one attempt looks at, of those who leased longest ago.
constexpr std::size_t asked_together = 64;
/// The part of the segments that may be in filling at a time, and how many may in any cache: one of each kind, and one
/// more. Beyond it, the oldest are closed.
constexpr std::uint32_t filling_share = 8;
constexpr std::size_t filling_min = 4;
/// Room that is not worth keeping for another thread.
constexpr std::uint64_t tail_min = 256;
/// Tails that are kept, and of those the newest, which are looked at for a piece.
constexpr std::size_t tails_max = 256;
constexpr std::size_t tails_looked_at = 16;
/// The evictor is woken when a segment is taken and fewer than this part of all are available.
constexpr std::uint32_t wake_share = 8;
/// Threads that have a segment each in reserve: this part of the number of segments. The others have so many bytes.
constexpr std::uint32_t reserve_share_of_few = 8;
constexpr std::uint64_t reserve_of_one_of_many = 16 << 10;
/// Bytes of a payload that are written in the section that allocates it: pauses wait some microseconds for that. Whoever
/// leaves the section for it writes to the segment's counters, which are shared.
constexpr std::uint64_t written_in_section = 32 << 10;

// ---- cache: slots and allocation (cache/slots.cc, cache/allocation.cc) ----

/// Slots that a thread takes at first: each time it takes twice as many.
constexpr std::uint64_t slots_of_first_run = 16;
/// Slots that a thread takes at a time, at most: some HIT pages. A simulated program is too short to come to the end of many.
constexpr std::uint64_t slots_per_run = simulated ? 1024 : 2048;
/// An agent that was full is used again when it has room for so many regions.
constexpr std::uint64_t full_until_regions = 2;
/// A run of slots is left when objects of so many bytes, or of so large a part of the room of the fullest agent, were made
/// in it: all of them are on one agent. In heaps of GiB no run of small objects gets there.
constexpr std::uint64_t run_bytes_min = 64 << 10;
constexpr std::uint64_t runs_in_room = 64;
/// Room that is spoken for by what was placed already counts so much less.
constexpr double spoken_for_weight = 16;
/// Tablets that an agent is asked for at a time: one message for 262,144 objects.
constexpr std::uint32_t tablets_per_grant = simulated ? 1 : 4;
/// Bytes that a thread allocates before the heap hears of them: the counter is shared by all threads.
constexpr std::uint64_t report_every = 256 << 10;
/// Collections that made no room before whoever waits gives up: the first may have begun before the wait.
constexpr std::uint32_t collections_in_vain_max = 2;

// ---- cache: agents that are lost (cache/rehoming.cc, collector/collector.cc) ----

/// Batches of a lost agent end as soon as their requests do: a guard against a session that does not end.
constexpr auto batches_end_within = std::chrono::seconds(10);
/// Until all scopes that were open have ended, before words are swept. A longer one holds new homes up.
constexpr auto rehoming_pause_within = std::chrono::seconds(10);
/// Survivors that took no tablets, and scopes that did not end, are tried again after so long.
constexpr auto rehoming_again_after = std::chrono::milliseconds(500);

// ---- cache: regions that agents want back (cache/retirements.cc) ----

/// Retirements that one round agrees to: regions of megabytes, of which a cycle empties a few.
constexpr std::size_t retired_together = 64;

// ---- what the program is told of its agents (events/agent_events.cc) ----

/// Events that wait for the program's function. Agents change states some times a second at most.
constexpr std::size_t agent_events_max = 256;

// ---- cache: who holds memory (cache/holders.cc) ----

/// Frames that are looked at for one error: some milliseconds, after a wait of seconds.
constexpr std::uint64_t frames_counted_max = 1 << 20;
/// Open scopes whose places an error names.
constexpr std::size_t scopes_named_max = 8;

// ---- cache: misses (cache/miss.cc, cache/elastic.h, cache/mutator.h) ----

/// Bytes of a home copy that comes with an answer by slot; a longer one is read in a second step.
constexpr std::uint32_t answer_bytes_max = 512 << 10;
/// An object that moves this often between two looks is a fault.
constexpr int hint_rounds_max = 64;
/// Fetches that a thread has in flight: one that it waits for, and 64 detached ones.
constexpr std::uint32_t fetches_max = 65;
/// Records of those detached fetches that a thread gets at a time.
constexpr std::uint32_t fetches_leased = 8;
/// Bytes of a region that share one learned window: a smaller part learns more slowly, a larger one mixes more walks.
constexpr std::uint32_t window_part_bytes = 64 << 10;
/// Neighbours that a heap's misses at one agent may bring before any of them was used: some full windows.
constexpr std::int32_t neighbours_credit_first = 1024;
/// Credit that a walk leaves behind at most: a program that jumps afterwards brings as many in vain.
constexpr std::int32_t neighbours_credit_max = 4096;
/// Without credit, one in so many misses that would have a window has one. Fewer notice too late that a walk begins.
constexpr std::uint32_t misses_without_neighbours = 512;
/// Bytes that a miss reads at most with its object, and of the buffer that a thread leases for that.
constexpr std::uint32_t window_max = 32 << 10;

// ---- cache: eviction and write-back (cache/evictor.cc, cache/writeback.cc) ----

/// A batch's record has room for so many objects at first, and doubles it: about what a batch of small ones holds.
constexpr std::size_t batch_objects_first = 256;
/// Frames that one step looks at, so that helping never stalls a thread for long.
constexpr std::uint32_t frames_per_step = 512;
/// Frames whose words are prefetched together.
constexpr std::uint32_t look_ahead = 16;
/// Bytes of the segment ahead of the walk that are prefetched: it has not been touched for long.
constexpr std::uint64_t prefetch_bytes = 1024;
/// A tenth of the cache is for what is on trial (S3-FIFO's share): a larger part takes memory from what is used again.
constexpr std::uint32_t trial_share = 10;
/// The cache remembers an object that has left for each so many of its bytes, at 4 bytes: 0.8% of the cache. With frames of
/// 270 bytes that is half as many as fit, where more ghosts did not lessen misses (bench/policy).
constexpr std::uint64_t ghost_bytes = 512;
/// Segments of what was fetched are promoted by luck if less than this part of their bytes are objects that come back. Of
/// a scan none does.
constexpr std::uint64_t returning_share = 32;
/// Of the probability of being promoted by luck, what is left where all that active lets go of was used: a change of
/// what the program wants is noticed by it.
constexpr double luck_least = 1.0 / 16;
/// The share of active's oldest that was used is a mean over about so many segments.
constexpr double segments_of_wanted = 8;
/// As long as more is on trial than twice its share, this part of such segments is promoted (frames/policy.h).
constexpr double promoted_into_room = 0.5;
/// Below so many segments, what the evictor moves shares them with new objects.
constexpr std::uint32_t segments_of_kept_from = 32;
/// Segments that are cooled after each sweep: more than are filled meanwhile, so that all are soon.
constexpr std::uint32_t coolings_each_sweep = 3;
/// Swept segments that wait for the sections of others to end, before no more are swept without need.
constexpr std::uint32_t segments_await_stamp_min = 2;
/// Sweeps one after the other that only moved objects. After these, used objects leave, too: a thread waits.
constexpr std::uint32_t sweeps_that_only_move = 8;
/// Times that a segment is swept in vain before a pause moves what is touched all the while.
constexpr std::uint32_t rounds_before_pause = 6;
/// After so many sweeps an open batch leaves though it is not full: segments wait for it.
constexpr std::uint32_t sweeps_per_batch = 8;
/// A pause for moving stragglers is given up after so long.
constexpr auto straggler_pause_within = std::chrono::microseconds(200);
/// No such pause for so many times as long as the last one took: together they may stop threads for 2% of the time.
constexpr int rest_after_pause = 50;
/// Acknowledged objects whose words are prefetched.
constexpr std::size_t acknowledged_ahead = 16;
/// References of a copied object, or elements that have some, that one step looks at.
constexpr std::uint64_t references_per_step = simulated ? 4 : 4096;

// ---- cache: pages of the table (table/pages.cc) ----

/// Pages that one step looks at: 32,768 words, some tens of microseconds.
constexpr std::uint32_t pages_looked_at_per_step = 64;
/// Pages that one step passes over because they are not open.
constexpr std::uint32_t pages_passed_over_per_step = 8192;
/// Pages of a group, of which the second that is asked for brings the others: 64 KiB of hints in an answer.
constexpr std::uint32_t pages_asked_together = 16;
/// Pages that wait for one grace period.
constexpr std::uint32_t pages_closed_together = 32;
/// Looks at a busy word before its page stays: a busy word is somebody's for a bounded time.
constexpr std::uint32_t page_busy_rounds_max = 1000;
/// After a round that gave nothing back: what is left are pages of resident objects. The time doubles with each such
/// round, so that a heap at rest does not look at the same words for ever; evict_all ends it.
constexpr auto idle_after_vain_round = std::chrono::milliseconds(10);
constexpr std::uint32_t vain_rounds_longer = 7;  ///< 1.28 s
/// Pages over the budget, 256 KiB, at which a thread that makes objects gives pages back itself. Fewer are left to the
/// evictor's thread. A table that cannot shrink is looked at again when it has grown by as many, or by an eighth.
constexpr std::uint64_t pages_over_before_help = 64;
/// Steps that such a thread makes for each run of slots: they close 32 pages in two steps, and a run is 4 pages.
constexpr std::uint32_t page_steps_for_run = 4;

// ---- cache: collections (cache/collection.cc) ----

/// Looks at a busy word before its slot stays for the next collection: a busy word is somebody's for a bounded time.
constexpr std::uint32_t sweep_rounds_max = 10000;
/// Words of 64 dead slots that eviction is held back for.
constexpr std::uint32_t words_with_one_hold = 16;

// ---- remote: connections to agents (remote/keeper.cc, remote/batches.cc, remote/reconnect.cc, remote/regions.h) ----

/// Between two requests for a region that an agent does not have yet: the first, and the longest after doubling.
constexpr std::chrono::nanoseconds open_delay_min = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds open_delay_max = std::chrono::milliseconds(100);
/// Between two looks at a session: it tells when a handshake is wanted, but not when it has let other requests in after
/// one.
constexpr std::chrono::nanoseconds until_up = std::chrono::milliseconds(1);
/// An agent session's own thread that has found no memory tries again after so long.
constexpr std::chrono::nanoseconds memory_again_after = std::chrono::milliseconds(10);
/// A read that comes home is noted as a sign of life at most once in so long: the line is shared by all threads.
constexpr auto heard_again_after = std::chrono::milliseconds(100);
/// Bytes of type descriptions in one message.
constexpr std::size_t types_bytes_max = 256 << 10;
/// Messages about regions that are under way and that nobody waits for: a handful would keep an agent busy. Others wait
/// their turn, so that thousands of regions that retire together are no burst.
constexpr std::size_t errands_max = 64;
/// Regions that an agent has asked back and that are not given back yet, in quotas of the heap. A number can come again
/// while the answer about its last generation is on its way, and an evacuation holds more than the quota for a while.
constexpr std::uint64_t retiring_quotas = 4;
/// A batch that breaks this many connections in a row is given up: the agent may be closing them because of it.
constexpr std::uint32_t breaks_max = 8;
/// Batches in one post, of up to three requests each.
constexpr std::size_t batches_sent_at_once = 8;
/// Regions that are carved from at the same time; more than one when a large object does not fit into the first.
constexpr std::size_t open_regions_max = 4;

// ---- tasks: the run loop of coroutines (tasks/run.cc) ----

/// Spinning before a thread sleeps: about a round trip.
constexpr auto spin_for = std::chrono::microseconds(30);
/// Fetches that coroutines await one after the other are posted in one call: so many at most, and those of so long, half of
/// the shortest round trip over TCP: the agent answers the first of them while the next are gathered.
constexpr std::size_t gathered_most = 16;
constexpr auto gather_for = std::chrono::microseconds(5);
/// Between two looks when the end of a fetch wakes the thread.
constexpr auto sleep_at_most = std::chrono::milliseconds(1);
/// Between two looks when nothing wakes it.
constexpr auto look_again_after = std::chrono::microseconds(100);

}  // namespace fm::detail::limits
