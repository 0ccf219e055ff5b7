// The steps that misses and detached fetches share; see fetch.h.
//
// Invariant: the word is changed before the sequence number, so that a waiter who sees the old number sleeps on a fetch
// that is still in flight.
#include "fetch.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>

#include "cache/frames/frame_contents.h"

namespace fm::detail {

void throw_access(errc code, slot_t slot, const remote::agent_session& link) {
  throw error(code, fmt::format("slot {:#x} on {}", slot, link.url()));
}

void check_references(const object_cache& cache, std::uint64_t h, const char* payload, slot_t slot,
                      const remote::agent_session& link) {
  const std::uint64_t r = foreign_reference(h, payload, &cache);
  if (r == 0) return;
  if (cache.closed())  // it has no slots any more
    throw error(errc::heap_closed, fmt::format("the heap was closed while slot {:#x} was fetched", slot));
  throw error(errc::corrupt,
              fmt::format("slot {:#x} on {} refers to {:#x}, which is no slot of this heap", slot, link.url(), r));
}

void throw_size(const object_cache& cache, slot_t slot, const remote::agent_session& link, std::uint64_t bytes) {
  if (size_class::of(bytes) <= size_class::of(cache.bytes_at_agents_max()))
    throw error(errc::too_large,
                fmt::format("slot {:#x} on {} has {} bytes, and this cache takes {}: attach the heap with a larger one",
                            slot, link.url(), bytes, cache.stored_bytes_max()));
  throw error(errc::corrupt, fmt::format("slot {:#x} on {} is said to have {} bytes", slot, link.url(), bytes));
}

bool is_possible_size(const object_cache& cache, const home_address& hint) noexcept {
  return hint.size_class <= size_class::of(cache.stored_bytes_max());
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
