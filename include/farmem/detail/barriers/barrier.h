// The read and write barriers: from a slot to a pointer. One load of the HIT word, one test of all slow bits, one mask.
//
// Invariants
//   - A pointer that a barrier gave is good until the section ends in which it was called, or for as long as the frame
//     is pinned. Handles and containers call the barriers inside a section; nothing else turns slots into pointers
//     inline.
//   - A barrier notes each pointer that it gives (epochs::hand_out), so that a section that blocks can be left.
#pragma once

#include <farmem/detail/barriers/access.h>
#include <farmem/detail/barriers/deletion_barrier.h>
#include <farmem/detail/barriers/frame.h>

namespace fm::detail {

/// The payload of a slot, for reading. Inside a section; the pointer is good until the section ends. The caller notes
/// it.
inline const char* read_barrier_unnoted(slot_t slot) {
  const word_t w = word_at(slot).load(std::memory_order_acquire) - 1;
  if (__builtin_expect((w & word::slow_read) == 0, 1)) return reinterpret_cast<const char*>(w & ~word::flag_mask);
  return resolve(slot, access::read);
}
/// The same, noted.
inline const char* read_barrier(slot_t slot) { return epochs::hand_out(const_cast<char*>(read_barrier_unnoted(slot))); }

/// The payload of a slot, for writing: its frame is dirty from here on.
inline char* write_barrier(slot_t slot) {
  const word_t w = word_at(slot).load(std::memory_order_acquire) - 1;
  return epochs::hand_out(__builtin_expect((w & word::slow_write) == 0, 1)
                              ? reinterpret_cast<char*>(w & ~word::flag_mask)
                              : resolve(slot, access::write));
}

/// Keeps the frame where it is beyond the section. The caller is in the section that resolved `payload`.
inline void pin_frame(char* payload) noexcept {
  frame_prefix& px = frame::prefix(payload);
  px.pins.fetch_add(1, std::memory_order_seq_cst);
  note_pinned(header::slot(px.header.load(std::memory_order_relaxed)));
}
/// A pin keeps its object alive as a root does, so giving one back while a cycle marks is logged first, as with a root.
inline void unpin_frame(char* payload) noexcept {
  frame_prefix& px = frame::prefix(payload);
  if (is_marking()) log_unpinned(header::slot(px.header.load(std::memory_order_relaxed)));
  px.pins.fetch_sub(1, std::memory_order_release);
}

}  // namespace fm::detail
