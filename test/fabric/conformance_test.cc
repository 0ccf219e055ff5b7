// What every transport must do, run over each of them with the same service.
#include <catch2/catch.hpp>

#include <thread>

#include "fixture.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

#ifdef FARMEM_CONFORMANCE_OF  // one transport that not every machine has: test/rdma
#define ALL_TRANSPORTS FARMEM_CONFORMANCE_OF
#define CONNECTED_TRANSPORTS FARMEM_CONFORMANCE_OF
#else
#define ALL_TRANSPORTS over_local, over_shm, over_tcp
// Those whose requests can be held by the peer; with `local:` a request is done when post returns.
#define CONNECTED_TRANSPORTS over_shm, over_tcp
#endif

TEMPLATE_TEST_CASE("what was written is read back", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  auto data = pattern(4096, 1);
  std::vector<std::byte> back(4096);
  CHECK(p.transfer(op_kind::write, data.data(), data.size(), 12345) == errc::ok);
  CHECK(p.transfer(op_kind::read, back.data(), back.size(), 12345) == errc::ok);
  CHECK(back == data);
}

TEMPLATE_TEST_CASE("transfers of several MiB and of nothing arrive whole", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  auto data = pattern(5'000'001, 2);
  std::vector<std::byte> back(data.size());
  for (const lane on : {lane::bulk, lane::fetch}) {
    CHECK(p.transfer(op_kind::write, data.data(), data.size(), 3, 1, on) == errc::ok);
    CHECK(std::memcmp(p.agent.base(1) + 3, data.data(), data.size()) == 0);
    CHECK(p.transfer(op_kind::read, back.data(), back.size(), 3, 1, on) == errc::ok);
    CHECK(back == data);
    back.assign(back.size(), std::byte{});
  }
  CHECK(p.transfer(op_kind::write, nullptr, 0, 7) == errc::ok);
  CHECK(p.transfer(op_kind::read, nullptr, 0, 7) == errc::ok);
}

