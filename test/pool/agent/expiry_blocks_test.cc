// Objects that expire, in the agent's blocks, on a clock of the test's own: who is freed and when, across merges and in slots
// that are used again, in bounded steps, with books that go back.
#include <cstring>
#include <map>
#include <random>

#include "agent/pools/blocks/expiries.h"
#include "agent/pools/pool.h"
#include "pool/agent/blocks_fixture.h"

namespace {

using namespace blocks_test;
using fm::agent::expiry;
using fm::agent::frame_expiries;
using fm::agent::no_expiry;
namespace limits = fm::agent::limits;

/// Blocks whose clock stands still unless the test lets it go on.
struct clocked {
  std::int64_t now_ns = 1'000'000'000;
  fm::agent::environment agent{options(this)};
  world w;

  explicit clocked(settings s = {}) : w(with_clock(s)) {}
  clocked(const clocked&) = delete;
  clocked& operator=(const clocked&) = delete;

  void pass(std::int64_t ms) { now_ns += ms * 1'000'000; }
  /// Steps until nobody is left whose time has passed; how many.
  int expire() {
    int steps = 1;
    while (w.blocks.expire()) ++steps;
    return steps;
  }
  [[nodiscard]] std::uint64_t objects() const { return w.blocks.counts(w.size_class()).objects(); }

 private:
  settings with_clock(settings s) const {
    s.agent = &agent;
    return s;
  }
  static fm::agent::store_options options(clocked* of) {
    fm::agent::store_options o;
    o.hooks.context = of;
    o.hooks.now = [](void* c) { return time_point(std::chrono::nanoseconds(static_cast<clocked*>(c)->now_ns)); };
    return o;
  }
};

/// Every call that an agent makes for a client.
void check_gone(world& w, const where& at) {
  CHECK(w.code(at) == errc::not_found);
  CHECK(w.blocks.bytes_of(at) == 0);
  const std::array<std::uint64_t, 3> words{};
  where copy = at;
  std::uint32_t bytes = 0;
  CHECK(w.blocks.write(copy, std::as_bytes(std::span(words)), bytes) == errc::not_found);
  CHECK(w.blocks.release(copy) == errc::not_found);
  CHECK(w.blocks.free(copy) == errc::not_found);
  CHECK(w.blocks.expire_after(copy, 1000) == errc::not_found);
  CHECK(w.blocks.expire_after(copy, 0) == errc::not_found);
  std::vector<pool_blocks::list_entry> listed;
  pool_blocks::position from;
  while (!w.blocks.list(from, 1000, listed)) {
  }
  CHECK(std::none_of(listed.begin(), listed.end(), [&](const auto& o) { return o.id == at.id; }));
}

}  // namespace

