// The messages between a paged range's owner (fm::paged) and an agent. They share heads, framing and rules with
// protocol/heap_messages.h: little-endian packed structs, every field checked before use. A message that does not
// follow this file costs its sender the connection.
//
// A space is the part of a paged range that one agent keeps, in regions that the owner numbers (the index). The agent
// promises the space an amount of memory; the owner changes it as agents come and leave. A region comes into being when
// it is first asked for. Pages are read and written one-sidedly and in place. Only the owner knows which of them mean
// anything, and what lies where: a page that was never written, or was discarded, is never read. If a write breaks half
// way, the page is half old; the owner still has it, and writes it again before it lets go of it.
#pragma once

#include <cstdint>

namespace fm::protocol {

constexpr std::uint16_t paged_protocol_major = 2;
constexpr std::uint16_t paged_protocol_minor = 0;

enum class paged_message : std::uint16_t {
  open_space = 96,      ///< open_space_body -> open_space_answer
  close_space = 97,     ///< {} -> {}: everything of this space is freed at once
  space_region = 98,    ///< space_region_body -> space_region_answer + key: made when it is not there
  release_region = 99,  ///< space_region_body -> {}: its bytes mean nothing any more; no operation on it is in flight
  audit_space = 100,    ///< {} -> audit_space_answer: the agent verifies its books of this space
  resize_space = 101,   ///< resize_space_body -> resize_space_answer: another amount of memory is promised
  drain_space = 102,    ///< notice agent -> owner, drain_notice of heaps: it wants to be left, or not any more
};
constexpr std::uint16_t paged_message_first = 96;
constexpr std::uint16_t paged_message_last = 102;

#pragma pack(push, 1)

struct open_space_body {
  std::uint16_t major, minor;
  std::uint32_t zero;
  std::uint64_t space_id[2];  ///< random, chosen by the owner; names the space across reconnects
  std::uint64_t incarnation;  ///< of the owner process, random; resume needs the same one
  std::uint64_t zero_bytes;   ///< nothing is promised yet
  std::uint32_t lease_ms;     ///< wanted; 0 = the agent's default
  std::uint32_t resume;       ///< 1: this space was opened before and must still be there
  char name[48];              ///< for logs and status, zero-terminated
};

struct open_space_answer {
  std::uint64_t region_bytes;    ///< a power of two
  std::uint64_t promised_bytes;  ///< to this space; of one that is resumed, what it had
  std::uint64_t room_bytes;      ///< that could be promised beyond, in whole regions
  std::uint32_t regions;         ///< that exist
  std::uint32_t lease_ms;
  std::uint16_t zone;    ///< a number for the name of its failure domain; 0: it has none
  std::uint16_t drains;  ///< 1: the agent wants to be left
  std::uint32_t zero;
};

/// The agent must have as much beyond what it has promised to others. A space never has more regions than it was
/// promised; those that it has stay if less is promised.
struct resize_space_body {
  std::uint64_t bytes;
};

struct resize_space_answer {
  std::uint64_t promised_bytes;
  std::uint64_t room_bytes;  ///< that could be promised beyond
};

struct space_region_body {
  std::uint32_t index;     ///< the owner's number; any will do
  std::uint32_t existing;  ///< 1: it was made before and must still be there
};

struct space_region_answer {
  std::uint32_t region;
  std::uint32_t generation;
  std::uint64_t bytes;
};

struct audit_space_answer {
  std::uint64_t regions;  ///< that exist
  std::uint64_t faults;   ///< contradictions found
};

#pragma pack(pop)

static_assert(sizeof(open_space_body) == 96 && sizeof(open_space_answer) == 40);

}  // namespace fm::protocol
