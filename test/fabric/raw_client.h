// A client made by hand, for what the library's own client never sends.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "fabric/wire/wire.h"
#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace fm::fabric::test {

class raw_client {
 public:
  explicit raw_client(const std::string& url) {
    const address a = value_or_throw(parse_url(url));
    if (a.scheme == "shm") {
      sockaddr_un un{};
      un.sun_family = AF_UNIX;
      std::strcpy(un.sun_path, a.path.c_str());
      fd_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
      REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&un), sizeof un) == 0);
    } else {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_port = htons(a.port);
      REQUIRE(::inet_pton(AF_INET, a.host.c_str(), &in.sin_addr) == 1);
      fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
      REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0);
    }
  }
  ~raw_client() { ::close(fd_); }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  void send(std::span<const std::byte> bytes) {
    [[maybe_unused]] const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  template <class T>
  void send(const T& t) {
    send(std::as_bytes(std::span(&t, 1)));
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  /// Receives exactly that much within ten seconds; false at the end of the stream.
  bool receive(std::span<std::byte> to) {
    while (!to.empty()) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, 10'000) <= 0) return false;
      const auto n = ::recv(fd_, to.data(), to.size(), 0);
      if (n <= 0) return false;
      to = to.subspan(std::size_t(n));
    }
    return true;
  }
  /// Whether the server ends this connection within ten seconds; what it sends before is thrown away.
  bool ended() {
    std::byte b[256];
    while (receive(std::span(b, 1))) {
    }
    pollfd p{fd_, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  /// Shakes hands as a control lane.
  wire::welcome_body greet(std::uint16_t lane = 0, const std::uint64_t* token = nullptr, errc expect = errc::ok) {
    send(wire::make_header(wire::frame_type::hello, sizeof(wire::hello_body)));
    wire::hello_body b{};
    b.lane = lane;
    b.generation = 1;
    b.message_bytes_max = 1u << 20;
    if (token) std::memcpy(b.token, token, sizeof b.token);
    send(b);
    wire::frame_header h{};
    wire::welcome_body w{};
    REQUIRE(receive(std::as_writable_bytes(std::span(&h, 1))));
    REQUIRE(receive(std::as_writable_bytes(std::span(&w, 1))));
    CHECK(h.type == std::uint8_t(wire::frame_type::welcome));
    CHECK(wire::status_of(h) == expect);
    return w;
  }

 private:
  int fd_ = -1;
};

}  // namespace fm::fabric::test
