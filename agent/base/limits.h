// Every limit and tuning constant of the agent, with its reason. Settings of an administrator are in
// agent/base/options.h; what the wire format or a packed word fixes is beside that format (src/protocol, farmem/detail,
// heap::tablet_limit).
//
// A limit is a promise to an agent's other tenants: none of them makes the agent use memory or time without bound. All
// parts include this header, and it includes none of theirs.
#pragma once

#include "base/base.h"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::agent::limits {

// ---- options: ranges that store::create accepts ----

constexpr std::uint64_t region_bytes_min = 64u << 10;  ///< an object must fit into a region: this much fits everywhere
constexpr std::uint64_t regions_min = 2;               ///< one to append to while another is emptied
constexpr double clean_reserve_max = 0.5;              ///< owners have at least half of the memory
constexpr std::uint32_t trace_threads_max = 64;        ///< each has a stack and a table of its own in every cycle
constexpr int nice_max = 19;                           ///< the kernel's
constexpr std::uint64_t trace_slots_min = detail::simulated ? 8 : 64;  ///< few enough for tests of rescans
constexpr std::uint64_t trace_slots_max = 1ull << 32;                  ///< 32 GiB of address space a heap

// ---- threads ----

/// The longest sleep of any thread that is woken by others: a lost wake-up costs at most this.
constexpr duration sleep_max = std::chrono::seconds(1);
/// An agent measures how busy it is no more often: it reads a file of /proc for each of its threads, and what is shorter
/// is no load but a burst.
constexpr duration load_measured_every = std::chrono::seconds(1);
/// Between two tries of a step for which there is no memory: long enough not to take what others free.
constexpr duration memory_retry = std::chrono::milliseconds(20);

// ---- heaps ----

/// Each tablet costs the agent's memory (entries, a record, bits of a cycle) and the time of whoever walks them all, so
/// a heap is granted them by its quota: `min(tablets_max, tablets_least + quota / quota_per_tablet)`. A tablet full of
/// the smallest objects is 1 MiB of home memory; 64 times as many tablets leave room for slots that are not in use, and
/// for objects that are only in the owner's cache.
constexpr std::uint32_t tablets_max = 1u << 20;
constexpr std::uint32_t tablets_least = 1024;
constexpr std::uint64_t quota_per_tablet = 16u << 10;
constexpr std::uint32_t types_max = 1u << 17;  ///< of one heap; with type_bytes_max
constexpr std::uint64_t type_bytes_max = 64ull
                                         << 20;  ///< of a heap's types: names and offsets are its owner's to choose
constexpr duration notice_retry = std::chrono::milliseconds(5);  ///< a peer's queue was full: it drains in about that
/// Looks at an entry whose object moves meanwhile. Each means that somebody made progress; the bound only guards
/// against a defect.
constexpr int moves_max = 64;
/// The largest home copy that an answer carries: the transports' default message cap less heads and a page of hints.
constexpr std::uint64_t fetched_copy_max = (1u << 20) - 8192;
constexpr std::uint32_t entries_read_max = 65536;  ///< of one message: 512 KiB, half of the transports' default cap
/// Entries that are prefetched ahead while a batch is published: each is a random access.
constexpr std::size_t index_prefetch = 12;
constexpr std::uint64_t audit_faults_told = 20;  ///< in the text of an audit; all are counted

// ---- tracing ----

/// The most references that fit into an answer under the transports' default message cap.
constexpr std::uint32_t answer_references_max = ((1u << 20) - 4096) / 8;
/// Pages released before the heap's mutex is given up for a moment: other messages of the heap wait for it.
constexpr std::size_t release_pages_at_once = 16;
/// Slots in a worker's own stack, 16 KiB of memory that only it touches; what is beyond goes to the shared one.
constexpr std::uint64_t private_slots_max = 2048;
/// References for the owner that are worth a notice while tracing goes on.
constexpr std::uint64_t references_worth_telling = 8192;
/// A table of references that were handed over, by 16 bits of their hash: most repeats are found in it.
constexpr std::uint64_t seen_references_bytes = 65536 * 8;
constexpr std::uint32_t trace_ring_items =
    32;  ///< slots on their way to being scanned, so that memory has time to come
