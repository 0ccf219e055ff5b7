// The messages between the primary of a pool and its backup, both agents. They share heads, framing and rules with
// protocol/heap_messages.h: little-endian packed structs, every field checked before use. A message that does not follow
// this file costs its sender the connection.
//
// A pool with replicas is a pair: the primary, which serves clients, and a backup, which stores the same objects under
// the same names. The primary writes down what it changes, in the order of one count (the log). The backup applies
// them in that order. A change counts when the backup has said that it has it.
//
//   primary                                            backup
//   open_backup ─────────────────────────────────────► an empty copy, which is learning
//   backup_records: an image of what there is,
//     and every change made meanwhile ───────────────► applies them; says how far it has come
//   backup_joined, under the next term ──────────────► it has everything: it may take over, from `tenure` after the
//                                                      last message of the primary on, if it is told to
//   backup_records, backup_beat ─────────────────────► applies; promises not to take over for another `tenure`
//   leave_backup ────────────────────────────────────► it is not a member any more; also when it has said that it leaves
//   take_over ───────────────────────────────────────► the primary leaves: the backup is the primary, if it is told to
//
// Term. Each change of who is in the pair has a number. Whoever knows of a later term obeys no earlier one.
//
// Frames and virtual blocks have the same numbers on both, and objects are in the same slots. Where a frame's memory
// is, is each agent's own business.
#pragma once

#include <cstring>
#include <span>

#include "pool_messages.h"

