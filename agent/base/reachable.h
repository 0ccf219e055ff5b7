// Which other agents this one connects to: only kinds of addresses that its options name, and beyond its host only if they
// say so, because what is sent is plaintext. Owners and clients name addresses; this is what keeps them from using an
// agent to reach what they cannot.
#pragma once

#include "fabric/wire/url.h"

#include <algorithm>

#include "options.h"

namespace fm::agent {

inline errc may_connect(const store_options& options, const std::string& url) {
  const auto a = fabric::parse_url(url);
  if (!a) return a.error().code();
  const auto& known = options.peer_schemes;
  if (std::find(known.begin(), known.end(), a->scheme) == known.end()) return errc::unknown_scheme;
  return options.peers_beyond_host || fabric::stays_on_host(*a) ? errc::ok : errc::access_denied;
}

}  // namespace fm::agent
