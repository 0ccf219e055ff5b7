// The peer of reads that ask a server: Redis GET over a plain connection on loopback, by a client that does nothing else.
#pragma once

#include <string>

#include "../support/process.h"
#include "../support/stream.h"

namespace fm::bench {

class redis {
 public:
  /// Starts `redis-server` without persistence on a core. Throws fm::error (unsupported) when it is not installed.
  explicit redis(int core);
  /// A client of one that runs already.
  struct running {
    std::uint16_t port;
  };
  explicit redis(running server) : port_(server.port), stream_(stream::connect(socket_kind::tcp, server.port)) {}
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] pid_t pid() const noexcept { return server_.pid(); }
  void set(const std::string& key, const std::string& value);
  /// The length of the value; it is in the buffer until the next call. Throws fm::error (not_found, disconnected).
  std::size_t get(const std::string& key);

 private:
  std::string line();

  child server_;
  std::uint16_t port_ = 0;
  stream stream_;
  std::string command_, buffer_;
  std::size_t at_ = 0;
};

}  // namespace fm::bench
