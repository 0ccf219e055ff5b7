// Growing up; see young.h.
//
// Invariant: whoever clears the young bit of an object logs it, and only one thread does.
#include "young.h"
#include "object_cache.h"

#include "cache/frames/busy_word.h"
#include "cache/frames/frame_contents.h"

namespace fm::detail {

std::uint64_t young_objects::end_youth(std::uint64_t h, const char* payload, std::uint64_t from,
                                       std::uint64_t elements) noexcept {
  const std::uint64_t length = for_each_ref(h, payload, from, elements, [this](slot_t s) { no_longer_young(s); });
  return from + elements < length ? from + elements : 0;
}

void young_objects::no_longer_young(slot_t slot) noexcept {
  if (slot >= hit.slots || mutated(mutation::young_for_ever)) return;
  bool was_young = false;
  const auto grow_up = [&](char* payload) {
    was_young =
        (frame::prefix(payload).shape.fetch_and(~frame::young_bit, std::memory_order_acq_rel) & frame::young_bit) != 0;
  };
  std::atomic<word_t>& word = word_at(slot);
  while (!with_frame(word, [&](const held_frame& f) { grow_up(f.payload); })) {
    if (word.load(std::memory_order_acquire) != word::unknown) return;  // it is, or was, at home
    const auto at = cache_.pages().with_sided(slot, [&](word_t& aside) {
      if (word::is_resident(aside)) grow_up(word::payload(aside));
      return true;
    });
    if (at != hit_pages::found::in_table) break;
  }
  if (was_young) grew_up(slot);
}

void young_objects::grew_up(slot_t slot) noexcept {
  if (marking.load(std::memory_order_relaxed) && !mutated(mutation::grow_up_unnoticed)) log_(slot);
}

}  // namespace fm::detail
