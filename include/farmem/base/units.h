// Sizes, times and rounding: the small vocabulary that every layer and application code share. Sizes are bytes in 64
// bits.
// Invariant: all deadlines are points in time of fm::clock, which is monotonic.
// Nothing here allocates, throws or blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm {

using clock = std::chrono::steady_clock;  ///< the clock of all deadlines
using time_point = clock::time_point;     ///< a point in time of fm::clock
using duration = clock::duration;         ///< a span of time of fm::clock

/// Sizes in bytes: `4_KiB`, `16_MiB`, `1_GiB`, `2_TiB`.
inline namespace literals {
/// `n` KiB in bytes.
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
/// `n` MiB in bytes.
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
/// `n` GiB in bytes.
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }
/// `n` TiB in bytes.
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
