// The format of a pool's blocks (<farmem/pool/pool.h>) in an agent's regions, for the agent, which writes them, and for
// clients, which read them one-sidedly: size classes, the header of an object, the word of the table of virtual blocks,
// and how a reader tells a whole object from one that it caught half way.
//
//   an object       header (24 bytes), payload
//   header          word 0   31..0 virtual block that it was born in | 63..32 generation
//                   word 1   15..0 birth index | 31..16 flags        | 63..32 version
//                   word 2   31..0 payload bytes                     | 63..32 checksum
//   table word      63 valid | 62..57 class | 56..44 offset / 4 KiB | 43..24 region, as the pool counts them
//                   23 old | 22..0 changes
//
// A virtual block is old if its frame gives new births to another one: a merge has moved its objects there. Since
// version 3.1 of the protocol.
//
// Identity is (virtual block, index, generation): where the object was born, not where it is. It is unique for ever:
// the generation counts the births of a virtual block and never begins again.
//
// A pool on an agent has an instance number. Its low byte is the tag of the pool's tenant and name, so a client can tell
// a pointer into an earlier instance of its own pool from one into a pool of others.
//
// Two ways to notice a torn read, chosen by size:
//   checksum   the payload is contiguous; CRC-32C over identity, version, size and payload. Sound whatever the order in which
//              a transport copies bytes, but for one torn read in 2^32.
//   versions   every cache line after the first begins with the version (FaRM section 4; CoRM section 3.2.3). That relies
//              on lines being read whole, which network cards do and memcpy does not; so the reader brackets the object
//              by two more reads of the header, unless it is told that lines can be trusted.
#pragma once

#include "base/base.h"
#include "base/crc32c.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace fm::protocol::blocks {

/// The low byte of the instance numbers of the pools of that tenant and name. Others' pools have the same by chance, one
/// in 256: the tag chooses between two errors and protects nothing.
inline std::uint8_t instance_tag(const std::uint64_t (&tenant)[2], std::string_view name) noexcept {
  return static_cast<std::uint8_t>(detail::crc32c(name.data(), name.size(), detail::crc32c(tenant, sizeof tenant)));
}

using fm::detail::cache_line_bytes;

constexpr std::uint64_t frame_bytes_min = 4096;      ///< blocks and pieces of the table are multiples of it
constexpr std::uint64_t block_bytes_max = 1u << 20;  ///< whatever the size class
constexpr std::uint32_t slot_bytes_max =
    512u << 10;  ///< so that an object and its message fit into one frame of any transport
constexpr std::uint32_t vblock_limit = 1u << 26;
constexpr std::uint32_t ordinal_limit = 1u << 20;
constexpr std::uint32_t chunk_words = frame_bytes_min / 8;  ///< of the table: one frame of words

// ---- size classes ----
// First those of half a cache line or whole ones: 32, 64 .. 256, then four steps a doubling. They are what a pool's
// settings name. Then, since version 3.4 of the protocol, some between the small ones, whose slots share cache lines:
// where a checksum says what is whole, that is no harm, and of objects of 32 bytes an eighth more fits. A pool has them
// if layout::shares_lines says so.
constexpr std::uint32_t line_class_count = 49;
inline constexpr std::array<std::uint32_t, 8> slots_between{40, 48, 56, 80, 96, 112, 160, 224};
constexpr std::uint32_t class_count = line_class_count + std::uint32_t(slots_between.size());

constexpr std::uint32_t slot_bytes(std::uint32_t size_class) {
  constexpr std::array<std::uint32_t, 5> small{32, 64, 128, 192, 256};
  if (size_class < small.size()) return small[size_class];
  if (size_class >= line_class_count) return slots_between[size_class - line_class_count];
  const std::uint32_t k = size_class - 5, base = 256u << (k / 4);
  return base + base / 4 * (k % 4 + 1);
}
static_assert(slot_bytes(5) == 320 && slot_bytes(8) == 512 && slot_bytes(line_class_count - 1) == slot_bytes_max);
static_assert(class_count <= 64, "a table word has 6 bits for it");

/// All classes, by the size of their slots.
inline constexpr std::array<std::uint8_t, class_count> classes_in_order = [] {
  std::array<std::uint8_t, class_count> all{};
  for (std::uint32_t c = 0; c < class_count; ++c) all[c] = std::uint8_t(c);
  std::sort(all.begin(), all.end(), [](std::uint8_t a, std::uint8_t b) { return slot_bytes(a) < slot_bytes(b); });
  return all;
}();
/// The class whose settings a class has: itself, or the next larger one that settings name.
constexpr std::uint32_t line_class(std::uint32_t size_class) {
  std::uint32_t c = 0;
  while (slot_bytes(c) < slot_bytes(size_class)) ++c;
  return c;
}

