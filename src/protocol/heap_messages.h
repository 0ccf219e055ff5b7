// The messages between a heap's owner (remote/agent_session.h) and an agent: little-endian packed structs, as RDMA
// writes them.
// A message is a `message_head` and a body; its answer is an `answer_head` and a body. The receiver checks every field
// before use. A message that does not follow this file costs its sender the connection.
// Both sides include this file; it sees neither of them.
//
// Terms. A remote reference is a reference to an object of another agent's tablet; the message that carries them is
// `remote_references`. A slot is dirty when its owner has a newer version than the home copy; `add_dirty` names such slots.
//
// Numbering of batches. Each (heap, agent) pair has one sequence, from 1, without gaps. The agent applies index
// messages in that order, each once. If a number is repeated, the answer is ok and nothing is applied. If a number is
// further ahead than the next, the answer is `stale`. Reconnecting starts with open_heap(resume), whose answer carries
// the last number applied; the owner sends again the batches after it.
//
// Collecting. The owner leads; an agent traces the objects that it stores. The owner sends begin_cycle, then add_dirty
// until it has named every slot whose home copy may be older than the snapshot, then trace. A `trace` message brings
// slots to mark: roots, overwritten references, other agents' remote references. Its answer takes remote references,
// and references to dirty slots: the latter are marked here and scanned by the owner. If such an object has meanwhile
// been written back and evicted, the owner sends its slot with `scan_at_home`. Every message names the cycle; one that
// names another is refused as `stale`. All of them may be repeated without harm after a reconnect: marking twice
// changes nothing, and a `trace` that repeats the last number gets the same references again.
//
// Agents that talk. Agents may send remote references to each other. An agent that is willing answers begin_cycle with
// a ticket, a random number for this cycle. The owner gives the ticket to the other agents (trace_peers), with the
// address, and the heap's id and tablets there, before it sends the first trace of the cycle to anybody. An agent then
// opens a session of its own with the other one by open_peer, and sends it `remote_references`. They are marked and queued before
// they are answered. An agent is `idle` only if all that it has sent was answered so. If a reference cannot be sent,
// or is not answered in time, it goes to the owner, and so do all later ones for that agent in the cycle. When every
// agent is idle at one moment and the owner has nothing left, marking is over; src/collector/marking/termination.h says how
// the owner finds such a moment. Agents that do not talk become busy only by messages of the owner.
//
// Releasing. The owner alone says which slots are dead, since it alone knows which were allocated at the snapshot: it
// reads the marks, frees its own words, and releases the slots. A slot is released only when no batch that is not
// applied can name it. An agent refuses, as `corrupt`, to release a slot that was marked or whose tablet is not part
// of the cycle.
//
// Replicas. A tablet has one primary, whose agent traces it, and perhaps backups, which only store it. Batches, and the
// slots that are released, go to all of them; each has entries and addresses of its own. `replicate_tablets` makes the
// agent a backup and empties the tablet there first, so a member that comes again never keeps what it had.
// A reference to a backup's tablet is a remote reference. The owner fills a new backup beside its own batches: a batch
// with the flag `index_import` brings copies of objects as another member has them, and where the slot has an entry
// already, that is newer. `promote_tablets` makes the agent the primary. src/cache/tablets/replica_set.h has the owner's half.
// `leave_tablets` ends the agent's part in them: it forgets what it has, and is the empty backup of nobody.
//
// Detaching. A heap may outlive its owner: `detach_heap` leaves a record, which is the owner's own and which the agent does
// not read, under a name and a secret. When the session ends, the heap stays for `keep_ms` in place of its lease.
// `attach_heap` gives the record to whoever knows both, and with `take` makes the sender the heap's owner, whose batches
// go on with the next number. The record is gone as soon as the heap changes, or by `claim_heap`: an attempt that fails
// before that leaves the heap to the next one. src/heap/detach.cc has the owner's half.
//
// Evacuating. The owner asks for it after a cycle, with a number that grows. If it asks again with the same number,
// the answer says how far the evacuation is. The agent moves live objects out of sparse sealed regions, lowest live
// ratio first, into regions of its own. It does so beside its other work, and whether or not the owner asks again or
// is connected. A later number ends the evacuation under way. Emptied regions retire as any other.
#pragma once

