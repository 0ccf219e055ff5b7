// A connection to a port of this host where nobody listens: the system may give that port to the one that connects.
#include "base/limits.h"
#include "fabric/socket/socket.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace fm;
using namespace fm::fabric;

namespace {

/// A port that nothing is bound to, of the even ones among those that the system chooses from: to those that connect, it
/// gives the even ones first.
std::uint16_t free_port() {
  for (std::uint16_t port = 40'000; port < 50'000; port += 2) {
    const descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    if (::bind(s.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return port;
  }
  FAIL("no port is free");
  return 0;
}

}  // namespace

TEST_CASE("nobody is connected to himself while an agent is away, and its port stays free for it") {
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  const address to = value_or_throw(parse_url(url));
  // The system goes through its ports, some 14,000, one after the other.
  for (int i = 0; i < 30'000; ++i) {
    descriptor out;
    const errc e = connect_socket(to, clock::now() + std::chrono::seconds(60), out);
    if (e != errc::unreachable) {
      INFO(i);
      REQUIRE(e == errc::unreachable);
    }
  }
  std::string real;
  const descriptor back = listen_socket(to, url, false, real);
  CHECK(real == url);
}
