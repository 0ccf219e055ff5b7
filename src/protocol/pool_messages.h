// The messages between a client of a pool and an agent, with the heads and rules of protocol/heap_messages.h: the
// receiver checks every field before use, and a message that does not follow this file costs its sender the
// connection.
//
// A session is a heap's or a pool's, by its first message. A pool belongs to a tenant, whose 128 random bits entitle
// to it: two sessions that name the same tenant and pool share it. The first client that opens a pool makes it, with
// its settings. The pool ends when no client has had it open for `keep_ms`.
//
// Once only. A client makes its changes in streams, one at a time in each, and numbers those of a stream. The agent
// keeps the last answer of every stream. If a number is repeated, it gives that answer again and does nothing. If a
// client's lease ran out, its streams are gone: `fresh` in the answer to pool_open says so, and changes under way then
// have an unknown outcome.
//
// In time. A change carries its deadline, on the agent's clock. The agent refuses it with timed_out if it comes to it
// later, and looks at its clock where it orders the changes of an object (agent/pools/blocks/blocks.h). So a change is made
// before its client gives it up, or never: none lands after a change that another client made later, saw acknowledged,
// and began after the first was given up. The client translates. Answers say what the agent's clock was at some moment
// between the request and the answer; so at a later time t the agent's clock is at least that, and the time from the
// answer to t, less what the two clocks may differ in rate. A deadline that is that bound for the moment of giving up
// has passed on the agent's clock when the client gives up. An answer that was slow makes deadlines early, never late.
//
// Versions. An object's version is the one of its header and, where it has one, its checksum. Each change of the object
// gives it a new version of the pool's own count, so two states of an object have the same one only if the pool saw a
// multiple of 2^32 changes in between, and, where objects have checksums, if those are the same as well. A merge keeps
// versions: it moves states and makes none. pool_write_if names the version that it replaces. A refusal with `conflict`
// is not kept as an answer: a change that comes again is refused again, since a version does not come back.
//
// Expiry. An object may have a time at which it expires, which is the agent's alone: clients say how long from when the
// agent makes the change. From that time on, each message finds the object freed. A one-sided read may find it until the
// agent has freed it. A merge and pool_release leave the time as it is, and so do changes of the object, but pool_expire.
//
// Replicas. A pool with replicas has one part for each agent that its clients name: the agent's number in that list is the
// part's slot, from 1. A part is on two agents, of which one, the primary, serves it; which one may change. A client asks
// all agents in turn for the primary, and has the first one make the part only if all say that they do not have it.
// The primary numbers its changes. Answers about objects end with the number of the last change that was made before
// them (pool_number), and the word at pool_open_replicas says up to which number the changes count: the backup has them.
// What is seen of later ones may be lost with the primary. So nobody tells his caller of an answer before its number
// counts, nor of an object that was read one-sidedly before its version counts: versions are the low halves of numbers.
// An agent that is not the primary (any more) refuses with stale, one that does not know whether it still is with
// under_replicated. Such refusals do not renew a lease, and are no outcome of a change.
//
// Minor versions. The agent tells its own in what follows pool_open_answer, if the client's is not 0. A client sends
// the messages of a later version only to agents that know it.
//
// Epochs. A frame that a merge or frees have emptied is stamped with the pool's next epoch. It is used again when
// every client has passed that epoch: has finished all reads that were posted before it heard of it. Agents ask for
// that with the notice pool_epoch; pool_pass is the answer, and renews the lease, too. A client that is silent for its
// lease is fenced: its session ends, and it does not hold frames any longer. It discards reads that end after its
// lease did.
//
// Regions. Words of the table name a region by its ordinal. When a region leaves the pool, clients are told its ordinal
// in answers to pool_pass, in order. An ordinal is used again when every client has said that it was told. A client
// that is `fresh` forgets all regions that it knew, and is told of those that go from then on.
#pragma once

#include <algorithm>

#include "heap_messages.h"
#include "pool_format.h"