#include <cstdint>
#include <farmem/detail/barriers/word.h>
#include <string_view>

namespace fm::protocol {

constexpr std::uint16_t protocol_major = 2;
/// 1: agents that talk; 2: region_answer::left; 3: retired_answer; and the following.
constexpr std::uint16_t protocol_minor = 7;
constexpr std::uint16_t minor_of_replicas = 4;
constexpr std::uint16_t minor_of_leaving = 5;
constexpr std::uint16_t minor_of_detaching = 6;
constexpr std::uint16_t minor_of_load = 7;

enum class message_type : std::uint16_t {
  open_heap = 1,        ///< open_heap_body -> open_heap_answer
  close_heap = 2,       ///< {} -> {}: everything of this heap is freed at once
  register_types = 3,   ///< register_types_body + type_record[] -> {}
  grant_tablets = 4,    ///< grant_tablets_body -> {}
  open_region = 5,      ///< {} -> region_answer + key: a fresh region for appending
  region_info = 6,      ///< region_name -> region_answer + key
  seal_region = 7,      ///< region_name -> {}: no more batches will come for it
  index = 8,            ///< index_body -> index_answer
  fetch_slot = 9,       ///< fetch_slot_body -> fetch_slot_answer + page of hints + bytes of the home copy
  retire_region = 10,   ///< notice agent -> owner, region_name: no live entry names it any more
  retired_region = 11,  ///< owner -> agent, region_name -> retired_answer: no read of it is in flight nor will begin
  renew = 12,           ///< {} -> renew_answer: renews the lease; any message does
  read_entries = 13,    ///< read_entries_body -> u64[]: entries, for verify
  audit = 14,           ///< {} -> audit_answer + text: the agent verifies this heap
  statistics = 15,      ///< {} -> text, JSON
  begin_cycle =
      16,  ///< cycle_name -> begin_cycle_answer, or {} of an agent that does not talk: marks for every tablet that is
           ///< granted now; whatever was before is thrown away
  add_dirty = 17,  ///< dirty_body + slot_bits[] -> {}: slots that the owner scans, see "Collecting"
  trace =
      18,  ///< trace_body + u64 slots[] -> trace_answer + trace_counts, if it has been told of peers + u64 remote_references[]
  read_marks = 19,     ///< read_marks_body -> 8 KiB of mark bits for each tablet
  release_slots = 20,  ///< release_body + slot_bits[] -> release_answer: no entry of these slots any more
  end_cycle = 21,      ///< cycle_name -> end_cycle_answer: marks are thrown away
  traced = 22,         ///< notice agent -> owner, cycle_name: idle, or remote references wait for the owner
  census = 23,         ///< census_body -> a bit for each slot that has a home copy + census_record[]: what those are
  evacuate = 24,       ///< evacuate_body -> evacuate_answer, see "Evacuating"
  trace_peers = 25,    ///< peers_body + (peer_record + tablet_range[] + address)[] -> {}, see "Agents that talk"
  open_peer = 26,      ///< open_peer_body -> {}: the other end of this session is an agent
  remote_references =
      27,  ///< remote_references_body + u64 slots[] -> {}, of such a session: they are marked and queued
  replicate_tablets = 28,  ///< grant_tablets_body -> {}: the agent is a backup of them, and has nothing of them
  promote_tablets = 29,    ///< grant_tablets_body -> {}: it is their primary from now on
  leave_tablets = 30,      ///< grant_tablets_body -> {}: it stores nothing of them any more, whatever it was
  drain = 31,              ///< notice agent -> owner, drain_notice: it wants to be left, or not any more
  detach_heap = 32,        ///< detach_heap_body + record -> {}, see "Detaching"
  attach_heap = 33,        ///< attach_heap_body -> attach_heap_answer + record
  claim_heap = 34,         ///< {} -> {}: nobody attaches the heap any more

