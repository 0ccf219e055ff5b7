// What every transport must do, run over each of them with the same service.
#include <catch2/catch.hpp>

#include <thread>

#include "conformance.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

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