constexpr std::uint32_t trace_resolved_items = 12;     ///< of those, with the home copy being prefetched
constexpr std::uint32_t trace_references_batch = 256;  ///< handed over under one lock
constexpr std::int64_t trace_step_budget = 32768;      ///< about half a millisecond: 4 an object, 1 a reference
constexpr std::int64_t trace_overdraft = 512;          ///< by which an object may pass the budget before it is put off

// ---- moving ----

constexpr std::uint64_t walk_bytes_max = 256 << 10;  ///< of a step that copies nothing
constexpr std::uint64_t copy_bytes_max = 256 << 10;  ///< after which a step of an evacuation publishes
constexpr std::uint64_t clean_bytes_max = 64 << 10;  ///< of a step of cleaning: less, because memory is short
/// No further region of a heap is emptied while so many wait for the owner's agreement: one that never agrees would be given
/// the reserve of all.
constexpr std::ptrdiff_t retiring_most = 8;
/// Regions whose memory the maintenance thread gives back in a step: some milliseconds of shared memory.
constexpr std::size_t dropped_at_once = 8;
/// Entries that are moved before the heap's mutex is given up for a moment: index messages wait for it.
constexpr std::size_t moves_at_once = 512;
constexpr std::uint32_t walk_ahead = 16;     ///< copies whose entries are prefetched; a power of two
constexpr std::uint32_t visits_max = 16384;  ///< objects that a step of a traversal meets, moved or not
/// How far ahead of a queue's front entries, and at half of it copies, are prefetched.
constexpr std::uint64_t visit_ahead = 16;

// ---- peers ----

constexpr std::uint64_t peer_references_least = 64;  ///< an outbox takes as many at least, however many peers there are
constexpr duration between_refusals_logged = std::chrono::seconds(10);  ///< a wrong ticket comes with every message
constexpr std::size_t peer_links_max = 64;     ///< sessions to other agents; one that is idle makes room
constexpr std::size_t unreachable_max = 1024;  ///< addresses left alone; owners choose them: beyond, all are forgotten
constexpr duration unused_for = std::chrono::seconds(30);  ///< then a session is closed: it costs its peer a connection
constexpr duration leave_alone_first = std::chrono::seconds(1);  ///< an address that cannot be reached; doubles
constexpr duration leave_alone_most = std::chrono::seconds(60);  ///< up to this
constexpr int connect_share = 4;  ///< of store_options::peer_within: a connection that takes longer is not worth it
/// Connecting took so long that no other address is tried in the same round: all that is sent waits meanwhile.
constexpr duration long_try = std::chrono::milliseconds(50);
constexpr duration peer_reconnect_for = std::chrono::seconds(2);  ///< less than peer_within by default

// ---- pools ----

