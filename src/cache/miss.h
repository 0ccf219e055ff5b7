// What the two ways of fetching share: misses that a thread waits for (miss.cc) and detached fetches (detached.cc).
#pragma once

#include "object_cache.h"
#include <algorithm>

namespace fm::detail {

/// An access failed: the error names the slot and the agent.
[[noreturn]] void throw_access(errc code, slot_t slot, const remote::agent_session& link);

/// A size class may reach beyond its object, into a batch that is just being appended: not read.
inline std::uint32_t readable_bytes(const remote::agent_session& link, const home_address& from, std::uint32_t bytes) {
  if (mutated(mutation::read_past_acknowledged)) return bytes;
  const std::uint64_t readable = link.readable(from.region);
  return readable > from.offset ? static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, readable - from.offset))
                                : bytes;
}

}  // namespace fm::detail
