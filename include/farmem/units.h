// Sizes, times and rounding: the small vocabulary that every layer shares.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using duration = clock::duration;

/// `4_KiB`, `16_MiB`, `1_GiB`: bytes.
inline namespace literals {
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }
constexpr std::uint64_t operator""_TiB(unsigned long long n) { return n << 40; }
}  // namespace literals

namespace detail {

constexpr std::size_t cache_line_bytes = 64;
constexpr std::size_t page_bytes = 4096;

/// `n` rounded up to a multiple of `unit`, a power of two.
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) & ~(unit - 1); }
constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t unit) { return n & ~(unit - 1); }
constexpr bool is_power_of_two(std::uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

/// Tells the core that the caller spins.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace detail
}  // namespace fm