TEST_CASE("times of a frame are found by slot and by time, and take memory by what is there") {
  std::mt19937_64 random(11);
  frame_expiries e;
  std::map<std::uint32_t, expiry> inside;
  std::size_t most = 0;
  for (int round = 0; round < 40'000; ++round) {
    const std::size_t wanted = round / 5'000 % 2 == 0 ? 2'000 : 5;  // it grows and shrinks
    const auto slot = static_cast<std::uint32_t>(random() % 4096);
    if (inside.contains(slot) ? random() % 3 != 0 && inside.size() <= wanted : inside.size() < wanted) {
      const expiry at = random() % 500;
      REQUIRE(e.set(slot, at) == !inside.contains(slot));
      inside[slot] = at;
    } else {
      REQUIRE(e.drop(slot) == (inside.erase(slot) == 1));
    }
    most = std::max(most, inside.size());
    REQUIRE(e.size() == inside.size());
    REQUIRE(e.bytes() <= sizeof e + 20 * inside.size() + 80);
    const auto other = static_cast<std::uint32_t>(random() % 4096);
    REQUIRE(e.of(other) == (inside.contains(other) ? inside[other] : no_expiry));
    const auto soonest = std::min_element(inside.begin(), inside.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    REQUIRE(e.soonest() == (inside.empty() ? no_expiry : soonest->second));
    if (!inside.empty()) REQUIRE(inside.at(e.soonest_slot()) == soonest->second);
  }
  CHECK(most > 1'000);
}

TEST_CASE("an object is gone for every call once its time has come, and freed by the next step") {
  clocked c;
  world& w = c.w;
  const where stays = w.make(1), at = w.make(2, 0, 100), later = w.make(3, 0, 101);
  CHECK(w.blocks.expiring() == 2);
  c.pass(99);
  CHECK_FALSE(w.blocks.expire());
  CHECK(w.value(at) == 2);
  w.check();
  c.now_ns += 999'999;
  CHECK(w.value(at) == 2);
  c.now_ns += 1;
  check_gone(w, at);
  CHECK(w.value(later) == 3);
  CHECK(c.objects() == 3);  // its memory is there
  w.check();
  CHECK_FALSE(w.blocks.expire());
  CHECK(c.objects() == 2);
  CHECK(w.blocks.expired() == 1);
  check_gone(w, at);
  w.check();
  c.pass(1);
  check_gone(w, later);
  c.expire();
  CHECK(c.objects() == 1);
  CHECK(w.value(stays) == 1);
  CHECK(w.blocks.expiring() == 0);
  CHECK(w.blocks.soonest_expiry() == no_expiry);
  w.check();
}

TEST_CASE("a time can be put off, brought forward, given to an object that has none, and taken away") {
  clocked c;
  world& w = c.w;
  const where a = w.make(1, 0, 100), b = w.make(2, 0, 1000), d = w.make(3), e = w.make(4, 0, 100);
  c.pass(50);
  CHECK(w.blocks.expire_after(a, 100) == errc::ok);
  CHECK(w.blocks.expire_after(b, 10) == errc::ok);
  CHECK(w.blocks.expire_after(d, 20) == errc::ok);
  CHECK(w.blocks.expire_after(e, 0) == errc::ok);
  CHECK(w.blocks.expire_after(e, 0) == errc::ok);
  CHECK(w.blocks.expiring() == 3);
  w.check();
  c.pass(10);
  c.expire();
  check_gone(w, b);
  CHECK(w.value(d) == 3);
  c.pass(10);
  c.expire();
  check_gone(w, d);
  c.pass(79);  // past what a had at first
  c.expire();
  CHECK(w.value(a) == 1);
  c.pass(1);
  c.expire();
  check_gone(w, a);
  c.pass(1'000'000);
  c.expire();
  CHECK(w.value(e) == 4);
  CHECK(w.blocks.expired() == 3);
  w.check();
  // A write leaves the time as it is, and a change that comes too late does nothing.
  where f = w.make(5, 0, 10);
  w.write(f, 6);
  const fm::agent::asked_change late{time_point(std::chrono::nanoseconds(c.now_ns)), &c.agent};
  CHECK(w.blocks.expire_after(f, 0, late) == errc::timed_out);
  CHECK(w.blocks.expire_after(f, 1000, late) == errc::timed_out);
  c.pass(10);
  check_gone(w, f);
}

TEST_CASE("a time ends with its object, and the next one in the slot keeps its own") {
  clocked c;
  world& w = c.w;
  std::vector<where> first, second;
  for (std::uint64_t i = 0; i < w.slots(); ++i) first.push_back(w.make(i, 0, 100));
  for (const where& at : first) REQUIRE(w.blocks.free(at) == errc::ok);
  CHECK(w.blocks.expiring() == 0);
  w.check();
  for (std::uint64_t i = 0; i < w.slots(); ++i) second.push_back(w.make(i, 0, i % 3 == 0 ? 300 : 0));
  CHECK(std::any_of(second.begin(), second.end(), [&](const where& at) {
    return at.id.vblock == first[at.slot].id.vblock && at.slot == first[at.slot].slot;
  }));
  c.pass(200);
  c.expire();
  CHECK(w.blocks.expired() == 0);
  for (std::uint64_t i = 0; i < second.size(); ++i) REQUIRE(w.value(second[i]) == i);
  for (const where& at : first) REQUIRE(w.code(at) == errc::not_found);
  c.pass(100);
  c.expire();
  // And the same when it was the first one's time that freed the slot.
  std::vector<where> third;
  for (std::uint64_t i = 0; i < second.size(); i += 3) third.push_back(w.make(i, 0, i % 2 == 0 ? 50 : 0));
  for (std::uint64_t i = 0; i < second.size(); ++i) {
    if (i % 3 == 0)
      REQUIRE(w.code(second[i]) == errc::not_found);
    else
      REQUIRE(w.value(second[i]) == i);
  }
  c.pass(50);
  c.expire();
  for (std::uint64_t i = 0; i < third.size(); ++i)
    REQUIRE(w.code(third[i]) == (i * 3 % 2 == 0 ? errc::not_found : errc::ok));
  w.check();
}

TEST_CASE("objects keep their times when merges move them, in the middle of one, and when they are released") {
  const naming how = GENERATE(naming::birth, naming::offset, naming::random_8);
  settings s;
  s.wanted = how;
  clocked c(s);
  world& w = c.w;
  const std::uint32_t n = w.slots();
  std::vector<where> all;
  std::vector<std::uint64_t> ms;
  for (std::uint64_t i = 0; i < n * 8; ++i) {
    ms.push_back(i % 4 == 0 ? 0 : 100 * (i % 4));
    all.push_back(w.make(i, 0, ms.back()));
  }
  std::mt19937_64 random(5);
  std::vector<bool> freed(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (random() % 8 != 0) {
      freed[i] = true;
      REQUIRE(w.blocks.free(all[i]) == errc::ok);
    }
  w.check();
  w.blocks.begin_round();
  // Steps of a few objects, so that times change while a merge copies.
  for (std::size_t i = 0; w.blocks.compact_step(3); i = (i + 7) % all.size())
    if (!freed[i] && i % 5 == 0) {
      REQUIRE(w.blocks.expire_after(all[i], 250) == errc::ok);
      ms[i] = 250;
    }
  w.check();
  CHECK(w.blocks.counts(w.size_class()).objects_moved > 0);
  for (std::size_t i = 0; i < all.size(); i += 3)
    if (!freed[i]) REQUIRE(w.blocks.release(all[i]) == errc::ok);
  w.check();
  std::uint64_t before = 0;
  for (const std::uint64_t now : {99, 100, 200, 250, 300, 10'000}) {
    c.pass(static_cast<std::int64_t>(now - before));
    before = now;
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (freed[i] || (ms[i] != 0 && ms[i] <= now))
          REQUIRE(w.code(all[i]) == errc::not_found);
        else
          REQUIRE(w.value(all[i]) == i);
      }
      // In the middle of a merge, too.
      w.blocks.begin_round();
      w.blocks.compact_step();
      w.blocks.compact_step(1);
      c.expire();
      w.check();
    }
    w.compact();
    w.check();
  }
  CHECK(w.blocks.expiring() == 0);
  CHECK(w.blocks.expired() > 0);
}

TEST_CASE("ten thousand objects that expire at once are freed in bounded steps, and all books of them go back") {
  clocked c;
  world& w = c.w;
  constexpr std::uint64_t many = 10'000;
  std::vector<where> stay;
  for (std::uint64_t i = 0; i < 100; ++i) stay.push_back(w.make(i));
  const auto fill = [&](bool expires) {
    std::vector<where> all;
    for (std::uint64_t i = 0; i < many; ++i) all.push_back(w.make(i, 0, expires ? 1000 + i % 7 : 0));
    return all;
  };
  const auto empty = [&](const std::vector<where>& all) {
    for (const where& at : all) REQUIRE(w.blocks.free(at) == errc::ok);
    while (w.blocks.reclaim(w.blocks.epoch())) {
    }
  };
  empty(fill(false));  // numbers of frames and of virtual blocks, which stay; a few more come with another order
  const std::uint64_t before = w.blocks.books_bytes() + 256;
  std::vector<where> plain = fill(false);
  const std::uint64_t without = w.blocks.books_bytes() + 256 - before;
  empty(plain);
  CHECK(w.blocks.books_bytes() <= before);
  const std::vector<where> all = fill(true);
  const std::uint64_t with = w.blocks.books_bytes() + 256 - before;
  CAPTURE(before, without, with);
  CHECK(with - without > 8 * many);
  CHECK(with - without <= 20 * many);
  c.pass(2000);
  int steps = 0;
  for (bool more = true; more; ++steps) {
    const std::uint64_t gone = w.blocks.expired();
    more = w.blocks.expire();
    REQUIRE(w.blocks.expired() - gone <= limits::expired_at_once);
    REQUIRE(w.code(all[static_cast<std::size_t>(steps) * 37 % many]) == errc::not_found);
  }
  CHECK(steps >= static_cast<int>(many / limits::expired_at_once));
  CHECK(steps <= static_cast<int>(2 * many / limits::expired_at_once));
  CHECK(w.blocks.expired() == many);
  CHECK(c.objects() == stay.size());
  while (w.blocks.reclaim(w.blocks.epoch())) {
  }
  CHECK(w.blocks.books_bytes() <= before);
  for (std::uint64_t i = 0; i < stay.size(); ++i) REQUIRE(w.value(stay[i]) == i);
  w.check();

  // Books go back when times are taken away, or objects freed, just as well.
  std::vector<where> again = fill(true);
  for (std::size_t i = 0; i < again.size(); i += 2) REQUIRE(w.blocks.expire_after(again[i], 0) == errc::ok);
  w.check();
  for (std::size_t i = 1; i < again.size(); i += 2) REQUIRE(w.blocks.expire_after(again[i], 0) == errc::ok);
  CHECK(w.blocks.books_bytes() <= before + without);
  CHECK(w.blocks.soonest_expiry() == no_expiry);
  empty(again);
  CHECK(w.blocks.books_bytes() <= before);
}

TEST_CASE("frames whose times were put off cost a step no more than those whose time has come") {
  clocked c;
  world& w = c.w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < w.slots() * 40; ++i) all.push_back(w.make(i, 0, 100));
  for (const where& at : all) REQUIRE(w.blocks.expire_after(at, 1000) == errc::ok);
  c.pass(100);
  // Each frame is still queued for what it had at first. A step of so many frames looks at no more.
  CHECK(w.blocks.expire(30));
  CHECK_FALSE(w.blocks.expire(30));
  CHECK(w.blocks.expired() == 0);
  CHECK(w.blocks.soonest_expiry() == 2000);
  w.check();
}

TEST_CASE(
    "maintenance comes back for the soonest, and is woken once for one that is sooner than it would come anyhow") {
  clocked c;
  fm::protocol::pool_open_body b{};
  b.tenant[0] = 1;
  b.settings = {4096, 0, 1, 0, 3000, {}, 0, {}};
  std::strcpy(b.name, "pool");
  fm::agent::region_pool regions{16 * world::region, world::region, 0.0, false};
  fm::agent::pool p(c.agent, regions, b, 12 * world::region, 1);
  const auto make = [&](std::uint64_t ms) {
    where at;
    const std::array<std::byte, 8> payload{};
    REQUIRE(p.blocks->allocate(payload, 0, at, fm::agent::held::exclusive, ms) == errc::ok);
    return at;
  };
  const auto at_ms = [](std::int64_t ms) { return time_point(std::chrono::milliseconds(ms)); };
  CHECK(p.await_expiry(at_ms(1000)) == time_point::max());
  const where late = make(5000);
  CHECK_FALSE(p.expires_sooner());  // it comes back within a second, and sees it then
  const where soon = make(500);
  CHECK(p.expires_sooner());
  CHECK_FALSE(p.expires_sooner());
  make(600);
  CHECK_FALSE(p.expires_sooner());
  CHECK(p.await_expiry(at_ms(1000)) == at_ms(1500) + limits::expiry_tick);
  CHECK(p.blocks->expire_after(late, 100) == errc::ok);
  CHECK(p.expires_sooner());
  CHECK_FALSE(p.expires_sooner());
  CHECK(p.await_expiry(at_ms(1000)) == at_ms(1100) + limits::expiry_tick);
  REQUIRE(p.blocks->free(late) == errc::ok);
  REQUIRE(p.blocks->free(soon) == errc::ok);
  c.pass(1510);
  p.expire();
  CHECK(p.blocks->expired() == 1);
  CHECK(p.await_expiry(at_ms(2510)) == time_point::max());
  p.close();
}
