// Growing up; see young.h.
//
// Invariant: whoever clears the young bit of an object logs it, and only one thread does.
#include "cache/collections/young.h"
#include "cache/object_cache.h"
#include "table/young_bits.h"

#include "cache/frames/frame_contents.h"

namespace fm::detail {

std::uint64_t young_objects::end_youth(std::uint64_t h, const char* payload, std::uint64_t from,
                                       std::uint64_t elements) noexcept {
  const std::uint64_t length = for_each_ref(h, payload, from, elements, [this](slot_t s) { no_longer_young(s); });
  return from + elements < length ? from + elements : 0;
}

void young_objects::no_longer_young(slot_t slot) noexcept {
  if (slot >= hit.slots || mutated(mutation::young_for_ever) || !is_young(slot)) return;
  // Garbage that is written home may name a slot that a thread has leased: there the bit is of the object to come.
  if (word::is_resident(cache_.pages().now(slot)) && end_youth_of(slot)) grew_up(slot);
}

void young_objects::grew_up(slot_t slot) noexcept {
  if (marking.load(std::memory_order_relaxed) && !mutated(mutation::grow_up_unnoticed)) log_(slot);
}

}  // namespace fm::detail
