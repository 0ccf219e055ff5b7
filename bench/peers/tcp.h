// The peer of tcp://: the same bytes over a plain TCP socket on loopback, with nothing on top. The server is a worker
// process, so that the two ends run where the program and its agent run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../support/process.h"

namespace fm::bench {

/// How both ends wait: in the kernel, or by asking a non-blocking socket again and again.
enum class waiting : std::uint32_t { blocking, spinning };

/// The server as a worker; list {"tcp_server", tcp_server_main} in become_worker_if_asked.
int tcp_server_main(const std::vector<std::string>& args);

class tcp_server {
 public:
  explicit tcp_server(int core) : worker_("tcp_server", {}, core), port_(std::uint16_t(worker_.ready().at("port"))) {}
  [[nodiscard]] pid_t pid() const noexcept { return worker_.pid(); }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  worker worker_;
  std::uint16_t port_;
};

/// One connection that sends `request_bytes` and gets `reply_bytes` back.
class tcp_ping {
 public:
  /// Throws fm::error (unreachable) naming the port.
  tcp_ping(std::uint16_t port, std::uint32_t request_bytes, std::uint32_t reply_bytes, waiting how);
  ~tcp_ping();
  tcp_ping(const tcp_ping&) = delete;
  tcp_ping& operator=(const tcp_ping&) = delete;
  /// `count` round trips, one after the other; the time of each is appended to `ns`.
  void run(std::size_t count, std::vector<std::uint32_t>& ns);
  /// `count` round trips with up to `in_flight` requests under way.
  void run_pipelined(std::size_t count, std::size_t in_flight);

 private:
  int fd_;
  waiting how_;
  std::vector<char> request_, reply_;
};

/// Sends `bytes` in writes of `chunk_bytes` over a new connection; returns when the peer has acknowledged the last.
/// The connection is set up before the clock starts; gives seconds.
double tcp_stream(std::uint16_t port, std::uint64_t bytes, std::uint32_t chunk_bytes);

}  // namespace fm::bench
