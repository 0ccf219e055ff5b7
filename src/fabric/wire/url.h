// Where an agent is: `local:`, `shm://PATH`, `tcp://HOST:PORT`, `verbs://HOST:PORT`.
//
// Invariant: parsing looks at the text alone. connect and listen find out whether anybody answers there. Any layer
// above may call it, from any thread.
#pragma once

#include "base/base.h"
#include <string>
#include <string_view>

namespace fm::fabric {

struct address {
  std::string scheme;      ///< "local", "shm", "tcp", "verbs", or one that no transport serves
  std::string host;        ///< tcp, verbs: a name or a literal; IPv6 without its brackets
  std::uint16_t port = 0;  ///< tcp, verbs; 0 asks a listener for any free port
  std::string path;        ///< shm: absolute or relative, short enough for a Unix socket address
};

/// Splits a URL. Errors: invalid_argument naming the URL and what is wrong with it. O(length).
result<address> parse_url(std::string_view url);

/// Whether what is sent there stays on this host, by the text alone: shm, local, and loopback addresses and `localhost`
/// of the others. A name that only a resolver could tell anything about is beyond.
[[nodiscard]] bool stays_on_host(const address& a);

/// "tcp://127.0.0.1:7070", "tcp://[::1]:7070".
std::string format_url(std::string_view scheme, std::string_view host, std::uint16_t port);

}  // namespace fm::fabric
