// Connections beside a session's own, which the service gets when they have said which session they belong to.
#include "fixture.h"
#include "raw_client.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

namespace {

/// Opens a stream when the connection stands, and once more later.
class opener final : public session_events {
 public:
  errc connected(session& s, std::uint32_t) override {
    outcome = s.open_stream(5, clock::now() + std::chrono::minutes(10), socket);
    return errc::ok;
  }
  void disconnected(session&, std::uint32_t, errc) noexcept override {}
  void lost(session&, errc) noexcept override {}
  void notice(session&, std::span<const std::byte>) noexcept override {}
  errc outcome = errc::timed_out;
  os::descriptor socket;
};

bool passes(const os::descriptor& from, const os::descriptor& to) {
  const char out = 'x';
  char in = 0;
  if (::send(from.get(), &out, 1, MSG_NOSIGNAL) != 1) return false;
  pollfd p{to.get(), POLLIN, 0};
  return ::poll(&p, 1, 10'000) == 1 && ::recv(to.get(), &in, 1, 0) == 1 && in == out;
}

}  // namespace

TEST_CASE("a stream is the service's from its welcome on, and outlives its session") {
  memory_service s;
  s.takes_streams = true;
  auto server = listen("tcp://127.0.0.1:0", {}, s);
  opener o;
  auto link = connect(server->url(), {}, o);
  REQUIRE(o.outcome == errc::ok);
  REQUIRE(s.until([](memory_service& m) { return m.streams.size() == 1; }));
  REQUIRE(s.streams[0].first == 5);
  REQUIRE(passes(o.socket, s.streams[0].second));
  os::descriptor late;
  REQUIRE(link->open_stream(6, clock::now() + std::chrono::seconds(1), late) == errc::unsupported);
  link->close();
  REQUIRE(s.until([](memory_service& m) { return m.sessions_ended == 1; }));
  server.reset();
  REQUIRE(passes(s.streams[0].second, o.socket));
}

TEST_CASE("there are no streams where there are no connections for them") {
  memory_service s;
  s.takes_streams = true;
  opener here;
  auto local = connect("local:", {}, here, &s);
  REQUIRE(here.outcome == errc::unsupported);
  local->close();
  auto server = listen(over_shm::listen_url(), {}, s);
  opener near;
  auto link = connect(server->url(), {}, near);
  REQUIRE(near.outcome == errc::unsupported);
  link->close();
}

TEST_CASE("a stream that the service does not want costs the session its connection") {
  memory_service s;
  auto server = listen("tcp://127.0.0.1:0", {}, s);
  raw_client control(server->url());
  const wire::welcome_body w = control.greet();
  raw_client stream(server->url());
  stream.greet(wire::lane_stream, w.token);
  REQUIRE(control.ended());
  REQUIRE(stream.ended());
  REQUIRE(s.until([](memory_service& m) { return m.sessions_ended == 1; }));
}

TEST_CASE("a stream that belongs to nobody, or says more than its hello, is not handed over") {
  memory_service s;
  s.takes_streams = true;
  auto server = listen("tcp://127.0.0.1:0", {}, s);
  {
    raw_client control(server->url());
    const wire::welcome_body w = control.greet();
    const std::uint64_t other[2] = {w.token[0], w.token[1] + 1};
    raw_client stranger(server->url());
    stranger.greet(wire::lane_stream, other, errc::stale);
    REQUIRE(stranger.ended());
    raw_client stream(server->url());
    struct {
      wire::frame_header header = wire::make_header(wire::frame_type::hello, sizeof(wire::hello_body));
      wire::hello_body body{};
      char more[3] = {};
    } hasty;
    hasty.body.lane = wire::lane_stream;
    hasty.body.generation = 1;
    hasty.body.message_bytes_max = 1u << 20;
    std::memcpy(hasty.body.token, w.token, sizeof w.token);
    stream.send(hasty);
    REQUIRE(stream.ended());
    REQUIRE(control.ended());
  }
  REQUIRE(s.until([](memory_service& m) { return m.sessions_ended == 1; }));
  REQUIRE(s.streams.empty());
}

TEST_CASE("streams of sessions that end meanwhile are handed over or not, and nothing comes after the end") {
  memory_service s;
  s.takes_streams = true;
  auto server = listen("tcp://127.0.0.1:0", {.io_threads = 3}, s);
  for (int round = 0; round < 200; ++round) {
    auto control = std::make_unique<raw_client>(server->url());
    const wire::welcome_body w = control->greet();
    raw_client stream(server->url());
    stream.send(wire::make_header(wire::frame_type::hello, sizeof(wire::hello_body)));
    wire::hello_body b{};
    b.lane = wire::lane_stream;
    b.generation = 1;
    b.message_bytes_max = 1u << 20;
    std::memcpy(b.token, w.token, sizeof b.token);
    stream.send(b);
    control.reset();
    REQUIRE(s.until([&](memory_service& m) { return m.sessions_ended == round + 1; }));
  }
}