TEMPLATE_TEST_CASE("scatter and gather lists are one run of bytes at the peer", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  auto data = pattern(200'000, 3);
  request w;
  p.prepare(w, op_kind::write, data.data(), 100, 0);
  w.sg_count = 4;
  w.sg[1] = {data.data() + 100, 0};
  w.sg[2] = {data.data() + 100, 99'901};
  w.sg[3] = {data.data() + 100'001, 99'999};
  CHECK(p.run(w) == errc::ok);
  CHECK(std::memcmp(p.agent.base(0), data.data(), data.size()) == 0);
  std::vector<std::byte> back(data.size());
  request r;
  p.prepare(r, op_kind::read, back.data(), 70'000, 0);
  r.sg_count = 3;
  r.sg[1] = {back.data() + 70'000, 1};
  r.sg[2] = {back.data() + 70'001, back.size() - 70'001};
  CHECK(p.run(r) == errc::ok);
  CHECK(back == data);
}

TEMPLATE_TEST_CASE("atomics return the old value and happen once", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  const auto atomic = [&](op_kind kind, std::uint64_t operand, std::uint64_t compare, std::uint64_t& old) {
    request r;
    r.kind = kind;
    r.where = {0, p.agent.generation_of(0), 64};
    r.operand = operand;
    r.compare = compare;
    const errc e = p.run(r);
    old = r.value;
    return e;
  };
  std::uint64_t old = 99;
  CHECK(atomic(op_kind::fetch_add, 5, 0, old) == errc::ok);
  CHECK(old == 0);
  CHECK(atomic(op_kind::compare_swap, 8, 4, old) == errc::ok);
  CHECK(old == 5);
  CHECK(atomic(op_kind::compare_swap, 8, 5, old) == errc::ok);
  CHECK(old == 5);
  CHECK(atomic(op_kind::fetch_add, 1, 0, old) == errc::ok);
  CHECK(old == 8);

  constexpr int threads = 3, each = 200;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (int i = 0; i < each; ++i) {
        request r;
        r.kind = op_kind::fetch_add;
        r.where = {0, 1, 64};
        r.operand = 1;
        p.link->post(r);
        p.link->wait(r);
      }
    });
  for (auto& w : workers) w.join();
  CHECK(atomic(op_kind::fetch_add, 0, 0, old) == errc::ok);
  CHECK(old == 9 + threads * each);
}

TEMPLATE_TEST_CASE("access outside a region, or with another generation, is denied and nothing else happens", "",
                   ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::byte b[16] = {};
  const std::uint64_t end = memory_service::region_bytes;
  CHECK(p.transfer(op_kind::read, b, 16, end - 16) == errc::ok);
  CHECK(p.transfer(op_kind::read, b, 16, end - 15) == errc::access_denied);
  CHECK(p.transfer(op_kind::write, b, 16, end - 15) == errc::access_denied);
  CHECK(p.transfer(op_kind::read, b, 16, ~0ull - 7) == errc::access_denied);
  CHECK(p.transfer(op_kind::write, b, 16, ~0ull) == errc::access_denied);
  request r;
  p.prepare(r, op_kind::read, b, 8, 0);
  r.where.generation += 1;
  CHECK(p.run(r) == errc::access_denied);
  request far;
  p.prepare(far, op_kind::read, b, 8, 0);
  far.where.region = 17;
  CHECK(p.run(far) == errc::access_denied);
  request odd;
  p.prepare(odd, op_kind::fetch_add, nullptr, 0, 4);
  CHECK(p.run(odd) == errc::invalid_argument);
  CHECK(p.link->state() == session_state::up);
  CHECK(p.transfer(op_kind::read, b, 16, 0) == errc::ok);
  CHECK(p.link->generation() == 1);
}

TEMPLATE_TEST_CASE("messages are answered, empty ones and ones at the limit included", "", ALL_TRANSPORTS) {
  session_options options;
  options.message_bytes_max = 300'000;
  pair_over<TestType> p(options);
  for (const std::size_t n : {0u, 1u, 100u, 65'536u, 300'000u}) {
    auto data = pattern(n, unsigned(n));
    if (n >= sizeof(command)) data[0] = std::byte(verb::echo);
    for (const lane on : {lane::control, lane::fetch, lane::bulk}) {
      request r;
      CHECK(p.message(r, data.data(), n, on) == errc::ok);
      CHECK(r.reply == data);
    }
  }
  std::vector<std::byte> big(300'001);
  request r;
  CHECK(p.message(r, big.data(), big.size()) == errc::too_large);
}

TEMPLATE_TEST_CASE("a message sees every write posted before it on its lane", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  for (unsigned round = 0; round < 20; ++round) {
    auto data = pattern(300'000, round);
    request writes[3];
    std::vector<request*> batch;
    for (std::size_t i = 0; i < 3; ++i) {
      p.prepare(writes[i], op_kind::write, data.data() + i * 100'000, 100'000, i * 100'000, 0, lane::bulk);
      batch.push_back(&writes[i]);
    }
    command c{.what = verb::sum, .region = 0, .offset = 0, .count = data.size()};
    request m;
    m.kind = op_kind::message;
    m.on = lane::bulk;
    m.sg_count = 1;
    m.sg[0] = {&c, sizeof c};
    batch.push_back(&m);
    p.link->post(batch);
    p.link->wait(m);
    REQUIRE(m.status == errc::ok);
    std::uint32_t crc = 0;
    REQUIRE(m.reply.size() == sizeof crc);
    std::memcpy(&crc, m.reply.data(), sizeof crc);
    CHECK(crc == fm::detail::crc32c(data.data(), data.size()));
    for (auto& w : writes) {
      p.link->wait(w);
      CHECK(w.status == errc::ok);
    }
  }
}

TEMPLATE_TEST_CASE("notices arrive in order on the session's thread", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  command c{.what = verb::notify, .count = 50};
  request r;
  REQUIRE(p.message(r, &c, sizeof c) == errc::ok);
  std::uint64_t sent = 0;
  std::memcpy(&sent, r.reply.data(), sizeof sent);
  CHECK(sent == 50);
  REQUIRE(p.events.until([](auto& e) { return e.notices.size() >= 50; }));
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::uint64_t got = 0;
    REQUIRE(p.events.notices[i].size() == sizeof got);
    std::memcpy(&got, p.events.notices[i].data(), sizeof got);
    CHECK(got == i);
  }
}

TEMPLATE_TEST_CASE("a flood of notices meets a bound, and later ones are accepted again", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  command c{.what = verb::notify, .count = 20'000};
  request r;
  REQUIRE(p.message(r, &c, sizeof c) == errc::ok);
  std::uint64_t sent = 0;
  std::memcpy(&sent, r.reply.data(), sizeof sent);
  CHECK(sent >= 100);
  REQUIRE(p.events.until([&](auto& e) { return e.notices.size() >= sent; }));
  CHECK(p.link->generation() == 1);
  c.count = 1;
  std::uint64_t more = 0;
  while (more == 0) {
    request again;
    REQUIRE(p.message(again, &c, sizeof c) == errc::ok);
    std::memcpy(&more, again.reply.data(), sizeof more);
  }
  CHECK(p.events.until([&](auto& e) { return e.notices.size() >= sent + 1; }));
}

TEMPLATE_TEST_CASE("notices that were taken are heard before the end of a listener that is destroyed next", "",
                   CONNECTED_TRANSPORTS) {
  for (int round = 0; round < 30; ++round) {
    pair_over<TestType> p;
    command c{.what = verb::notify, .count = 100};
    request r;
    REQUIRE(p.message(r, &c, sizeof c) == errc::ok);
    std::uint64_t sent = 0;
    std::memcpy(&sent, r.reply.data(), sizeof sent);
    CHECK(sent == 100);
    p.server.reset();
    REQUIRE(p.events.until([](auto& e) { return !e.downs.empty(); }));
    REQUIRE(p.events.notices.size() == sent);
  }
}

TEMPLATE_TEST_CASE("a broken connection is replaced and the generation goes up by one", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::byte b[8] = {std::byte{1}};
  for (std::uint32_t g = 1; g <= 4; ++g) {
    CHECK(p.link->generation() == g);
    CHECK(p.transfer(op_kind::write, b, 8, 0) == errc::ok);
    p.reconnect();
  }
  CHECK(p.events.ups == std::vector<std::uint32_t>{1, 2, 3, 4, 5});
  CHECK(p.events.downs == std::vector<std::uint32_t>{1, 2, 3, 4});
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended >= 4; }));
}

TEMPLATE_TEST_CASE("requests posted between two connections complete as disconnected", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::atomic<bool> go{false}, entered{false};
  std::mutex m;
  std::condition_variable cv;
  p.events.on_connected = [&](session&, std::uint32_t) {  // holds the session before `up`
    std::unique_lock lock(m);
    entered = true;
    cv.notify_all();
    cv.wait_for(lock, std::chrono::minutes(10), [&] { return go.load(); });
    return errc::ok;
  };
  p.link->drop_connection(p.link->generation());
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::disconnected);
  {
    std::unique_lock lock(m);
    REQUIRE(cv.wait_for(lock, std::chrono::minutes(10), [&] { return entered.load(); }));
  }
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::disconnected);
  CHECK(p.link->state() == session_state::down);
  {
    const std::lock_guard lock(m);
    go = true;
    cv.notify_all();
  }
  REQUIRE(p.events.until([](auto& e) { return e.ups.size() == 2; }));
  while (p.link->state() != session_state::up) std::this_thread::yield();
  p.attach_all();
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::ok);
}

