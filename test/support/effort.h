// How much of a long random test a build runs. Sanitizers make a program five to twenty times as slow and find what they
// look for in its first rounds, so they run a part of it. debug-audit runs all of it.
#pragma once

#include <farmem/detail/check.h>

#include <cstdint>

namespace fm::test {

/// By how much a sanitizer's build divides what is repeated.
inline constexpr std::uint64_t effort_divisor = FM_TSAN ? 6 : FM_ASAN ? 3 : 1;

/// `n` rounds, or this build's part of them.
constexpr std::uint64_t effort(std::uint64_t n) { return n / effort_divisor; }

}  // namespace fm::test
