// The HIT word: what the compute node knows of one slot. Open this file first.
//
// A word is 64 bits, one per slot, in the heap indirection table (indirection_table.h). The agent's entry for the same
// slot uses the `remote` form of the same layout and is the truth; this word is a cache of it.
//
// Invariant: a word is in one of these states, and moves only by the transitions below. Barriers read words; src/cache
// changes them; the protocol and the agents use home addresses, size classes and headers.
//
//   unknown    0                                              nothing known: ask the agent by slot
//   free       63..3 zero            | 1 0 0                  no such object (dead slot, or not granted)
//   fetching   63..4 fetch pointer   | 1 0 0 0                a fetch is in flight; waiters find it through the word
//   remote     63..50 generation (14)| 49..32 region (18) | 31..10 offset / 8 (22) | 9..2 size class (8) | 1 0
//   resident   63..4 payload pointer | busy | clean | cold | 1
//
// The read barrier subtracts one, so that 0 and every non-resident form have bit 0 set, and tests `slow_read`:
// none of the bits set means resident and warm, and the pointer is the word with its low four bits masked off.
// The write barrier tests `slow_write`, which adds clean. A warm object's fast path writes nothing.
//
//   cold   the object was cooled, or moved by the evictor; the next touch takes the slow path and is seen.
//   clean  the frame holds nothing that the home copy does not. Cleared by the first write, set by write-back.
//   busy   the word's lock: relocation, copy-out and acknowledgement own the frame's prefix while it is set. Only ever
//          held for a bounded time, inside an epoch section. A cold word's reader waits for it; a warm word's does not.
//
// Legal transitions (from -> to : who)
//   remote -> fetching            the thread that misses, or posts a detached fetch
//   fetching -> resident          the thread that completes the fetch (checked header)
//   fetching -> remote            a failed fetch, giving back the hint it started from
//   unknown -> remote             an answer by slot, with hints for its page ("Page give-back", src/table/pages.h)
//   remote -> remote              an answer by slot corrects hints that lead nowhere
//   remote -> resident            the copy that came with an answer by slot, or (cold) an elastic neighbour: only if
//                                 the word is `remote` at exactly the address that the bytes came from
//   unknown -> resident           allocation of a slot that this thread owns
//   free -> resident              the same of a slot that is used again: its last object died and was swept
//   resident warm -> cold         cooling of the segment, and again by a sweep that finds it touched
//   resident cold -> warm         a touch
//   resident cold -> other frame  relocation by the evictor, a grace period after cooling, unpinned
//   resident clean -> dirty       write barrier slow path, or a write-back that failed
//   resident dirty -> clean       copy-out to a batch, under busy, cold for a grace period, unpinned
//   resident cold clean -> remote eviction, a grace period after cooling, unpinned, no write-back in flight
//   unknown|remote|resident -> free  sweep of a dead slot: unpinned, no write-back in flight
//   remote|free -> unknown        by giving the page back (src/table/pages.h)
//   resident -> unknown           the same; the word is put aside until the page is opened again
//   unknown -> resident           opening the page: the words that were put aside return
#pragma once

#include <cstddef>
#include <cstdint>

