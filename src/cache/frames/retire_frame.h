// Dead memory of the cache, made visible: a raw pointer that outlives its scope reads what is left of a frame, and
// nobody would notice. So dead memory is poisoned in builds with the address sanitizer, which then stops at the access
// (use-after-poison), and filled with a pattern in other builds with assertions or audits. Nothing in release builds.
//
//   segment   retired when it is released; its memory comes back frame by frame, so that what lies beyond the last
//             frame, and a segment's first 8 bytes, stay retired while it is in use
//   frame     its payload is retired when no word names it any more: dropped, moved, or never installed. The prefix is
//             not: sweeps walk it until the segment is released
//
// Invariant: a frame is retired before whoever might release its segment can do so. Called by whoever takes the last
// word away from a frame, and by the arena and frame_space for whole segments.
#pragma once

#include <cstring>
#include <farmem/detail/barriers/frame.h>
#if FM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace fm::detail {

#if FM_ASAN || !defined(NDEBUG) || defined(FARMEM_AUDIT)
constexpr bool marks_retired = true;
#else
constexpr bool marks_retired = false;
#endif
constexpr int retired_byte = 0xdb;

inline void retire_memory([[maybe_unused]] void* from, [[maybe_unused]] std::uint64_t bytes) noexcept {
#if FM_ASAN
  __asan_poison_memory_region(from, bytes);
#else
  if constexpr (marks_retired) std::memset(from, retired_byte, bytes);
#endif
}

/// Makes memory usable again.
inline void reuse_memory([[maybe_unused]] void* from, [[maybe_unused]] std::uint64_t bytes) noexcept {
#if FM_ASAN
  __asan_unpoison_memory_region(from, bytes);
#endif
}

/// Of a frame that no word names any more.
inline void retire_frame(char* payload) noexcept {
  if constexpr (marks_retired) retire_memory(payload, frame::total_bytes_of(payload) - sizeof(frame_prefix));
}

}  // namespace fm::detail
