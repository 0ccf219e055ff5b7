// Which slots are young: a bit a slot, so that a collection of young objects looks at no frame to find them.
//
// An object is young from its allocation until it, or anything that refers to it, is copied out for the first time. The
// bit is set when a thread leases the slot, 64 at a time, and means nothing before an object is there. It is cleared
// once, by who copies out. It stays when the object dies: whoever leases the slot next sets it again.
//
// Invariant: only a slot that is leased, or whose object is young, may be taken for young. So the bit counts with a
// word that is resident, in the table or aside.
//
// slot_sources set bits, the evictor ends youth, and collections read (collector/young_collection.h).
#pragma once

#include "table/table.h"

namespace fm::detail {

/// Of the 64 slots around it. Those of other threads change at any time.
inline std::atomic<std::uint64_t>& young_bits_of(slot_t slot) noexcept { return hit.young[slot / 64]; }

inline bool is_young(slot_t slot) noexcept {
  return (young_bits_of(slot).load(std::memory_order_acquire) >> slot % 64 & 1) != 0;
}

/// True for the one caller who ended it.
inline bool end_youth_of(slot_t slot) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << slot % 64;
  return is_young(slot) && (young_bits_of(slot).fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
}

/// These of the 64 slots from `first` on.
inline void begin_youth(slot_t first, std::uint64_t slots) noexcept {
  if (slots != 0) young_bits_of(first).fetch_or(slots, std::memory_order_relaxed);
}
inline void begin_youth_of_run(slot_t from, slot_t to) noexcept {
  while (from < to) {
    const slot_t first = from / 64 * 64, end = first + 64;
    std::uint64_t bits = ~std::uint64_t{0} << from % 64;
    if (to < end) bits &= ~(~std::uint64_t{0} << to % 64);
    begin_youth(first, bits);
    from = end;
  }
}

}  // namespace fm::detail