  // Of pools; the bodies are in protocol/pool_messages.h.
  pool_open = 64,        ///< pool_open_body -> pool_open_answer
  pool_close = 65,       ///< {} -> {}: this client is done; what it allocated stays
  pool_alloc = 66,       ///< pool_alloc_body + payload -> pool_alloc_answer
  pool_read = 67,        ///< pool_read_body -> pool_read_answer + payload
  pool_write = 68,       ///< pool_write_body + payload -> pool_where
  pool_free = 69,        ///< pool_object_body -> {}
  pool_release = 70,     ///< pool_object_body -> pool_where: the object has a new identity, the old one names nothing
  pool_compact = 71,     ///< pool_compact_body -> pool_compact_answer: a bounded step
  pool_table = 72,       ///< pool_table_body -> pool_table_answer: where a piece of the table is
  pool_region = 73,      ///< pool_region_body -> region_answer + key
  pool_pass = 74,        ///< pool_pass_body -> pool_pass_answer
  pool_statistics = 75,  ///< {} -> pool_statistics_answer + pool_class_record[]
  pool_audit = 76,       ///< {} -> audit_answer + text
  pool_epoch = 77,       ///< notice agent -> client, pool_epoch_notice: pass it
  // Since version 3.1 of pools:
  pool_read_version = 78,  ///< pool_read_body -> pool_read_version_answer + payload
  pool_write_if = 79,      ///< pool_write_if_body + payload -> pool_write_if_answer: if it has that version still
  pool_bind = 80,          ///< pool_bind_body + name -> {}: the name names that object from now on
  pool_unbind = 81,        ///< pool_unbind_body + name -> {}
  pool_lookup = 82,        ///< name -> pool_lookup_answer
  pool_list = 83,          ///< pool_list_body -> pool_list_answer + pool_listed[]: a bounded piece of all objects
  pool_tune = 84,          ///< pool_tune_body -> {}: what the maker of a pool sets by size class
  // Since version 3.2 of pools:
  pool_alloc_expiring = 85,  ///< pool_alloc_expiring_body + payload -> pool_alloc_answer
  pool_expire = 86,          ///< pool_expire_body -> {}: when the object expires, or that it does not
  pool_expiries = 87,        ///< {} -> pool_expiries_answer: counts
  // Since version 3.3 of pools:
  pool_replicas = 88,  ///< {} -> pool_replicas_answer + address of the backup

