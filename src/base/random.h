// Random choices that cost nothing: which unit of local memory is promoted by luck. Not for anything that an attacker
// must not guess.
//
// Invariant: the state is the caller's, one word, and never 0.
#pragma once

#include <cstdint>

namespace fm::detail {

/// xorshift: enough for choosing units, and no state but a word.
[[nodiscard]] inline std::uint64_t next_random(std::uint64_t& state) noexcept {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

/// Whether an event of this probability happens. `random` is 64 random bits.
[[nodiscard]] inline bool happens(double probability, std::uint64_t random) noexcept {
  return static_cast<double>(random >> 11) * 0x1p-53 < probability;
}

}  // namespace fm::detail
