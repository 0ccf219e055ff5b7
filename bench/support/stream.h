// Plain stream sockets of this machine, for the peers of the transports and for answers that are not part of what is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fm::bench {

enum class socket_kind { tcp, unix_domain };

/// An owned socket. Not thread-safe.
class stream {
 public:
  stream() = default;
  explicit stream(int fd) : fd_(fd) {}
  ~stream();
  stream(stream&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  stream& operator=(stream&& o) noexcept;

  /// Connects to a listener of this machine. Throws fm::error (unreachable) naming the port.
  static stream connect(socket_kind kind, std::uint16_t port);
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// All of it; false when the other end is gone.
  bool send(const void* from, std::size_t bytes) noexcept;
  /// Both, by one call where the kernel takes them.
  bool send(std::string_view head, std::string_view body) noexcept;
  bool receive(void* to, std::size_t bytes) noexcept;

 private:
  int fd_ = -1;
};

/// Listens on a free port of the loopback; a Unix socket has its number for a name, in the abstract namespace.
class stream_acceptor {
 public:
  explicit stream_acceptor(socket_kind kind);
  ~stream_acceptor();
  stream_acceptor(const stream_acceptor&) = delete;
  stream_acceptor& operator=(const stream_acceptor&) = delete;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// The next connection; waits for it.
  stream accept();

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace fm::bench
