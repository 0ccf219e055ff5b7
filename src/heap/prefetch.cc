// fm::prefetch of many slots: fetches are posted chunk by chunk (farmem/prefetch.h). Called by the templates of that
// header.
#include "cache/evictor.h"
#include "cache/object_cache.h"
#include <farmem/prefetch.h>

#include <algorithm>

namespace fm::detail {

std::size_t prefetch_slots(std::span<const slot_t> slots) {
  std::size_t posted = 0;
  while (!slots.empty()) {
    const std::size_t n = std::min(slots.size(), prefetch_chunk);
    // In a section the heaps that own the slots cannot be taken down half way.
    const section in_section;
    object_cache* owners[prefetch_chunk];
    for (std::size_t i = 0; i < n; ++i) {
      const bool known = slots[i] != 0 && slots[i] < hit.slots;
      owners[i] = known ? tablet_info_of(slots[i]).heap.load(std::memory_order_acquire) : nullptr;
    }
    // Nearly always they are of one heap, and this is one pass.
    for (std::size_t first = 0; first < n; ++first) {
      object_cache* const owner = owners[first];
      if (!owner) continue;
      slot_t of_owner[prefetch_chunk];
      std::size_t count = 0;
      for (std::size_t i = first; i < n; ++i) {
        if (owners[i] != owner) continue;
        of_owner[count++] = slots[i];
        owners[i] = nullptr;
      }
      posted += owner->detached().prefetch(of_owner, count);
    }
    slots = slots.subspan(n);
  }
  return posted;
}

}  // namespace fm::detail