  // 96 to 103 are those of paged ranges, in protocol/paged_messages.h, and 104 to 111 those of the two agents of a pool
  // with replicas, in protocol/pool_replica_messages.h.
};

#pragma pack(push, 1)

struct message_head {
  std::uint16_t type;
  std::uint16_t zero;
  std::uint32_t body_bytes;
};

struct answer_head {
  std::uint16_t type;  ///< of the message answered
  std::uint16_t code;  ///< fm::errc; anything but ok: the body is a text that says why
  std::uint32_t body_bytes;
};

struct open_heap_body {
  std::uint16_t major, minor;
  std::uint32_t zero;
  std::uint64_t heap_id[2];   ///< random, chosen by the owner; names the heap across reconnects
  std::uint64_t incarnation;  ///< of the owner process, random; resume needs the same one
  std::uint64_t quota_bytes;  ///< wanted; 0 = whatever the agent gives
  std::uint32_t lease_ms;     ///< wanted; 0 = the agent's default
  std::uint32_t resume;       ///< 1: this heap was opened before and must still be there
  char name[48];              ///< for logs and status, zero-terminated
};

struct open_heap_answer {
  std::uint64_t region_bytes;
  std::uint64_t quota_bytes;
  std::uint64_t applied_seq;  ///< last index message applied
  std::uint32_t lease_ms;
  std::uint16_t minor;  ///< protocol_minor of the agent; 0: less than minor_of_replicas
  std::uint16_t zone;   ///< a number for the name of its failure domain; 0: it has none
};

/// To owners of minor_of_load and later; nothing to others.
struct renew_answer {
  std::uint32_t busy_permille;  ///< agent/base/load_meter.h; more than 1000 if threads wait
  std::uint32_t zero;
};

constexpr std::uint32_t heap_name_bytes = 64;  ///< of a name and of a secret, zeros behind it; at least one
constexpr std::uint32_t heap_record_bytes_max = (1u << 20) - 4096;  ///< one message, under the transports' default cap

/// Refused as conflict if another heap waits for an owner under the name. One of the same lineage gives way, unless it is
/// being attached: that is what this agent had of the heap when it was last detached, if it was left out since.
struct detach_heap_body {
  char name[heap_name_bytes];
  char secret[heap_name_bytes];
  std::uint64_t lineage[2];  ///< random; the same from owner to owner
  std::uint64_t keep_ms;     ///< wanted, from the end of the owner's session; at most what the agent allows
  std::uint32_t record_bytes;
  std::uint32_t zero;
};

/// Refused as not_found, access_denied (the secret is another one) or conflict (the heap has an owner, whom the text names).
struct attach_heap_body {
  std::uint16_t major, minor;
  std::uint32_t take;  ///< 0: the record alone; the session has opened nothing then
  char name[heap_name_bytes];
  char secret[heap_name_bytes];
  std::uint64_t incarnation;  ///< of the new owner
  char owner[48];             ///< its name, for logs and for who comes later, zero-terminated
};

struct attach_heap_answer {
  std::uint64_t heap_id[2];
  open_heap_answer opened;  ///< of no meaning unless `take`
  std::uint32_t left;       ///< as region_answer::left
  std::uint32_t record_bytes;
};

/// Of a zone's name; 0 of an empty one. Two names may have one number: then they count as one zone, which is the safe side.
constexpr std::uint16_t zone_number(std::string_view name) {
  std::uint32_t h = 2166136261u;  // FNV-1a
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  const auto n = static_cast<std::uint16_t>(h ^ h >> 16);
  return name.empty() ? 0 : n == 0 ? 1 : n;
}

struct register_types_body {
  std::uint32_t count;
  std::uint32_t zero;
};

/// Followed by `ref_count` u32 offsets and `name_bytes` characters, padded together to a multiple of 8.
struct type_record {
  std::uint32_t id;    ///< 24 bits, the owner's number
  std::uint32_t kind;  ///< 0 object, 1 array
  std::uint64_t layout_hash;
  std::uint32_t bytes;      ///< of the object's payload, or of one element
  std::uint32_t ref_count;  ///< references in the object, or in one element
  std::uint32_t name_bytes;
  std::uint32_t zero;
};

/// Of grants, replicas, promotions and leaving. At most as many tablets as the heap's quota is worth (1024, and one more for every 16 KiB), else quota_exceeded.
struct grant_tablets_body {
  std::uint32_t first;
  std::uint32_t count;
};

struct drain_notice {
  std::uint32_t drains;  ///< 1: the owner is to move its tablets away and close the heap; 0: it may stay
  std::uint32_t zero;
};

struct region_name {
  std::uint32_t region;
  std::uint32_t generation;
};

struct region_answer {
  std::uint32_t region;
  std::uint32_t generation;
  std::uint64_t bytes;           ///< of the region
  std::uint64_t readable_bytes;  ///< complete batches from the start; reads are clipped to it
  std::uint32_t sealed;
  std::uint32_t left;  ///< one more than the regions that the heap can still open, as things are; 0: not told
};

/// The copies of an evacuation count as taken: a region that comes back is not always one more than before.
struct retired_answer {
  std::uint32_t left;  ///< as in region_answer
  std::uint32_t reserved;
};

struct index_body {
  std::uint64_t incarnation;
  std::uint64_t seq;
  std::uint32_t region;
  std::uint32_t generation;
  std::uint64_t offset;  ///< of the batch_header, a multiple of 8
  std::uint32_t length;  ///< batch_header included, a multiple of 8
  std::uint32_t crc;     ///< of the whole batch, with batch_header::crc taken as 0
  std::uint32_t count;   ///< objects
  std::uint32_t flags;   ///< 0, index_abandoned or index_import
};

/// The batch was never completely written; the agent skips it: nothing is indexed, its bytes are garbage, and the
/// walk of the region by batch headers is kept whole by a header that the agent writes itself.
constexpr std::uint32_t index_abandoned = 1;
/// Copies that another member of the replica set has: a slot that has an entry keeps it.
constexpr std::uint32_t index_import = 2;

struct index_answer {
  std::uint64_t applied_seq;
};

struct fetch_slot_body {
  std::uint64_t slot;
  std::uint32_t with_page;  ///< 1: the answer carries the entries of the slot's page of 512
  std::uint32_t bytes_max;  ///< of the home copy; a larger one is answered with its hint only
};

/// Followed by 512 u64 entries when with_page, then by `bytes` bytes of the home copy, header first.
struct fetch_slot_answer {
  std::uint64_t entry;         ///< home_address word; 0: granted but nothing stored; word::free: not granted
  std::uint32_t page_entries;  ///< 0 or 512
  std::uint32_t bytes;
};

struct read_entries_body {
  std::uint64_t first_slot;
  std::uint32_t count;  ///< at most 65536
  std::uint32_t zero;
};

/// A step of counting objects by type: bounded, and without a lock that anybody waits for.
struct census_body {
  std::uint64_t first_slot;  ///< a multiple of 512
  std::uint32_t count;       ///< a multiple of 512, at most census_slots_max, all of one tablet
  std::uint32_t zero;
};
constexpr std::uint32_t census_slots_max = 16384;

/// Follow `count` / 64 words of bits; one for each type that was met, in the order of their numbers.
struct census_record {
  std::uint32_t type;
  std::uint32_t zero;
  std::uint64_t objects;
  std::uint64_t bytes;  ///< of home copies, headers included
};

struct audit_answer {
  std::uint64_t objects;         ///< entries that name a copy
  std::uint64_t live_bytes;      ///< of those copies, headers included
  std::uint64_t garbage_bytes;   ///< appended bytes that no entry names
  std::uint64_t metadata_bytes;  ///< entries, region records, type records
  std::uint64_t faults;          ///< contradictions found; the text names the first ones
};

struct cycle_name {
  std::uint64_t cycle;  ///< from 1, growing
};

struct begin_cycle_answer {
  std::uint64_t ticket[2];  ///< whoever sends remote references of this cycle has to know it
};

/// Of no use once tracing has begun, and refused as stale then. Whatever an earlier one of the same cycle said is
/// forgotten.
struct peers_body {
  std::uint64_t cycle;
  std::uint32_t count;  ///< peers that follow, at most trace_peers_max
  std::uint32_t zero;
};
constexpr std::uint32_t trace_peers_max = 254;
constexpr std::uint32_t peer_url_bytes_max = 1024;

/// Followed by `ranges` tablet_range and `url_bytes` characters, padded to a multiple of 8: the address as the owner
/// uses it.
struct peer_record {
  std::uint64_t heap_id[2];  ///< the heap's on that agent
  std::uint64_t ticket[2];
  std::uint32_t ranges;
  std::uint32_t url_bytes;
};

/// Tablets that the peer has, each named once in a message, and none of them the receiver's own. References to
/// tablets that nobody is said to have go to the owner.
struct tablet_range {
  std::uint32_t first;
  std::uint32_t count;
};

struct open_peer_body {
  std::uint16_t major, minor;
  std::uint32_t zero;
  char name[48];  ///< of the agent that asks, for logs, zero-terminated
};

/// Refused as not_found or stale when there is no such heap or cycle, and as access_denied when the ticket is another
/// one.
struct remote_references_body {
  std::uint64_t heap_id[2];  ///< of the receiver's heap
  std::uint64_t ticket[2];   ///< the receiver's
  std::uint64_t cycle;
  std::uint32_t count;  ///< slots that follow, at most remote_references_max
  std::uint32_t zero;
};
constexpr std::uint32_t remote_references_max = 8192;

/// Some slots of a page of 512.
struct slot_bits {
  std::uint64_t first_slot;  ///< a multiple of 512
  std::uint64_t bits[8];     ///< slot i: word i / 64, bit i % 64
};

/// Of no use once tracing has begun, and refused as stale then. Slots of tablets that are not part of the cycle are
/// passed over.
struct dirty_body {
  std::uint64_t cycle;
  std::uint32_t count;  ///< slot_bits that follow
  std::uint32_t zero;
};

/// In a slot that a trace message brings: its home copy is no longer older than the snapshot, whatever add_dirty said.
constexpr std::uint64_t scan_at_home = std::uint64_t{1} << 63;

struct trace_body {
  std::uint64_t cycle;
  std::uint32_t number;          ///< of this message in the cycle, from 1 without gaps
  std::uint32_t count;           ///< slots that follow
  std::uint32_t references_max;  ///< that the answer may carry
  std::uint32_t zero;
};

struct trace_answer {
  std::uint64_t marked;         ///< objects of this agent, so far
  std::uint64_t scanned_bytes;  ///< of home copies
  std::uint64_t queued;         ///< objects that are marked and not scanned yet, about
  std::uint32_t idle;           ///< 1: nothing to do, nothing for the owner, and all references to peers acknowledged
  std::uint32_t remote_references;  ///< that follow
};

/// Of the cycle so far.
struct trace_counts {
  std::uint64_t references_sent;      ///< queued for peers, before anything is sent
  std::uint64_t references_received;  ///< from peers, counted when all that came of them is queued
  std::uint64_t
      references_returned;   ///< of those sent: not acknowledged when their peer was given up, and left to the owner
  std::uint32_t peers_lost;  ///< given up for this cycle
  std::uint32_t zero;
};

struct read_marks_body {
  std::uint64_t cycle;
  std::uint32_t first_tablet;
  std::uint32_t count;  ///< at most marks_tablets_max; a tablet that is not part of the cycle is answered with ones
};
constexpr std::uint32_t marks_tablets_max = 64;
constexpr std::uint64_t marks_bytes = detail::tablet_slots / 8;  ///< bit i of the tablet: byte i / 8, bit i % 8

struct release_body {
  std::uint64_t cycle;
  std::uint32_t count;  ///< slot_bits that follow
  std::uint32_t zero;
};

struct release_answer {
  std::uint64_t entries;  ///< that named a copy and name none now
  std::uint64_t bytes;    ///< of those copies, rounded up to their size classes
};

struct end_cycle_answer {
  std::uint64_t objects;     ///< entries that name a copy
  std::uint64_t live_bytes;  ///< of those, rounded up to their size classes
  std::uint64_t regions;
  std::uint64_t tracing_ns;  ///< CPU time of the agent's tracing threads in this cycle
};

/// In which order copies are laid down. Address order empties one region after the other; the other two follow
/// references from object to object within all regions chosen, so that what is reached together lies together.
enum class evacuation_order : std::uint32_t { address = 0, depth_first = 1, breadth_first = 2 };

struct evacuate_body {
  std::uint64_t number;      ///< of the evacuation, from 1, growing
  std::uint32_t order;       ///< evacuation_order
  std::uint32_t below_live;  ///< of evacuation_whole: sealed regions with a lower share of live bytes are evacuated
};
/// As below_live: every sealed region, the agent's own that it is filling included.
constexpr std::uint32_t evacuation_whole = 1u << 16;

struct evacuate_answer {
  std::uint64_t objects;      ///< moved so far
  std::uint64_t bytes;        ///< appended so far
  std::uint64_t lost;         ///< copied in vain, because a newer copy came from the owner
  std::uint64_t regions;      ///< that were chosen
  std::uint64_t emptied;      ///< of them: without live copies now
  std::uint64_t cpu_ns;       ///< that it took so far
  std::uint32_t order;        ///< evacuation_order that is followed: address where room is too short for another
  std::uint32_t done;         ///< 1: nothing more will be moved
  std::uint32_t left_behind;  ///< 1: regions were left for want of room
  std::uint32_t zero;
};

/// What stands at the start of every batch in a region; home copies follow back to back, each a multiple of 8 bytes.
/// A header with count 0 is filler or an abandoned batch: `length` bytes to skip, crc of the header alone. The agent
/// writes it over every hole when a region is sealed; a hole too small for a header is filled with zero words.
struct batch_header {
  std::uint32_t magic;
  std::uint32_t crc;     ///< crc32c of the batch with this field 0
  std::uint64_t seq;     ///< of the owner; 0 for batches that the agent wrote itself, moving objects
  std::uint32_t length;  ///< this header included
  std::uint32_t count;
};
constexpr std::uint32_t batch_magic = 0x31424d46;  // "FMB1"

#pragma pack(pop)

static_assert(sizeof(open_heap_body) == 96 && sizeof(type_record) == 32 && sizeof(index_body) == 48);
static_assert(sizeof(peer_record) == 40 && sizeof(remote_references_body) == 48 && sizeof(open_peer_body) == 56);
static_assert(sizeof(detach_heap_body) == 160 && sizeof(attach_heap_body) == 192 && sizeof(attach_heap_answer) == 56);
static_assert(sizeof(batch_header) == 24 && sizeof(region_answer) == 32 && sizeof(audit_answer) == 40);

}  // namespace fm::protocol