TEMPLATE_TEST_CASE("the owner may talk on the control lane before the session is up", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  errc control = errc::cancelled, fetch = errc::cancelled;
  std::vector<std::byte> reply;
  p.events.on_connected = [&](session& s, std::uint32_t) {
    auto data = pattern(5, 5);
    request r;
    r.kind = op_kind::message;
    r.on = lane::control;
    r.sg_count = 1;
    r.sg[0] = {data.data(), data.size()};
    s.post(r);
    s.wait(r);
    control = r.status;
    reply = r.reply;
    request other;
    other.kind = op_kind::message;
    other.on = lane::fetch;
    s.post(other);
    s.wait(other);
    fetch = other.status;
    return errc::ok;
  };
  p.reconnect();
  CHECK(control == errc::ok);
  CHECK(reply == pattern(5, 5));
  CHECK(fetch == errc::disconnected);
}

TEMPLATE_TEST_CASE("a service that refuses a session makes connect throw and ends a reconnect", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  p.agent.refuse_with = errc::refused;
  recorded_events other;
  try {
    if constexpr (TestType::in_process)
      connect("local:", {}, other, &p.agent);
    else
      connect(p.server->url(), {}, other);
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::refused);
  }
  p.link->drop_connection(p.link->generation());
  REQUIRE(p.events.until([](auto& e) { return e.lost_with != errc::ok; }));
  CHECK(p.events.lost_with == errc::refused);
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::agent_lost);
  CHECK(p.link->state() == session_state::lost);
}

