// How the agent touches block memory, which clients read at any moment without asking: words are stored whole, payloads
// are copied, and fences keep their order. Readers tell by version and checksum what they caught half way
// (protocol/pool_format.h).
//
// In the language's terms such a copy races with the readers' copies. That is what one-sided memory is; the thread
// sanitizer is not shown this side of it, so that it goes on seeing every other race.
#pragma once

#include "base/base.h"
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fm::agent::shared_memory {

#if FM_TSAN
#define FM_UNSEEN __attribute__((no_sanitize("thread"), noinline))
FM_UNSEEN inline void copy(void* to, const void* from, std::size_t bytes) noexcept {
  auto* t = static_cast<volatile unsigned char*>(to);
  const auto* f = static_cast<const volatile unsigned char*>(from);
  for (std::size_t i = 0; i < bytes; ++i) t[i] = f[i];
}
FM_UNSEEN inline void store_word(void* at, std::uint64_t value) noexcept {
  *static_cast<volatile std::uint64_t*>(at) = value;
}
FM_UNSEEN inline std::uint64_t load_word(const void* at) noexcept {
  return *static_cast<const volatile std::uint64_t*>(at);
}
#undef FM_UNSEEN
inline void fence() noexcept { __asm__ volatile("" ::: "memory"); }
#else
inline void copy(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
inline void store_word(void* at, std::uint64_t value) noexcept {
  __atomic_store_n(static_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
}
inline std::uint64_t load_word(const void* at) noexcept {
  return __atomic_load_n(static_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}
/// Stores before it are seen by whoever sees stores after it.
inline void fence() noexcept { std::atomic_thread_fence(std::memory_order_release); }
#endif

}  // namespace fm::agent::shared_memory
