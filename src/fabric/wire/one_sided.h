// The effect of a one-sided operation on the bytes that it names, and the check of a request before any transport
// touches it.
//
// Invariant: bounds are the caller's to check; what is here touches one_sided_bytes(r) bytes and no more. Called by
// the transports that reach the memory directly (local:, shm://), by the stream server, and by sessions for the check.
#pragma once

#include "request.h"

namespace fm::fabric {

/// Refuses requests whose fields contradict each other: invalid_argument, too_large.
errc check_request(const request& r, std::uint32_t message_bytes_max) noexcept;

/// Bytes of the peer's memory that a one-sided request touches.
inline std::uint64_t one_sided_bytes(const request& r) noexcept {
  return r.kind == op_kind::read || r.kind == op_kind::write ? r.bytes() : 8;
}

/// Copies bytes of a request's scatter/gather list, from byte `from` on, into `to`, which they must fill.
void gather(const request& r, std::uint64_t from, std::span<std::byte> to) noexcept;
/// The other way round.
void scatter(const request& r, std::uint64_t from, std::span<const std::byte> bytes) noexcept;

/// Carries out a read, write or atomic at `at`, which is good for one_sided_bytes(r) bytes.
errc apply_one_sided(request& r, std::byte* at) noexcept;

/// The atomics alone: old value, or invalid_argument when `at` is not aligned.
errc apply_atomic(op_kind kind, std::byte* at, std::uint64_t operand, std::uint64_t compare,
                  std::uint64_t& old) noexcept;

}  // namespace fm::fabric
