// Dead memory of the cache, made visible: a raw pointer that outlives its scope reads what is left of a frame, and nobody
// would notice. So what died is poisoned in builds with the address sanitizer, which then stops at the access
// (use-after-poison), and filled with a pattern in other builds with assertions or audits. Nothing in release builds.
//
//   segment   buried when it is released; its memory comes back frame by frame, so that what lies beyond the last
//             frame, and a segment's first 8 bytes, stay buried while it is in use
//   frame     its payload is buried when no word names it any more: dropped, moved, or never installed. The prefix is
//             not: sweeps walk it until the segment is released
#pragma once

#include <cstring>
#include <farmem/detail/frame.h>
#if FM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace fm::detail {

#if FM_ASAN || !defined(NDEBUG) || defined(FARMEM_AUDIT)
constexpr bool burying = true;
#else
constexpr bool burying = false;
#endif
constexpr int buried_byte = 0xdb;

inline void bury([[maybe_unused]] void* from, [[maybe_unused]] std::uint64_t bytes) noexcept {
#if FM_ASAN
  __asan_poison_memory_region(from, bytes);
#else
  if constexpr (burying) std::memset(from, buried_byte, bytes);
#endif
}

/// Makes memory usable again.
inline void unearth([[maybe_unused]] void* from, [[maybe_unused]] std::uint64_t bytes) noexcept {
#if FM_ASAN
  __asan_unpoison_memory_region(from, bytes);
#endif
}

/// Before whoever might release the frame's segment can do so.
inline void bury_frame(char* payload) noexcept {
  if constexpr (burying) bury(payload, frame::total_bytes_of(payload) - sizeof(frame_prefix));
}

}  // namespace fm::detail
