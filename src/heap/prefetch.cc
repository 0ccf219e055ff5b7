// fm::prefetch of many slots: fetches are posted chunk by chunk (farmem/handles/prefetch.h). Called by the templates of that
// header.
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include <farmem/handles/prefetch.h>

#include <algorithm>

namespace fm::detail {

namespace {

/// The heap that a slot is of now; null: none.
object_cache* heap_of(slot_t slot) {
  const bool known = slot != 0 && slot < hit.slots;
  return known ? tablet_info_of(slot).heap.load(std::memory_order_acquire) : nullptr;
}

}  // namespace

std::size_t prefetch_slots(std::span<const slot_t> slots) {
  std::size_t posted = 0;
  while (!slots.empty()) {
    const std::size_t n = std::min(slots.size(), prefetch_chunk);
    // While a section is open, no heap is taken down. A heap's prefetch may leave the section to wait for credit, and
    // another heap may end meanwhile. So each heap is looked up anew, and only slots are kept.
    const section in_section;
    slot_t left[prefetch_chunk];
    std::copy_n(slots.begin(), n, left);
    // Nearly always they are of one heap, and this is one pass.
    for (std::size_t first = 0; first < n; ++first) {
      object_cache* const owner = heap_of(left[first]);
      if (!owner) continue;
      slot_t of_owner[prefetch_chunk];
      std::size_t count = 0;
      for (std::size_t i = first; i < n; ++i) {
        if (heap_of(left[i]) != owner) continue;
        of_owner[count++] = left[i];
        left[i] = 0;
      }
      posted += owner->detached().prefetch(of_owner, count);
    }
    slots = slots.subspan(n);
  }
  return posted;
}

}  // namespace fm::detail