TEMPLATE_TEST_CASE("an owner that cannot use the connection ends the session", "", ALL_TRANSPORTS) {
  memory_service agent;
  std::unique_ptr<listener> server;
  recorded_events events;
  events.on_connected = [](session&, std::uint32_t) { return errc::layout_mismatch; };
  try {
    if constexpr (TestType::in_process) {
      connect("local:", {}, events, &agent);
    } else {
      server = listen_over<TestType>(agent);
      connect(server->url(), {}, events);
    }
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::layout_mismatch);
  }
  CHECK(events.lost_with == errc::ok);
}

TEMPLATE_TEST_CASE("a message that the service refuses costs the connection only", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  for (const verb v : {verb::refuse, verb::kick}) {
    const auto before = p.link->generation();
    command c{.what = v};
    request r;
    const errc e = p.message(r, &c, sizeof c);
    if (v == verb::refuse) CHECK(e == errc::disconnected);
    REQUIRE(p.events.until([&](auto& ev) { return ev.ups.back() > before; }));
    while (p.link->state() != session_state::up) std::this_thread::yield();
    p.attach_all();
  }
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::ok);
}

TEMPLATE_TEST_CASE("an answer over the limit is a bad frame and costs the connection", "", ALL_TRANSPORTS) {
  session_options options;
  options.message_bytes_max = 10'000;
  pair_over<TestType> p(options);
  command c{.what = verb::grow, .count = 10'001};
  request r;
  CHECK(p.message(r, &c, sizeof c) == errc::disconnected);
  REQUIRE(p.events.until([](auto& e) { return e.ups.size() == 2; }));
}

namespace {
struct chain {
  session* link = nullptr;
  int left = 0;
  std::atomic<bool> over{false};
  static void step(request& r) noexcept {
    auto* c = static_cast<chain*>(r.context);
    if (--c->left == 0)
      c->over.store(true, std::memory_order_release);
    else
      c->link->post(r);
  }
};
}  // namespace

TEMPLATE_TEST_CASE("a completion may post its request again, any number of times", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::byte b[8];
  for (const bool alive : {true, false}) {
    chain c{.link = p.link.get(), .left = alive ? 2000 : 200'000};
    request r;
    p.prepare(r, op_kind::read, b, 8, 0);
    r.on_done = chain::step;
    r.context = &c;
    if (!alive) p.link->close();  // then every post completes at once: no recursion, however long the chain
    p.link->post(r);
    while (!c.over.load(std::memory_order_acquire)) {
      p.link->poll();
      std::this_thread::yield();
    }
  }
}

TEMPLATE_TEST_CASE("a closed session completes everything as cancelled", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  p.link->close();
  p.link->close();
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::cancelled);
  CHECK(p.link->state() == session_state::closed);
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended == 1; }));
  CHECK(p.events.downs.empty());
}

