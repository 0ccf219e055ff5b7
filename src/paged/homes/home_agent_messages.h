// What taking an agent's answers apart needs, on both sides of home_agent: home_agent.cc and home_regions.cc. Nothing else
// includes it. It keeps no state.
#pragma once

#include "fabric/client/client.h"
#include <unistd.h>

#include <cstring>
#include <vector>

namespace fm::detail {

/// The whole answer as a T; false if it has another length.
template <class T>
bool take_all(const std::vector<std::byte>& from, T& out) {
  if (from.size() != sizeof out) return false;
  std::memcpy(&out, from.data(), sizeof out);
  return true;
}

/// The agent may have done it, or do it yet.
inline bool is_unknown(errc e) { return e == errc::timed_out || e == errc::disconnected || e == errc::cancelled; }

/// Closes what came with it.
inline void drop_key(fabric::memory_key& key) {
  if (key.fd >= 0) ::close(key.fd);
  key = {};
}

}  // namespace fm::detail