namespace fm::detail {

/// A slot: an object's immobile number. 40 bits; 0 is null and never allocated.
using slot_t = std::uint64_t;
constexpr int slot_bits = 40;
constexpr slot_t slot_limit = slot_t{1} << slot_bits;

/// A tablet: 65,536 consecutive slots, granted to a heap by one agent.
constexpr std::uint64_t tablet_slots = 65536;
constexpr std::uint32_t tablet_of(slot_t s) { return static_cast<std::uint32_t>(s / tablet_slots); }

using word_t = std::uint64_t;

namespace word {

constexpr word_t unknown = 0;
constexpr word_t free = 0b100;

constexpr word_t resident_bit = 1;
constexpr word_t cold_bit = 2;
constexpr word_t clean_bit = 4;
constexpr word_t busy_bit = 8;
constexpr word_t flag_mask = 15;

/// Bits of `word - 1` that send a read, or a write, to the slow path.
constexpr word_t slow_read = resident_bit | cold_bit;
constexpr word_t slow_write = resident_bit | cold_bit | clean_bit;

constexpr bool is_resident(word_t w) { return (w & resident_bit) != 0; }
constexpr bool is_remote(word_t w) { return (w & 3) == 2; }
constexpr bool is_fetching(word_t w) { return (w & flag_mask) == 8 && w != 8; }
constexpr bool is_cold(word_t w) { return (w & cold_bit) != 0; }
constexpr bool is_clean(word_t w) { return (w & clean_bit) != 0; }
constexpr bool is_busy(word_t w) { return (w & busy_bit) != 0; }

/// The payload of a resident word.
inline char* payload(word_t w) { return reinterpret_cast<char*>(w & ~flag_mask); }
inline word_t resident(const void* payload, word_t flags) {
  return reinterpret_cast<word_t>(payload) | resident_bit | flags;
}
inline word_t fetching(const void* fetch) { return reinterpret_cast<word_t>(fetch) | 8; }
template <class Fetch>
Fetch* fetch_of(word_t w) {
  return reinterpret_cast<Fetch*>(w & ~flag_mask);
}

}  // namespace word

/// Size classes of hints: exact multiples of 8 up to 1 KiB, then eight steps a doubling. A class names the smallest
/// number of bytes, header included, that surely covers the object.
namespace size_class {

constexpr std::uint32_t exact_limit = 1024;

constexpr std::uint8_t of(std::uint64_t bytes) {
  if (bytes <= exact_limit) return static_cast<std::uint8_t>(bytes == 0 ? 0 : (bytes - 1) / 8);
  std::uint64_t base = exact_limit;
  std::uint32_t c = 128;
  while (bytes > base * 2) {
    base *= 2;
    c += 8;
  }
  return static_cast<std::uint8_t>(c + (bytes - base + base / 8 - 1) / (base / 8) - 1);
}
constexpr std::uint64_t bytes(std::uint8_t c) {
  if (c < 128) return (std::uint64_t{c} + 1) * 8;
  const std::uint64_t base = std::uint64_t{exact_limit} << ((c - 128) / 8);
  return base + (base / 8) * ((c - 128) % 8 + 1);
}
static_assert(bytes(of(8)) == 8 && bytes(of(1024)) == 1024 && bytes(of(1025)) == 1152 && bytes(of(2048)) == 2048);
static_assert(bytes(of(16u << 20)) == 16u << 20);

}  // namespace size_class

/// A home address: where an object's home copy is on its agent. The `remote` form of a word, unpacked. The agent itself
/// is not named: it is the one that granted the slot's tablet.
struct home_address {
  std::uint32_t region = 0;      ///< 18 bits, number of the region on its agent
  std::uint32_t generation = 0;  ///< 14 bits, of the region; a region number whose generations are used up is retired
  std::uint32_t offset = 0;      ///< bytes from the region's start, a multiple of 8
  std::uint8_t size_class = 0;

  static constexpr std::uint32_t region_limit = 1u << 18;
  static constexpr std::uint32_t generation_limit = 1u << 14;
  static constexpr std::uint64_t offset_limit = std::uint64_t{8} << 22;  ///< 32 MiB: the largest region

  [[nodiscard]] constexpr word_t pack() const {
    return word_t{generation} << 50 | word_t{region} << 32 | word_t{offset / 8} << 10 | word_t{size_class} << 2 | 2;
  }
  static constexpr home_address unpack(word_t w) {
    return {.region = static_cast<std::uint32_t>(w >> 32) & (region_limit - 1),
            .generation = static_cast<std::uint32_t>(w >> 50),
            .offset = (static_cast<std::uint32_t>(w >> 10) & ((1u << 22) - 1)) * 8,
            .size_class = static_cast<std::uint8_t>(w >> 2)};
  }
  friend constexpr bool operator==(const home_address&, const home_address&) = default;
};

/// The header of a home copy, and of a frame: 8 bytes, directly before the payload.
///   63..40 type (24) | 39..0 slot (40)
namespace header {
constexpr std::uint64_t pack(std::uint32_t type, slot_t slot) { return std::uint64_t{type} << slot_bits | slot; }
constexpr slot_t slot(std::uint64_t h) { return h & (slot_limit - 1); }
constexpr std::uint32_t type(std::uint64_t h) { return static_cast<std::uint32_t>(h >> slot_bits); }
constexpr std::size_t bytes = 8;
}  // namespace header

}  // namespace fm::detail
