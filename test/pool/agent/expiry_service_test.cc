// Messages about objects that expire, spoken to the agent by hand on a clock of the test's own: nobody asks for what expires, changes
// are made once and in time, memory of what has expired is there for others, and messages that break the rules.
#include "pool/agent/service_fixture.h"

using namespace service_test;

namespace {

pool_expiries_answer expiries(client& c) {
  const message_head h{static_cast<std::uint16_t>(message_type::pool_expiries), 0, 0};
  fabric::answer a;
  REQUIRE(c.w.s->message(*c.p, std::as_bytes(std::span(&h, 1)), a) == errc::ok);
  pool_expiries_answer e{};
  REQUIRE(a.payload.size() == sizeof(answer_head) + sizeof e);
  std::memcpy(&e, a.payload.data() + sizeof(answer_head), sizeof e);
  return e;
}

errc read(client& c, const pool_object& o) { return c.say(message_type::pool_read, pool_read_body{o, 8, 0}); }

errc expire(client& c, const pool_object& o, std::uint64_t ms) {
  return c.say(message_type::pool_expire, pool_expire_body{{++c.number, 0, 0, never}, o, ms});
}

}  // namespace

TEST_CASE("an agent frees what has expired without a message, in steps, and gives its memory back") {
  world w;
  client one(w, 1);
  one.open();
  const pool_statistics_answer before = one.statistics();
  const pool_object stays = one.make(7);
  std::vector<pool_object> all;
  for (std::uint64_t i = 0; i < 10'000; ++i) all.push_back(one.make_expiring(i, 500 + i % 5));
  CHECK(expiries(one).expiring == all.size());
  const pool_statistics_answer full = one.statistics();
  CHECK(full.frame_bytes - before.frame_bytes >= 10'000 * 32);
  w.now_ns += 500'000'000;
  CHECK(read(one, all[0]) == errc::not_found);  // though nobody has freed it
  CHECK(read(one, all[1]) == errc::ok);
  CHECK(expiries(one).expired == 0);
  w.now_ns += 10'000'000;
  std::uint64_t gone = 0;
  int steps = 0;
  for (bool more = true; more; ++steps) {
    more = w.s->maintain();
    const std::uint64_t now = expiries(one).expired;
    REQUIRE(now - gone <= 256);
    gone = now;
  }
  CHECK(gone == all.size());
  CHECK(steps >= 40);
  CHECK(expiries(one).expiring == 0);
  pool_statistics_answer after = one.statistics();
  CHECK(after.frees == all.size());
  for (const pool_object& o : all) REQUIRE(read(one, o) == errc::not_found);
  CHECK(read(one, stays) == errc::ok);
  // It was asked to pass the epochs of the emptied frames.
  REQUIRE_FALSE(one.p->epochs.empty());
  REQUIRE(one.pass(after.epoch) == errc::ok);
  w.pass(milliseconds(1));
  after = one.statistics();
  CHECK(after.waiting_bytes == 0);
  CHECK(after.frame_bytes <= before.frame_bytes + 4 * 4096);
}

TEST_CASE("an object that expires after another is freed by a step of its own, and not before") {
  world w;
  client one(w, 1);
  one.open();
  const pool_object late = one.make_expiring(1, 900), soon = one.make_expiring(2, 100),
                    kept = one.make_expiring(3, 100), put_off = one.make_expiring(4, 100), given = one.make(5);
  w.pass(milliseconds(50));
  CHECK(expire(one, kept, 0) == errc::ok);
  CHECK(expire(one, put_off, 600) == errc::ok);
  CHECK(expire(one, given, 300) == errc::ok);
  w.pass(milliseconds(60));
  CHECK(expiries(one).expired == 1);
  CHECK(read(one, soon) == errc::not_found);
  CHECK(expire(one, soon, 100) == errc::not_found);
  CHECK(one.free(soon) == errc::not_found);
  w.pass(milliseconds(240));
  CHECK(expiries(one).expired == 2);
  CHECK(read(one, given) == errc::not_found);
  CHECK(read(one, put_off) == errc::ok);
  w.pass(milliseconds(300));
  CHECK(read(one, put_off) == errc::not_found);
  CHECK(read(one, late) == errc::ok);
  w.pass(milliseconds(250));
  CHECK(read(one, late) == errc::not_found);
  CHECK(read(one, kept) == errc::ok);
  CHECK(expiries(one).expiring == 0);
  CHECK(expiries(one).expired == 4);
}

TEST_CASE("a change of a time is made once, in time, and an answer that comes again puts nothing off") {
  world w;
  client one(w, 1);
  one.open();
  const std::uint64_t value = 3;
  const pool_alloc_expiring_body made{{1, 7, 0, never}, 8, 0, 400};
  const auto first =
      one.ask<pool_alloc_answer>(message_type::pool_alloc_expiring, made, std::as_bytes(std::span(&value, 1)));
  w.pass(milliseconds(300));
  const auto again =
      one.ask<pool_alloc_answer>(message_type::pool_alloc_expiring, made, std::as_bytes(std::span(&value, 1)));
  CHECK(std::memcmp(&first, &again, sizeof first) == 0);
  CHECK(one.statistics().allocations == 1);
  const pool_object at = first.at.object;
  const pool_expire_body renewed{{2, 7, 0, never}, at, 300};
  CHECK(one.say(message_type::pool_expire, renewed) == errc::ok);
  w.pass(milliseconds(200));
  CHECK(one.say(message_type::pool_expire, renewed) == errc::ok);  // the same: it expires when it did
  const pool_expire_body too_late{{3, 7, 0, one.opened.now + 1}, at, 0};
  CHECK(one.say(message_type::pool_expire, too_late) == errc::timed_out);
  CHECK(read(one, at) == errc::ok);
  w.now_ns += 100'000'000;
  CHECK(read(one, at) == errc::not_found);
  CHECK(one.say(message_type::pool_expire, renewed) == errc::ok);  // it was made
  CHECK(one.say(message_type::pool_expire, pool_expire_body{{3, 7, 0, never}, at, 300}) == errc::not_found);
  w.pass(milliseconds(1));
  CHECK(expiries(one).expired == 1);
}

TEST_CASE("memory of objects that have expired is there for an allocation, before anybody has freed them") {
  world w;
  client one(w, 1);
  one.open();
  const std::vector<std::byte> payload(3000);
  std::uint64_t number = 0;
  const auto make = [&](std::uint64_t ms) {
    std::vector<std::byte> b;
    pool_alloc_answer a{};
    const errc e = one.say(message_type::pool_alloc_expiring,
                           pool_alloc_expiring_body{{++number, 3, 0, never}, 3000, 0, ms}, &b, payload);
    if (e == errc::ok) std::memcpy(&a, b.data(), sizeof a);
    return std::pair(e, a.wait);
  };
  std::size_t made = 0;
  std::pair<errc, std::uint32_t> last;
  for (; (last = make(100)) == std::pair(errc::ok, 0u); ++made) REQUIRE(made < 10'000);
  while (last.first == errc::ok) last = make(100);  // it waits for compaction, which finds nothing
  CHECK((last.first == errc::agent_full || last.first == errc::quota_exceeded));
  w.now_ns += 100'000'000;
  CHECK(expiries(one).expired == 0);
  CHECK(make(100) == std::pair(errc::ok, 0u));
  CHECK(expiries(one).expired > 0);
  CHECK(made > 1000);
}

TEST_CASE("a message about times that breaks the rules costs its sender the connection, and changes nothing") {
  world w;
  client good(w, 1);
  good.open();
  const pool_object at = good.make(1);
  const std::uint64_t value = 1;
  const auto payload = std::as_bytes(std::span(&value, 1));
  std::uint64_t id = 10;
  const auto breaks = [&](message_type type, const auto& body, std::span<const std::byte> rest = {}) {
    client bad(w, ++id);
    bad.open();
    CHECK(bad.say(type, body, nullptr, rest) == errc::bad_frame);
    CHECK(bad.broke == errc::bad_frame);
  };
  const pool_change change{1, 0, 0, never};
  const auto alloc = message_type::pool_alloc_expiring, expire_it = message_type::pool_expire;
  breaks(alloc, pool_alloc_expiring_body{change, 8, 0, 0}, payload);
  breaks(alloc, pool_alloc_expiring_body{change, 8, 0, pool_expiry_ms_max + 1}, payload);
  breaks(alloc, pool_alloc_expiring_body{change, 8, 0, ~std::uint64_t{0}}, payload);
  breaks(alloc, pool_alloc_expiring_body{change, 9, 0, 10}, payload);
  breaks(alloc, pool_alloc_expiring_body{{0, 0, 0, never}, 8, 0, 10}, payload);
  breaks(alloc, pool_alloc_body{change, 8, 0});
  breaks(expire_it, pool_expire_body{change, at, pool_expiry_ms_max + 1});
  breaks(expire_it, pool_expire_body{change, at, ~std::uint64_t{0}});
  breaks(expire_it, pool_expire_body{change, at, 10}, payload);
  breaks(expire_it, pool_object_body{change, at});
  breaks(expire_it, pool_expire_body{{1, pool_streams_max, 0, never}, at, 10});
  pool_object odd = at;
  odd.zero = 1;
  breaks(expire_it, pool_expire_body{change, odd, 10});
  breaks(message_type::pool_expiries, value);
  // The longest time is none of those, nor are objects that there are not.
  CHECK(expire(good, at, pool_expiry_ms_max) == errc::ok);
  CHECK(expire(good, {at.vblock, at.generation + 1, at.index, at.slot, 0}, 10) == errc::not_found);
  CHECK(expire(good, {~0u, 1, 0xffff, 0xffff, 0}, 10) == errc::not_found);
  CHECK(expiries(good).expiring == 1);
  CHECK(good.statistics().allocations == 1);
  w.pass(milliseconds(20));
  CHECK(read(good, at) == errc::ok);
}