enum class consistency : std::uint8_t { checksum = 0, versions = 1 };

constexpr std::uint32_t header_bytes = 24;
/// Payload of a line after the first one, when lines carry versions.
constexpr std::uint32_t line_payload = cache_line_bytes - 4;

constexpr std::uint32_t payload_capacity(std::uint32_t slot, consistency c) {
  if (c == consistency::checksum || slot <= cache_line_bytes) return slot - header_bytes;
  return std::uint32_t(cache_line_bytes) - header_bytes + (slot / std::uint32_t(cache_line_bytes) - 1) * line_payload;
}
/// Bytes of a slot, from its header, that an object of `bytes` occupies.
constexpr std::uint32_t occupied_bytes(std::uint32_t bytes, consistency c) {
  constexpr std::uint32_t first = std::uint32_t(cache_line_bytes) - header_bytes;
  if (c == consistency::checksum || bytes <= first) return header_bytes + bytes;
  const std::uint32_t rest = bytes - first, lines = rest / line_payload, left = rest % line_payload;
  return std::uint32_t(cache_line_bytes) * (1 + lines) + (left == 0 ? 0 : 4 + left);
}

/// How a pool's objects are laid out; the same for all clients of a pool.
struct layout {
  std::uint64_t region_bytes = 0;
  std::uint32_t block_bytes = 0;    ///< of classes of which eight slots fit into it; others have larger ones
  std::uint32_t versions_upto = 0;  ///< payloads up to so many bytes carry versions, larger ones a checksum
  bool shares_lines = false;        ///< there are slots that share cache lines; then nothing carries versions

  [[nodiscard]] constexpr std::uint64_t block_max() const { return std::min(block_bytes_max, region_bytes); }
  [[nodiscard]] constexpr std::uint32_t block(std::uint32_t size_class) const {
    const std::uint64_t wanted = std::bit_ceil(std::uint64_t{slot_bytes(size_class)} * 8);
    return static_cast<std::uint32_t>(std::min(std::max<std::uint64_t>(wanted, block_bytes), block_max()));
  }
  [[nodiscard]] constexpr std::uint32_t slots(std::uint32_t size_class) const {
    return block(size_class) / slot_bytes(size_class);
  }
  /// The mode of a class is that of its largest payload.
  [[nodiscard]] constexpr consistency mode(std::uint32_t size_class) const {
    return payload_capacity(slot_bytes(size_class), consistency::versions) <= versions_upto ? consistency::versions
                                                                                            : consistency::checksum;
  }
  [[nodiscard]] constexpr std::uint32_t capacity(std::uint32_t size_class) const {
    return payload_capacity(slot_bytes(size_class), mode(size_class));
  }
  [[nodiscard]] constexpr bool exists(std::uint32_t size_class) const {
    if (size_class >= line_class_count && !shares_lines) return false;
    return size_class < class_count && slot_bytes(size_class) <= block_max();
  }
  /// The smallest class that holds `bytes`; class_count when none does.
  [[nodiscard]] constexpr std::uint32_t class_for(std::uint64_t bytes) const {
    const auto at =  // capacity grows with the slot, also where the mode changes: see below
        std::lower_bound(classes_in_order.begin(), classes_in_order.end(), bytes,
                         [this](std::uint8_t c, std::uint64_t wanted) { return capacity(c) < wanted; });
    if (at == classes_in_order.end()) return class_count;
    const std::uint32_t c = exists(*at) ? *at : line_class(*at);
    return exists(c) ? c : class_count;
  }
  [[nodiscard]] constexpr std::uint32_t bytes_max() const {
    std::uint32_t c = line_class_count;
    while (c > 0 && !exists(c - 1)) --c;
    return c == 0 ? 0 : capacity(c - 1);
  }
};
// A class that carries versions is followed by one with a checksum, which holds more of its slot: capacity never
// shrinks.
static_assert(payload_capacity(128, consistency::checksum) > payload_capacity(128, consistency::versions));

// ---- identities of a size class, and what may be merged ----
enum class naming : std::uint8_t {
  birth = 0,     ///< index of birth; any two blocks whose objects fit into one are merged
  offset = 1,    ///< the same, but objects keep their slot: blocks with a slot in common are not merged (CoRM-0, Mesh)
  random_8 = 8,  ///< a random id of so many bits; blocks with an id in common are not merged (CoRM-8, -12, -16)
  random_12 = 12,
  random_16 = 16,
};
constexpr bool exists(naming n) {
  return n == naming::birth || n == naming::offset || n == naming::random_8 || n == naming::random_12 ||
         n == naming::random_16;
}
constexpr std::uint32_t random_bits(naming n) { return n >= naming::random_8 ? std::uint32_t(n) : 0; }

