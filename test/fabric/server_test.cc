// A stream server against clients that do not follow the protocol: each costs its own connection, never the process,
// and a well-behaved session beside it notices nothing.
#include <catch2/catch.hpp>

#include "fixture.h"
#include "raw_client.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;
using namespace fm::fabric::wire;

namespace {

/// The good session still works, on its first connection.
template <class Pair>
void unharmed(Pair& p) {
  auto data = pattern(1000, 9);
  std::vector<std::byte> back(1000);
  CHECK(p.transfer(op_kind::write, data.data(), data.size(), 64) == errc::ok);
  CHECK(p.transfer(op_kind::read, back.data(), back.size(), 64) == errc::ok);
  CHECK(back == data);
  CHECK(p.link->generation() == 1);
}

frame_header corrupt(int how) {
  auto h = make_header(frame_type::read);
  h.generation = 1;
  h.bytes = 8;
  switch (how) {
    case 0: h.magic = 0; break;
    case 1: h.type = 99; break;
    case 2: h.flags = 0xf0; break;
    case 3: h.zero[3] = 1; break;
    case 4: h.bytes = chunk_bytes + 1; break;
    case 5: h = make_header(frame_type::write, chunk_bytes + 1); break;
    case 6: h = make_header(frame_type::message, ~0u); break;
    case 7: h = make_header(frame_type::hello, sizeof(hello_body)); break;
    case 8: h = make_header(frame_type::answer); break;
    case 9: h.major = 9; break;
    default:
      h = make_header(frame_type::notice_ack);
      h.bytes = 5;
      break;
  }
  return h;
}

}  // namespace

TEMPLATE_TEST_CASE("a malformed frame closes its own connection only", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  for (int how = 0; how <= 10; ++how) {
    raw_client bad(p.server->url());
    bad.greet();
    bad.send(corrupt(how));
    CHECK(bad.ended());
  }
  unharmed(p);
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended == 11; }));
}

TEMPLATE_TEST_CASE("connections that break in their first breath take no place for ever", "", over_shm, over_tcp) {
  pair_over<TestType> p({}, {.handshakes_max = 3});
  for (int i = 0; i < 10; ++i) {
    raw_client bad(p.server->url());
    struct {
      frame_header header = make_header(frame_type::hello, sizeof(hello_body));
      hello_body body{};
      frame_header more = corrupt(0);
    } at_once;
    at_once.body.generation = 1;
    at_once.body.message_bytes_max = 1u << 20;
    bad.send(at_once);
    CHECK(bad.ended());
  }
  raw_client good(p.server->url());
  good.greet();
  unharmed(p);
}

TEMPLATE_TEST_CASE("a connection must begin with a hello", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  {
    raw_client bad(p.server->url());
    bad.send(corrupt(4));
    CHECK(bad.ended());
  }
  {
    raw_client bad(p.server->url());
    auto h = make_header(frame_type::read);
    bad.send(h);
    CHECK(bad.ended());
  }
  {
    raw_client http(p.server->url());
    const std::string get = "GET / HTTP/1.1\r\nHost: farmem\r\nUser-Agent: somebody\r\n\r\n";
    http.send(std::as_bytes(std::span(get)));
    CHECK(http.ended());
  }
  unharmed(p);
}

TEMPLATE_TEST_CASE("another major version is told so", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  raw_client old(p.server->url());
  auto h = make_header(frame_type::hello, sizeof(hello_body));
  h.major = 2;
  old.send(h);
  frame_header answer{};
  REQUIRE(old.receive(std::as_writable_bytes(std::span(&answer, 1))));
  CHECK(answer.type == std::uint8_t(frame_type::welcome));
  CHECK(status_of(answer) == errc::version_mismatch);
  CHECK(old.ended());
}

TEMPLATE_TEST_CASE("a frame that is cut off, at any byte, ends its session and holds nothing", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  auto h = make_header(frame_type::write, 100);
  h.generation = 1;
  std::vector<std::byte> whole(sizeof h + 100, std::byte{7});
  std::memcpy(whole.data(), &h, sizeof h);
  int cuts = 0;
  for (std::size_t cut = 1; cut < whole.size(); cut += 13, ++cuts) {
    raw_client bad(p.server->url());
    bad.greet();
    bad.send(std::span(whole).first(cut));
    bad.finish_sending();
    CHECK(bad.ended());
  }
  CHECK(p.agent.until([&](auto& a) { return a.sessions_ended == cuts; }));
  unharmed(p);
}

TEMPLATE_TEST_CASE("a lane with a made-up token is refused", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  raw_client bad(p.server->url());
  const std::uint64_t token[2] = {1, 2};
  bad.greet(1, token, errc::stale);
  CHECK(bad.ended());
  unharmed(p);
}

TEMPLATE_TEST_CASE("all lanes of a session end when one does", "", over_shm, over_tcp) {
  pair_over<TestType> p;
  raw_client control(p.server->url());
  const auto w = control.greet();
  raw_client fetch(p.server->url());
  fetch.greet(1, w.token);
  fetch.send(corrupt(1));
  CHECK(fetch.ended());
  CHECK(control.ended());
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended == 1; }));
  raw_client late(p.server->url());
  late.greet(1, w.token, errc::stale);
  unharmed(p);
}

TEMPLATE_TEST_CASE("a connection that does not say who it is is closed in time", "", over_shm, over_tcp) {
  listen_options limits;
  limits.handshake_within = std::chrono::milliseconds(200);
  pair_over<TestType> p({}, limits);
  raw_client silent(p.server->url());
  raw_client halting(p.server->url());
  const auto h = make_header(frame_type::hello, sizeof(hello_body));
  halting.send(std::as_bytes(std::span(&h, 1)).first(20));
  CHECK(silent.ended());
  CHECK(halting.ended());
  unharmed(p);
}

