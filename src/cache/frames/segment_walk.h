// The walk over the frames of a segment that the evictor cools or sweeps.
//
// Invariant: the segment is the evictor's (segment_state::sweeping), full, and no fetch is in flight into it, so that
// every header in it is 0 or names the slot that the frame was filled for.
#pragma once

#include "base/limits.h"
#include "table/table.h"
#include <farmem/detail/barriers/frame.h>

namespace fm::detail {

/// A frame that holds an object, as a walk over its segment has found it.
struct looked_at {
  char* payload;
  slot_t slot;
  std::atomic<word_t>* word;
};

/// Collects the next frames of a segment that hold an object, prefetching their words. Returns how many. O(1).
inline std::uint32_t look(char*& cursor, const char* end, looked_at (&out)[limits::look_ahead]) {
  std::uint32_t n = 0;
  while (n < limits::look_ahead && cursor < end) {
    char* payload = cursor + sizeof(frame_prefix);
    frame_prefix& px = frame::prefix(payload);
    const std::uint64_t total = frame::total_bytes_of(payload);
    FM_ASSERT(total != 0, "a frame has a size");
    if (total < sizeof(frame_prefix)) {  // a filler
      cursor += total;
      continue;
    }
    const std::uint64_t h = px.header.load(std::memory_order_relaxed);
    __builtin_prefetch(cursor + limits::prefetch_bytes);
    cursor += total;
    const slot_t slot = header::slot(h);
    if (slot == 0 || slot >= hit.slots) continue;  // nothing installed
    out[n].payload = payload;
    out[n].slot = slot;
    out[n].word = &word_at(slot);
    __builtin_prefetch(out[n].word, 1);
    ++n;
  }
  return n;
}

}  // namespace fm::detail
