// Copying many bytes at once, around a slow case of the C library.
//
// Invariant: the result is that of memcpy, for ranges that do not overlap. Code that copies objects or messages calls
// it.
#pragma once

#include "base/limits.h"
#include <farmem/base/units.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

inline void copy_in_pieces(char* to, const char* from, std::size_t bytes) noexcept {
  while (bytes != 0) {
    const std::size_t n = std::min(bytes, limits::copy_piece);
    std::memcpy(to, from, n);
    to += n, from += n, bytes -= n;
  }
}

/// As memcpy; for what may be large. Debian 12's glibc (2.36) copies that by `rep movsb`, which some processors (AMD's
/// Zen 3 and 4; glibc's bug 30994) do ten times as slowly where the destination begins a little further in its page
/// than the source: with 8 and 16 bytes between them 1.7 GB/s instead of 18, for 256 KiB that are then sent; not from
/// 32 on, which may be 64 with wider vectors. Large objects all begin at the same place in a page, and so do the
/// buffers that they go to, so this is no rare accident.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  const auto further = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % page_bytes;
  if (bytes <= limits::copy_piece || further == 0 || further >= 64)
    std::memcpy(to, from, bytes);
  else
    copy_in_pieces(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}

/// Starts loading all lines of what is copied next, if it is small. A copy from the middle of a line has loads that belong
/// to two lines each, and on a Xeon each seems to wait for the first one before it asks for the second: 200 to 250 bytes
/// that are in no near cache took 40% longer. Where a header is looked at first, its line is one more of them.
inline void begin_loading(const void* from, std::size_t bytes) noexcept {
  if (bytes > limits::loaded_ahead_most) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  for (std::uintptr_t at = round_up(begin + 1, cache_line_bytes); at < begin + bytes; at += cache_line_bytes)
    __builtin_prefetch(reinterpret_cast<const char*>(at));
}

}  // namespace fm::detail