constexpr std::uint32_t pool_keep_max_ms = 600'000;  ///< without clients; as the longest lease by default
/// The share of a core that compaction takes of a pool's agent. It takes all that it can get when an allocation has failed for
/// want of memory, and when a client has called for it and nobody else is served. Readers pay once for each object that
/// moved, so a slow round costs them no more than a quick one, and never much at a time.
constexpr double compaction_share = 0.1;
/// Turns that background compaction leaves, one after the other, to messages that change the structure.
constexpr std::uint32_t steps_back_max = 4;
constexpr duration ask_retry = std::chrono::milliseconds(5);  ///< as notice_retry, for clients that pass an epoch
/// During a round of compaction, clients are asked to pass an epoch no more often, unless memory is short or so many frames
/// wait for it: each time costs threads of theirs some switches and a message.
constexpr duration ask_rest = std::chrono::milliseconds(10);
constexpr std::size_t graves_unasked = 64;
constexpr std::uint8_t pool_arenas_max = 64;
constexpr std::size_t pool_names_max = 1024;  ///< of objects, in one pool: a directory of first ones, and no index
/// Slots that one answer of a list of objects looks at, beyond those of one block, and objects that it names: a piece
/// holds a block's mutex for a fraction of a millisecond, and fits into one frame of any transport.
constexpr std::uint64_t listed_slots_max = 1u << 15;
constexpr std::size_t listed_objects_max = 4096;
constexpr std::size_t gone_at_once = 1024;   ///< regions of a pool that one answer says are gone; the client asks again
constexpr std::size_t merge_tries_max = 64;  ///< partners that compaction tries for one block: it bounds a step
/// Frames that a step of compaction looks at, and that are freed, under one exclusive lock of a pool's structure. With
/// more frames a round has more steps, and none is longer.
constexpr std::uint32_t frames_looked_at_max = 1024;
constexpr std::uint32_t reclaimed_at_once = 256;
constexpr std::uint32_t expired_at_once = 256;  ///< objects, and frames of theirs, under one such lock
/// Objects that expire within so long after the first of them are freed together: it bounds how often messages wait for
/// that, and how long a one-sided read may still find them.
constexpr duration expiry_tick = std::chrono::milliseconds(10);
constexpr std::uint32_t generations_at_once = 16384;  ///< of virtual blocks, in one record of an image
constexpr int structure_polls_max = 200;  ///< before a thread sleeps until others have left a pool's structure

// ---- replicas of pools ----

/// Records that a backup has not confirmed. Beyond, changes wait: the backup cannot keep up, or is gone.
constexpr std::uint64_t log_bytes_max = 64u << 20;
/// Of those, what an image may have in front of changes: they wait behind it.
constexpr std::uint64_t image_bytes_max = 4u << 20;
constexpr std::uint64_t image_bytes_at_once = 256u << 10;  ///< written with the pool's structure held: about 0.1 ms
constexpr std::size_t records_bytes_max = 256u << 10;      ///< of one message, but for one record that is larger
constexpr std::uint32_t records_in_flight = 8;             ///< messages: enough to fill a round trip
constexpr int beats_a_tenure = 8;                          ///< a lost or late one costs nothing yet
constexpr int takeover_after =
    8;  ///< a backup waits for an eighth of a tenure more, so that a primary that lives goes first
constexpr int teaching_tenures = 2;   ///< in which an agent that becomes a backup has to say something
constexpr int return_tenures = 20;    ///< in which clients find a primary that serves again, and their leases rest
constexpr int learning_tenures = 10;  ///< silence after which a copy that lacks some is dropped: it is of no use
constexpr int tenure_drift_share =
    500;  ///< of a tenure, by which the clocks of two machines may differ in it: twice clock_drift
constexpr std::uint32_t tenure_ms_min = 200;     ///< the lag of a coarse clock, 10 ms, is well within an eighth of it
constexpr std::uint32_t tenure_ms_max = 60'000;  ///< nobody waits longer for a pool whose primary is gone
/// Without an arbiter nobody goes on before the agents hear each other again or an administrator has spoken, so a primary
/// tries for longer than any of them takes.
constexpr duration unarbitrated_reconnect_for = std::chrono::hours(24 * 30);
/// A pool that has ended, which only its primary can say to a backup without an arbiter: longer than a restart takes.
constexpr duration ending_for = std::chrono::hours(1);
constexpr duration pair_retry =
    std::chrono::milliseconds(100);          ///< between two tries to find a backup, or to ask who goes on
constexpr std::size_t backup_urls_max = 16;  ///< of agents that may become it
constexpr std::size_t backup_urls_bytes_max = 4096;

// ---- the admin socket ----

constexpr duration admin_deadline = std::chrono::seconds(2);       ///< of a client: one is served at a time
constexpr duration accept_retry = std::chrono::milliseconds(100);  ///< when no descriptor is left for a client
constexpr std::size_t document_max = 64u << 20;  ///< that a client reads, so that an endless answer ends

}  // namespace fm::agent::limits
