// The steps that misses and detached fetches share; see fetch.h.
//
// Invariant: the word is changed before the sequence number, so that a waiter who sees the old number sleeps on a fetch
// that is still in flight.
#include "fetch.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

void throw_access(errc code, slot_t slot, const remote::agent_session& link) {
  throw error(code, fmt::format("slot {:#x} on {}", slot, link.url()));
}

std::uint32_t readable_bytes(const remote::agent_session& link, const home_address& from, std::uint32_t bytes) {
  if (mutated(mutation::read_past_acknowledged)) return bytes;
  const std::uint64_t readable = link.readable(from.region);
  return readable > from.offset ? static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, readable - from.offset))
                                : bytes;
}

void end_fetch(fetch& f) noexcept {
  f.sequence.fetch_add(1, std::memory_order_seq_cst);
  if (f.waiters.load(std::memory_order_seq_cst) != 0) os::futex_wake(f.sequence, 1 << 30);
}

}  // namespace fm::detail
