// What is resident, by type: the owner's half of counting objects (heap_core::live_types). Concurrent with everything; the
// frames are looked at and not touched.
#include "evictor.h"

#include "busy_word.h"

namespace fm::detail {

namespace {

resident_object describe(slot_t slot, char* payload) {
  const std::uint64_t h = frame::prefix(payload).header.load(std::memory_order_relaxed);
  return {slot, header::slot(h), header::type(h),
          object_cache::home_bytes(h, payload, frame::total_bytes_of(payload) - sizeof(frame_prefix) + header::bytes)};
}

}  // namespace

void object_cache::list_aside(std::vector<resident_object>& out) {
  const section in_section;
  pages_.for_each_sided([&](slot_t slot, word_t w) {
    if (word::is_resident(w)) out.push_back(describe(slot, word::payload(w)));
  });
}

void object_cache::list_resident(slot_t first, std::uint64_t slots, std::vector<resident_object>& out) {
  for (slot_t page = first; page < first + slots; page += page_slots) {
    if (page_of(page).state.load(std::memory_order_acquire) == page_given_back) continue;
    const auto nothing_dies = evictor_->hold();  // a frame that is freed meanwhile is buried
    const section in_section;
    for (slot_t s = page; s < page + page_slots; ++s)
      if (word::is_resident(word_at(s).load(std::memory_order_relaxed)))
        with_frame(word_at(s), [&](char* payload) { out.push_back(describe(s, payload)); });
  }
}

}  // namespace fm::detail
