// CRC-32C (Castagnoli), the checksum of batches and frames. Folds 256 bytes at a time where the processor can, uses its
// instruction for three streams at a time where it has that, and a table elsewhere.
//
// Invariant: all give the same value as RFC 3720, appendix B.4, since owner and agent may run on different processors.
// The fabric, the protocol's formats and the agent's memory call it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fm::detail {

/// Continues `seed` (0 for a fresh checksum) over `bytes` bytes. Thread-safe, O(bytes).
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0) noexcept;
/// The same as a processor does it that cannot fold, for tests.
std::uint32_t crc32c_without_folding(const void* data, std::size_t bytes, std::uint32_t seed = 0) noexcept;

}  // namespace fm::detail
