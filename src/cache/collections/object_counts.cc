// Listing resident objects; see object_counts.h.
//
// Invariant: while a page is listed nothing of it is freed (evictor::hold), and no listed object becomes warm.
#include "cache/collections/object_counts.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"

#include "cache/frames/busy_word.h"
#include "cache/frames/frame_contents.h"

namespace fm::detail {

namespace {

resident_object describe(slot_t slot, char* payload) {
  const std::uint64_t h = frame::prefix(payload).header.load(std::memory_order_relaxed);
  return {slot, header::slot(h), header::type(h), home_bytes_of(payload)};
}

}  // namespace

std::string name_of_type(std::uint32_t type) {
  const type_descriptor* const known = find_type(type);
  if (!known) return "type " + std::to_string(type);
  std::string name = known->name;
  if (known->kind == type_kind::array && !name.ends_with("[]")) name += "[]";
  return name;
}

void list_aside(object_cache& cache, std::vector<resident_object>& out) {
  const section in_section;
  cache.pages().for_each_sided([&](slot_t slot, word_t w) {
    if (word::is_resident(w)) out.push_back(describe(slot, word::payload(w)));
  });
}

void list_resident(object_cache& cache, slot_t first, std::uint64_t slots, std::vector<resident_object>& out) {
  for (slot_t page = first; page < first + slots; page += page_slots) {
    if (page_of(page).state.load(std::memory_order_acquire) == page_given_back) continue;
    const auto nothing_dies = cache.eviction().hold();  // a frame that is freed meanwhile is retired
    const section in_section;
    for (slot_t s = page; s < page + page_slots; ++s)
      if (word::is_resident(word_at(s).load(std::memory_order_relaxed)))
        with_frame(word_at(s), [&](const held_frame& f) { out.push_back(describe(s, f.payload)); });
  }
}

}  // namespace fm::detail