TEMPLATE_TEST_CASE("threads that use a session while it breaks see each request end once", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> ended{0}, bad{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t)
    workers.emplace_back([&, t] {
      std::vector<std::byte> mine(3000, std::byte(t + 1)), back(3000);
      while (!stop.load()) {
        request w, r;
        w.kind = op_kind::write;
        r.kind = op_kind::read;
        r.fence = true;
        w.where = r.where = {0, 1, std::uint64_t(t) * 4096};
        w.sg_count = r.sg_count = 1;
        w.sg[0] = {mine.data(), mine.size()};
        r.sg[0] = {back.data(), back.size()};
        request* both[] = {&w, &r};
        p.link->post(both);
        p.link->wait(w);
        p.link->wait(r);
        for (const errc e : {w.status, r.status})
          if (e != errc::ok && e != errc::disconnected && e != errc::access_denied) ++bad;
        if (w.status == errc::ok && r.status == errc::ok && back != mine) ++bad;
        ++ended;
      }
    });
  for (int i = 0; i < 8; ++i) {
    const auto at = ended.load();
    while (ended.load() < at + 20) std::this_thread::yield();
    p.reconnect();
  }
  stop = true;
  for (auto& w : workers) w.join();
  CHECK(bad.load() == 0);
  CHECK(p.link->generation() == 9);
}

TEMPLATE_TEST_CASE("a message that is not answered in time ends by its deadline, and its late answer reaches nobody",
                   "", CONNECTED_TRANSPORTS) {
  const bool by_deadline = GENERATE(true, false);
  pair_over<TestType> p;
  command hold{.what = verb::hold}, echo{.count = 17};
  request late;
  late.kind = op_kind::message;
  late.sg_count = 1;
  late.sg[0] = {&hold, sizeof hold};
  const duration within = by_deadline ? a_while<TestType> : std::chrono::seconds(60);
  late.deadline = clock::now() + within;
  p.link->post(late);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  CHECK_FALSE(late.done());
  if (!by_deadline) p.link->cancel(late);
  p.link->wait(late);
  CHECK(late.status == (by_deadline ? errc::timed_out : errc::cancelled));
  CHECK(late.reply.empty());
  p.agent.release();
  request next;
  CHECK(p.message(next, &echo, sizeof echo) == errc::ok);
  CHECK(next.reply.size() == sizeof echo);  // the answer to this one, not the one before
  CHECK(late.reply.empty());
  CHECK(p.link->generation() == 1);
}

TEMPLATE_TEST_CASE("requests beyond the credit wait their turn, and no longer than their deadline", "",
                   CONNECTED_TRANSPORTS) {
  session_options options;
  options.requests_in_flight = 2;
  pair_over<TestType> p(options);
  command hold{.what = verb::hold};
  std::array<request, 3> r;
  for (request& one : r) {
    one.kind = op_kind::message;
    one.sg_count = 1;
    one.sg[0] = {&hold, sizeof hold};
  }
  p.link->post(r[0]);
  p.link->post(r[1]);
  r[2].deadline = clock::now() + std::chrono::milliseconds(50);
  p.link->post(r[2]);
  p.link->wait(r[2]);
  CHECK(r[2].status == errc::timed_out);
  CHECK_FALSE(r[0].done());
  p.agent.release();
  for (std::size_t i : {0, 1}) {
    p.link->wait(r[i]);
    CHECK(r[i].status == errc::ok);
  }
  command echo{};
  request next;
  CHECK(p.message(next, &echo, sizeof echo) == errc::ok);
}
