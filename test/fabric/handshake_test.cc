// A new connection belongs to its handshake: nothing that was admitted to an earlier one is sent on it before, and who breaks
// an earlier one does not break it.
#include <catch2/catch.hpp>

#include <thread>

#include "fixture.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

TEMPLATE_TEST_CASE("while the owner talks at the beginning of a connection nobody else does", "", over_local, over_shm,
                   over_tcp) {
  constexpr std::uint32_t connections = 60;
  session_options options;
  options.requests_in_flight = 2;  // most posters wait for credit when the connection breaks
  pair_over<TestType> p(options);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> strangers{0};
  const auto messages = [&] {
    std::uint64_t n = 0;
    p.agent.until([&](memory_service& a) {
      n = a.messages;
      return true;
    });
    return n;
  };
  p.events.on_connected = [&](session&, std::uint32_t) {
    const std::uint64_t before = messages();
    const time_point until = clock::now() + std::chrono::milliseconds(2);
    while (clock::now() < until) std::this_thread::yield();
    strangers += messages() - before;
    return errc::ok;
  };
  std::vector<std::thread> posters;
  for (int t = 0; t < 6; ++t)
    posters.emplace_back([&] {
      while (!stop.load()) {
        request r;
        r.kind = op_kind::message;
        p.link->post(r);
        p.link->wait(r);
      }
    });
  for (std::uint32_t g = 2; g < 2 + connections; ++g) {
    p.link->drop_connection(p.link->generation());
    REQUIRE(p.events.until([&](auto& e) { return e.ups.back() == g; }));
    while (p.link->state() != session_state::up) std::this_thread::yield();
  }
  stop = true;
  for (auto& t : posters) t.join();
  CHECK(strangers.load() == 0);
}

TEMPLATE_TEST_CASE("who means an earlier connection does not break the one that stands", "", over_local, over_shm,
                   over_tcp) {
  pair_over<TestType> p;
  const std::uint32_t first = p.link->generation();
  p.reconnect();
  const std::uint32_t second = p.link->generation();
  REQUIRE(second > first);
  std::byte b[8];
  for (int i = 0; i < 3; ++i) {
    p.link->drop_connection(first);
    p.link->drop_connection(second + 1);
    CHECK(p.link->state() == session_state::up);
    CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::ok);
  }
  CHECK(p.link->generation() == second);
}