/// What classes do for whose blocks the wanted random ids are too short.
enum class fallback : std::uint8_t { birth = 0, offset = 1, none = 2 };

// ---- the table of virtual blocks ----
struct place {
  std::uint32_t ordinal = 0;  ///< of the region in its pool
  std::uint32_t offset = 0;   ///< a multiple of 4 KiB
};
constexpr std::uint64_t table_word(std::uint32_t size_class, place at, std::uint64_t change, bool old = false) {
  return std::uint64_t{1} << 63 | std::uint64_t{size_class} << 57 | std::uint64_t{at.offset / frame_bytes_min} << 44 |
         std::uint64_t{at.ordinal} << 24 | std::uint64_t{old} << 23 | (change & 0x7fffff);
}
constexpr bool is_old(std::uint64_t word) { return (word >> 23 & 1) != 0; }
constexpr bool is_mapped(std::uint64_t word) { return word >> 63 != 0; }
constexpr std::uint32_t class_of(std::uint64_t word) { return std::uint32_t(word >> 57) & 63; }
constexpr place place_of(std::uint64_t word) {
  return {std::uint32_t(word >> 24) & (ordinal_limit - 1),
          std::uint32_t((word >> 44) & 0x1fff) * std::uint32_t(frame_bytes_min)};
}

// ---- objects ----
constexpr std::uint16_t flag_live = 1;    ///< an object is here, or was
constexpr std::uint16_t flag_locked = 2;  ///< it is being changed
constexpr std::uint16_t flag_moved = 4;   ///< a tombstone: compaction has put it elsewhere
constexpr std::uint16_t flag_freed = 8;   ///< a tombstone: it is gone

struct object_header {
  std::uint32_t vblock;
  std::uint32_t generation;
  std::uint16_t index;
  std::uint16_t flags;
  std::uint32_t version;
  std::uint32_t bytes;
  std::uint32_t crc;
};
static_assert(sizeof(object_header) == header_bytes);

/// Names an object: on the wire, and in a pool_ptr.
struct identity {
  std::uint32_t vblock = 0;
  std::uint32_t generation = 0;  ///< from 1
  std::uint16_t index = 0;
  friend constexpr bool operator==(const identity&, const identity&) = default;
};
/// Of a state of an object: two states have the same one only as protocol/pool_messages.h says, "Versions".
constexpr std::uint64_t version_of(const object_header& h) { return std::uint64_t{h.crc} << 32 | h.version; }
constexpr bool names(const object_header& h, const identity& id) {
  return h.vblock == id.vblock && h.generation == id.generation && h.index == id.index;
}

/// Of everything that makes this state of this object what it is; the payload continues it.
inline std::uint32_t checksum_seed(const object_header& h) noexcept {
  const std::array<std::uint32_t, 5> words{h.vblock, h.generation, h.index, h.version, h.bytes};
  return fm::detail::crc32c(words.data(), sizeof words);
}
inline std::uint32_t checksum(const object_header& h, const void* payload) noexcept {
  return fm::detail::crc32c(payload, h.bytes, checksum_seed(h));
}

/// Takes the payload out of a slot's bytes (header included) that were read with versions in their lines. False when a
/// line is of another version. `bytes` has been checked against the slot.
inline bool gather_lines(const std::byte* slot, std::uint32_t version, std::byte* payload,
                         std::uint32_t bytes) noexcept {
  const std::uint32_t first = std::min<std::uint32_t>(bytes, cache_line_bytes - header_bytes);
  std::memcpy(payload, slot + header_bytes, first);
  payload += first;
  bytes -= first;
  for (slot += cache_line_bytes; bytes != 0; slot += cache_line_bytes) {
    std::uint32_t of_line = 0;
    std::memcpy(&of_line, slot, sizeof of_line);
    if (of_line != version) return false;
    const std::uint32_t n = std::min(bytes, line_payload);
    std::memcpy(payload, slot + 4, n);
    payload += n;
    bytes -= n;
  }
  return true;
}
/// The opposite, into a buffer of occupied_bytes() whose header is not touched.
inline void scatter_lines(std::byte* slot, std::uint32_t version, const std::byte* payload,
                          std::uint32_t bytes) noexcept {
  const std::uint32_t first = std::min<std::uint32_t>(bytes, cache_line_bytes - header_bytes);
  if (first != 0) std::memcpy(slot + header_bytes, payload, first);
  payload += first;
  bytes -= first;
  for (slot += cache_line_bytes; bytes != 0; slot += cache_line_bytes) {
    std::memcpy(slot, &version, sizeof version);
    const std::uint32_t n = std::min(bytes, line_payload);
    std::memcpy(slot + 4, payload, n);
    payload += n;
    bytes -= n;
  }
}

}  // namespace fm::protocol::blocks