TEMPLATE_TEST_CASE("connections that have not said who they are have a cap of their own", "", over_shm, over_tcp) {
  listen_options limits;
  limits.handshakes_max = 3;
  limits.handshake_within = std::chrono::seconds(30);
  pair_over<TestType> p({}, limits);
  {
    std::vector<std::unique_ptr<raw_client>> silent;
    for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<raw_client>(p.server->url()));
    raw_client one_more(p.server->url());
    CHECK(one_more.ended());
    unharmed(p);
  }
  for (bool in = false; !in;) {  // the places come free as soon as the server sees that their owners left
    recorded_events events;
    try {
      connect(p.server->url(), {}, events);
      in = true;
    } catch (const error& e) {
      CHECK((e.code() == errc::unreachable || e.code() == errc::disconnected));
    }
  }
}

TEMPLATE_TEST_CASE("while a message of one session is served, another thread answers the next session's", "", over_shm,
                   over_tcp) {
  listen_options listening;
  listening.io_threads = std::is_same_v<TestType, over_shm> ? 2 : 4;
  pair_over<TestType> p({}, listening);
  recorded_events events;
  const auto next = connect(p.server->url(), {}, events);
  const auto ask = [&](session& s, command c, lane on) {
    request r;
    r.kind = op_kind::message;
    r.on = on;
    r.sg_count = 1;
    r.sg[0] = {&c, sizeof c};
    s.post(r);
    s.wait(r);
    return r.status;
  };
  const std::array lanes{lane::control, lane::fetch, lane::bulk};
  // It has all of them before the thread that lets connections in is kept.
  for (const lane on : lanes) CHECK(ask(*next, {}, on) == errc::ok);
  command hold{.what = verb::hold};
  request held;
  held.kind = op_kind::message;
  held.on = lane::control;
  held.sg_count = 1;
  held.sg[0] = {&hold, sizeof hold};
  p.link->post(held);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  for (const lane on : lanes) CHECK(ask(*next, {}, on) == errc::ok);
  CHECK(ask(*next, {.what = verb::notify, .count = 50}, lane::control) == errc::ok);
  CHECK(events.until([](auto& e) { return e.notices.size() == 50; }));
  CHECK_FALSE(held.done());
  p.agent.release();
  p.link->wait(held);
  CHECK(held.status == errc::ok);
  next->close();
}

TEMPLATE_TEST_CASE("a session that is finished ends when its notices are handled, or in time if they are not", "",
                   over_shm, over_tcp) {
  pair_over<TestType> p;
  command c{.what = verb::finish, .count = 3};
  request r;
  (void)p.message(r, &c, sizeof c);  // the end may overtake the answer
  REQUIRE(p.events.until([](auto& e) { return e.downs.size() == 1; }));
  CHECK(p.events.notices.size() == 3);

  raw_client silent(p.server->url());
  silent.greet();
  silent.send(make_header(frame_type::message, sizeof c));
  silent.send(c);
  CHECK(silent.ended());
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended == 2; }));
}

TEST_CASE("a plaintext listener beyond this host has to be asked for") {
  memory_service agent;
  try {
    listen("tcp://0.0.0.0:0", {}, agent);
    FAIL("listens");
  } catch (const error& e) {
    CHECK(e.code() == errc::access_denied);
    CHECK(std::string(e.what()).find("0.0.0.0") != std::string::npos);
  }
  listen_options open_to_all;
  open_to_all.insecure = true;
  CHECK(listen("tcp://0.0.0.0:0", open_to_all, agent)->url().starts_with("tcp://0.0.0.0:"));
}

TEST_CASE("listening fails with the address in the error") {
  memory_service agent;
  const auto first = listen("tcp://127.0.0.1:0", {}, agent);
  CHECK_THROWS_AS(listen(first->url(), {}, agent), error);
  CHECK_THROWS_AS(listen("shm:///no/such/folder/socket", {}, agent), error);
  CHECK_THROWS_AS(listen("local:", {}, agent), error);
  const std::string path = over_shm::listen_url();
  const auto unix_one = listen(path, {}, agent);
  CHECK_THROWS_AS(listen(path, {}, agent), error);
}

TEST_CASE("the socket of a listener that is too busy to answer stays, and that of a dead one is replaced") {
  const std::string url = over_shm::listen_url();
  const std::string path = value_or_throw(parse_url(url)).path;
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::strcpy(un.sun_path, path.c_str());
  const auto at = reinterpret_cast<const sockaddr*>(&un);
  memory_service agent;
  {
    const os::descriptor busy(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(busy.get(), at, sizeof un) == 0);
    REQUIRE(::listen(busy.get(), 0) == 0);
    const os::descriptor waits(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));  // all that its backlog holds
    REQUIRE(::connect(waits.get(), at, sizeof un) == 0);
    try {
      listen(url, {}, agent);
      FAIL("listens");
    } catch (const error& e) {
      CHECK(e.code() == errc::refused);
      CHECK(std::string(e.what()).find(path) != std::string::npos);
    }
    CHECK(::access(path.c_str(), F_OK) == 0);
  }
  CHECK(::access(path.c_str(), F_OK) == 0);
  CHECK(listen(url, {}, agent)->url() == url);
}

TEST_CASE("nobody at an address is unreachable") {
  recorded_events events;
  for (const char* url : {"tcp://127.0.0.1:1", "shm:///tmp/farmem-nobody-listens-here"}) {
    try {
      connect(url, {}, events);
      FAIL("connected");
    } catch (const error& e) {
      CHECK(e.code() == errc::unreachable);
      CHECK(std::string(e.what()).find(url) != std::string::npos);
    }
  }
}