namespace fm::protocol {

constexpr std::uint16_t backup_protocol_major = 3;
constexpr std::uint16_t backup_protocol_minor = 0;

enum class backup_message : std::uint16_t {
  open_backup = 104,     ///< open_backup_body -> open_backup_answer
  backup_records = 105,  ///< backup_records_body + records -> backup_answer
  backup_joined = 106,   ///< backup_joined_body -> backup_answer
  backup_beat = 107,     ///< {} -> backup_answer: a promise is wanted
  leave_backup = 108,    ///< {} -> {}: the pool has ended, or has another backup
  take_over = 109,       ///< take_over_body -> backup_answer: the primary serves no more, and nobody reads from it
};
constexpr std::uint16_t backup_message_first = 104;
constexpr std::uint16_t backup_message_last = 109;

#pragma pack(push, 1)

struct open_backup_body {
  std::uint16_t major, minor;
  std::uint32_t slot;      ///< of the pool; see pool_open_replicated
  std::uint32_t instance;  ///< not zero
  std::uint32_t resume;    ///< 1: this agent is the primary's backup, and must still be it; 0: it begins with nothing
  std::uint64_t tenant[2];
  std::uint64_t primary;  ///< the agent, by the random number that it has chosen when it started
  std::uint64_t term;
  std::uint64_t quota_bytes;
  std::uint32_t tenure_ms;     ///< how long a promise holds
  std::uint32_t region_bytes;  ///< of the primary: the backup has regions of the same size
  pool_settings settings;
  char name[48];
};
/// An agent that is named as the primary opens nothing, and answers. Whoever wants to know whether it has a number asks so,
/// with resume, for a slot that no pool has: others refuse with not_found.
struct open_backup_answer {
  std::uint64_t agent;    ///< the backup's number
  std::uint64_t applied;  ///< the last record that it has applied
  std::uint16_t zone;     ///< a number for the name of its failure domain (zone_number); 0: it has none
  std::uint16_t zero[3];
};

/// Followed by records with growing numbers: `count` of them, `bytes` in all. Refused as conflict when others are missing
/// before them, as stale when this agent does not follow that primary any more.
struct backup_records_body {
  std::uint64_t after;  ///< the number of the record before the first one; 0: there is none. It must be applied
  std::uint32_t count;
  std::uint32_t bytes;
};
struct backup_joined_body {
  std::uint64_t term;
};
struct take_over_body {
  std::uint64_t term;  ///< of the pair that it ends
};
struct backup_answer {
  std::uint64_t applied;
  std::uint32_t leaves;  ///< 1: its agent is to be emptied, and another one should be the backup
  std::uint32_t zero;
};

// ---- records ----

enum class record_kind : std::uint16_t {
  frame = 1,    ///< frame_record: there is a frame, and nothing is in it
  primary = 2,  ///< frame_record: its births are another virtual block's from now on
  object = 3,   ///< object_record + payload: it was allocated, written, or has got another name
  vacate = 4,   ///< vacate_record: nobody lives in a slot any more
  merge = 5,    ///< merge_record + slot pairs: what is in one frame is in another one now, and the first one is gone
  bury = 6,     ///< bury_record: the frame is gone
  expiry = 7,   ///< expiry_record
  bind = 8,     ///< bind_record + name
  unbind = 9,   ///< bind_record + name
  client = 10,  ///< client_record: it has the pool open
  client_gone = 11,  ///< client_record
  // Of an image alone:
  block = 12,        ///< block_record: a virtual block that is mapped to a frame beside the one of births
  stored = 13,       ///< stored_record + payload: an object as it is
  generations = 14,  ///< generations_record + u32[]: of virtual blocks, mapped or not
  stream = 15,       ///< stream_record + the answer: the last change of a client's stream
  thresholds = 16,   ///< u32 of each size class
  mark = 17,         ///< {}: nothing has changed
};

struct record_head {
  std::uint32_t bytes;  ///< of the record, with this head
  std::uint16_t kind;
  std::uint16_t zero;
  std::uint64_t number;  ///< its low half is the version of an object that it is about
};

/// The change that a client has asked for, if one has: whoever takes over does not make it again.
struct record_origin {
  std::uint64_t client[2];  ///< zero: nobody has
  std::uint64_t number;
  std::uint32_t stream;
  std::uint32_t type;  ///< message_type
};

struct frame_record {
  std::uint32_t frame, size_class, arena;
  std::uint32_t vblock;           ///< that births are of
  std::uint32_t last_generation;  ///< of that one
  std::uint32_t zero;
};
struct object_record {
  record_origin origin;
  std::uint32_t frame, slot;
  std::uint32_t vblock, generation, index;
  std::uint32_t old_vblock, old_index;  ///< a release: what it was named before
  std::uint32_t how;                    ///< object_change
  std::uint64_t expires_ms;             ///< of an allocation, from when the message is sent; 0: not by itself
};
enum class object_change : std::uint32_t { allocated = 0, written = 1, renamed = 2 };
struct vacate_record {
  record_origin origin;
  std::uint32_t frame, slot;
  std::uint32_t vblock, index;
};
/// Followed by `count` pairs of u16: a slot of `from`, a slot of `to`.
struct merge_record {
  std::uint32_t from, to;
  std::uint32_t count, zero;
};
struct bury_record {
  std::uint32_t frame, zero;
};
struct expiry_record {
  record_origin origin;
  std::uint32_t frame, slot;
  std::uint64_t expires_ms;  ///< from when the message is sent; 0: it does not
};
struct bind_record {
  record_origin origin;
  std::uint64_t who, what;
};
struct client_record {
  std::uint64_t id[2];
  std::uint32_t lease_ms, zero;
};
struct block_record {
  std::uint32_t frame, vblock;
};
struct stored_record {
  std::uint32_t frame, slot;
  std::uint32_t vblock, generation, index;
  std::uint32_t version;
  std::uint64_t expires_ms;  ///< from when the message is sent; 0: not by itself
};
struct generations_record {
  std::uint32_t first, count;
};
struct stream_record {
  std::uint64_t client[2];
  std::uint64_t number;
  std::uint32_t stream, zero;
};

#pragma pack(pop)

/// The fixed part of a record's body, and what follows it; false when it is too short.
template <class T>
bool split_record(std::span<const std::byte> body, T& fixed, std::span<const std::byte>& tail) noexcept {
  if (body.size() < sizeof fixed) return false;
  std::memcpy(&fixed, body.data(), sizeof fixed);
  tail = body.subspan(sizeof fixed);
  return true;
}

static_assert(sizeof(record_head) == 16 && sizeof(record_origin) == 32 && sizeof(object_record) == 72);

}  // namespace fm::protocol