namespace fm::protocol {

constexpr std::uint16_t pool_protocol_major = 3;
constexpr std::uint16_t minor_of_shared_lines = 4;
constexpr std::uint16_t minor_of_rests = 5;
/// 1: versions, names, lists, thresholds, table words of old blocks; 2: expiry; 3: replicas; 4: more classes; 5: pool_state, rests.
constexpr std::uint16_t pool_protocol_minor = 5;

/// Streams of changes that a client may have.
constexpr std::uint32_t pool_streams_max = 256;

/// Bytes of a name of an object.
constexpr std::uint32_t pool_name_bytes_max = 47;

/// Until an object expires: 365 days. An agent's memory seldom lives as long, and sums of times cannot overflow.
constexpr std::uint64_t pool_expiry_ms_max = 365ull * 24 * 3600 * 1000;

#pragma pack(push, 1)

/// What a pool is made with.
struct pool_settings {
  std::uint32_t block_bytes;    ///< power of two, 4 KiB to 1 MiB
  std::uint32_t versions_upto;  ///< see blocks::layout
  std::uint32_t arenas;         ///< 1 to 64: allocators of a serving thread, of which each has blocks of its own
  std::uint32_t compact_above;  ///< share of free slots, of 65536, above which a class is compacted unasked; 0: never
  std::uint32_t keep_ms;        ///< the pool stays so long without a client
  std::uint8_t naming[blocks::line_class_count];  ///< blocks::naming that is wanted for each class
  std::uint8_t fallback;                          ///< blocks::fallback
  /// 1: small slots share cache lines. The agent says so of the pools that clients make which know it (3.4): not where
  /// lines carry versions, nor with random ids, which are too short for as many objects in a block.
  std::uint8_t shares_lines;
  std::uint8_t zero[5];
};

struct pool_open_body {
  std::uint16_t major, minor;
  std::uint32_t resume;       ///< 1: `instance` must still be there
  std::uint64_t tenant[2];    ///< random; not zero
  std::uint64_t client[2];    ///< random; names the client across its connections
  std::uint64_t quota_bytes;  ///< wanted for the pool; 0: what the agent gives
  std::uint32_t lease_ms;     ///< wanted; 0: the agent's default
  std::uint32_t instance;     ///< 0, or what an earlier answer said
  pool_settings settings;
  char name[48];  ///< zero-terminated, not empty
};

struct pool_open_answer {
  std::uint32_t instance;  ///< random; what pointers name the pool on this agent by; not zero
  std::uint32_t fresh;     ///< 1: this client was not known (any more)
  std::uint64_t region_bytes;
  std::uint64_t quota_bytes;
  std::uint64_t epoch;  ///< passed by definition
  std::uint64_t now;    ///< the agent's clock, ns
  std::uint32_t lease_ms;
  std::uint32_t chunks;    ///< of the table, so far
  pool_settings settings;  ///< that the pool has
};

/// Follows pool_open_answer, if the client's minor version is not 0.
struct pool_open_more {
  std::uint16_t minor;  ///< of the agent
  std::uint16_t zero;
  std::uint32_t may_tune;  ///< 1: this client has made the pool, and has sent no pool_tune yet
};

/// Follows pool_open_body if the pool is to have replicas; addresses of other agents that may store them follow this, each
/// with a zero byte behind it.
struct pool_open_replicated {
  std::uint32_t slot;  ///< 1 and up
  std::uint32_t make;  ///< 1: if there is no such part here, it is made
  std::uint32_t url_bytes;
  std::uint32_t zero;
};
/// Follows pool_open_more then.
struct pool_open_replicas {
  std::uint64_t agent;  ///< its number: with another one than before, the client knows nothing of its memory
  std::uint64_t term;
  std::uint64_t number;   ///< of the last change
  std::uint32_t ordinal;  ///< where the word is
  std::uint32_t offset;
};
/// Ends the answers to messages about objects then.
struct pool_number {
  std::uint64_t number;
};
struct pool_replicas_answer {
  std::uint64_t term;
  std::uint32_t has_backup;  ///< 1: it has all that counts
  std::uint32_t zero;
};

/// Messages about objects, which several threads of an agent answer side by side.
constexpr bool is_about_pool_objects(message_type t) noexcept {
  switch (t) {
    case message_type::pool_alloc:
    case message_type::pool_alloc_expiring:
    case message_type::pool_expire:
    case message_type::pool_read:
    case message_type::pool_read_version:
    case message_type::pool_write:
    case message_type::pool_write_if:
    case message_type::pool_free:
    case message_type::pool_release:
    case message_type::pool_bind:
    case message_type::pool_unbind:
    case message_type::pool_lookup:
    case message_type::pool_list: return true;
    default: return false;
  }
}

struct pool_object {
  std::uint32_t vblock;
  std::uint32_t generation;
  std::uint16_t index;
  std::uint16_t slot;  ///< where it was last seen in its frame
  std::uint32_t zero;
};

struct pool_change {
  std::uint64_t number;    ///< from 1, growing; the last one again asks for its answer
  std::uint32_t stream;    ///< below pool_streams_max
  std::uint32_t agent;     ///< with replicas: the low half of the number of the agent whose clock is meant; else zero
  std::uint64_t deadline;  ///< on the agent's clock, ns: not made later; not zero
};

/// Followed by the payload.
struct pool_alloc_body {
  pool_change change;
  std::uint32_t bytes;
  std::uint32_t arena;  ///< taken modulo the pool's
};
/// Followed by the payload.
struct pool_alloc_expiring_body {
  pool_change change;
  std::uint32_t bytes;
  std::uint32_t arena;       ///< as in pool_alloc_body
  std::uint64_t expires_ms;  ///< from when it is made: 1 to pool_expiry_ms_max
};
/// Where an object is now.
struct pool_where {
  pool_object object;
  std::uint64_t word;  ///< of the table, for object.vblock
};
struct pool_alloc_answer {
  pool_where at;
  std::uint32_t wait;  ///< 1: nothing was allocated, there is no room now, but frames are on their way back: ask again
  std::uint32_t zero;
};

struct pool_read_body {
  pool_object object;
  std::uint32_t bytes_max;  ///< a longer object is refused as too_large
  std::uint32_t zero;
};
/// Followed by the payload.
struct pool_read_answer {
  pool_where at;
  std::uint32_t bytes;
  std::uint32_t zero;
};

/// Followed by the payload, which must be as long as the object is.
struct pool_write_body {
  pool_change change;
  pool_object object;
  std::uint32_t bytes;
  std::uint32_t zero;
};

/// Followed by the payload.
struct pool_read_version_answer {
  pool_where at;
  std::uint32_t bytes;
  std::uint32_t zero;
  std::uint64_t version;
};

/// Followed by the payload, which must be as long as the object is.
struct pool_write_if_body {
  pool_change change;
  pool_object object;
  std::uint32_t bytes;
  std::uint32_t zero;
  std::uint64_t version;  ///< that the object must have
};
struct pool_write_if_answer {
  pool_where at;
  std::uint64_t version;  ///< that it has now
};

/// pool_free, pool_release.
struct pool_object_body {
  pool_change change;
  pool_object object;
};

struct pool_expire_body {
  pool_change change;
  pool_object object;
  std::uint64_t expires_ms;  ///< from when this is made, at most pool_expiry_ms_max; 0: it does not expire
};
struct pool_expiries_answer {
  std::uint64_t expiring;  ///< objects that expire
  std::uint64_t expired;   ///< objects that were freed because their time had passed
};

/// Followed by the name.
struct pool_bind_body {
  pool_change change;
  std::uint64_t who, what;  ///< the pointer; not null
  std::uint32_t replace;    ///< 1: also if the name is bound to another object
  std::uint32_t name_bytes;
};
struct pool_unbind_body {
  pool_change change;
  std::uint32_t name_bytes;
  std::uint32_t zero;
};
struct pool_lookup_answer {
  std::uint64_t who, what;
};

/// Where an object is in the order of all: by virtual block, then by index of birth.
struct pool_list_body {
  std::uint32_t vblock, index;  ///< the first that is wanted
  std::uint32_t most;           ///< objects that the answer may name; not 0
  std::uint32_t zero;
};
/// Followed by `count` pool_listed.
struct pool_list_answer {
  std::uint32_t vblock, index;  ///< to go on from
  std::uint32_t count;          ///< may be 0 though there are more
  std::uint32_t done;           ///< 1: there are none after these
};
struct pool_listed {
  std::uint32_t vblock;
  std::uint32_t generation;
  std::uint16_t index;
  std::uint16_t slot;
  std::uint32_t bytes;
};

/// Only of the client that pool_open_more allows it; others are refused.
struct pool_tune_body {
  std::uint32_t compact_above[blocks::line_class_count];  ///< as in pool_settings, by size class
  std::uint32_t zero;
};

struct pool_compact_body {
  std::uint32_t begin;  ///< 1: a new round, which looks at everything once more
  std::uint32_t rests;  ///< 1: the answer has pool_compact_rest. 0 for agents before version 3.5
};
struct pool_compact_answer {
  std::uint64_t merges_tried;  ///< in this round, whoever made its steps; as all of these
  std::uint64_t merges_made;
  std::uint64_t objects_moved;
  std::uint64_t bytes_returned;  ///< of frames that merges emptied
  std::uint32_t done;            ///< 1: nothing is left to merge in this round
  std::uint32_t waiting;         ///< frames that wait for clients to pass an epoch
};
/// Follows pool_compact_answer, if that was asked for.
struct pool_compact_rest {
  std::uint64_t ns;  ///< that others are to be served before the next step
};

struct pool_table_body {
  std::uint32_t chunk;
  std::uint32_t zero;
};
struct pool_table_answer {
  std::uint32_t ordinal;
  std::uint32_t offset;
};

struct pool_region_body {
  std::uint32_t ordinal;
  std::uint32_t zero;
};

struct pool_pass_body {
  std::uint64_t epoch;  ///< every read posted before it was announced here has ended
  std::uint64_t gone;   ///< what the last answer said; 0: nothing was told yet
};
/// Followed by `count` u32 ordinals: of regions that the pool does not have any more, and that are forgotten.
struct pool_pass_answer {
  std::uint64_t epoch;  ///< the pool's
  std::uint64_t gone;   ///< how many regions have left the pool, up to the last one that is told here
  std::uint64_t now;    ///< the agent's clock, ns
  std::uint32_t count;
  std::uint32_t state;  ///< of a pool with replicas, bits of pool_state; 0: the agent does not say
};
/// What a primary says of its part; it asks clients to pass when this changes.
enum pool_state : std::uint32_t {
  pool_state_known = 1,   ///< it says something
  pool_state_copied = 2,  ///< the part has a backup
  pool_state_leaves = 4,  ///< this agent is drained
};

/// Of the notice pool_epoch.
struct pool_epoch_notice {
  std::uint64_t epoch;
};

struct pool_class_record {
  std::uint32_t size_class;
  std::uint32_t slot_bytes;
  std::uint32_t block_bytes;
  std::uint16_t naming;     ///< blocks::naming of this class, as it came out
  std::uint16_t compacted;  ///< 0: blocks of this class are never merged
  std::uint64_t blocks;     ///< frames in use
  std::uint64_t slots;      ///< of those
  std::uint64_t objects;
  std::uint64_t payload_bytes;
  std::uint64_t aliases;  ///< virtual blocks that are mapped, beyond one a frame
  std::uint64_t merges_tried;
  std::uint64_t merges_made;
  std::uint64_t merges_in_conflict;  ///< not made because ids, or slots, were the same
  std::uint64_t ids_in_conflict;     ///< that were the same
  std::uint64_t objects_moved;
  std::uint64_t slots_kept;  ///< of those, into the slot that they had
};
/// Followed by `classes` pool_class_record.
struct pool_statistics_answer {
  std::uint64_t quota_bytes;
  std::uint64_t frame_bytes;    ///< in use for blocks and the table
  std::uint64_t waiting_bytes;  ///< of frames that wait for an epoch
  std::uint64_t books_bytes;    ///< the agent's records of frames and objects, which are in no frame
  std::uint64_t regions;
  std::uint64_t region_bytes;  ///< of all of those
  std::uint64_t epoch;
  std::uint64_t vblocks;  ///< mapped
  std::uint64_t vblocks_reused;
  std::uint64_t vblocks_retired;                              ///< out of generations
  std::uint64_t allocations, frees, writes, reads, releases;  ///< by message
  std::uint64_t steps;                                        ///< of compaction
  std::uint64_t step_ns_max;
  std::uint32_t clients;
  std::uint32_t clients_fenced;
  std::uint32_t classes;
  std::uint32_t zero;
};

#pragma pack(pop)

/// The longest answer to a change; a stream keeps one.
constexpr std::size_t pool_change_answer_max =
    sizeof(answer_head) + std::max(sizeof(pool_alloc_answer), sizeof(pool_write_if_answer));

static_assert(sizeof(pool_settings) == 76 && sizeof(pool_object) == 16 && sizeof(pool_where) == 24);

}  // namespace fm::protocol
