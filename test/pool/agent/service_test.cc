// The agent's half of a pool's protocol, spoken to by hand: epochs and leases on a clock of the test's own, changes that are
// repeated, memory that is not a peer's, messages that break the rules.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <set>

#include "pool/agent/service_fixture.h"

using namespace service_test;

TEST_CASE("an emptied frame waits for the slowest client of the pool") {
  world w;
  client fast(w, 1), slow(w, 2);
  fast.open();
  slow.open();
  CHECK(fast.opened.instance == slow.opened.instance);
  std::vector<pool_object> all;
  for (std::uint64_t i = 0; i < 512; ++i) all.push_back(fast.make(i));
  for (const auto& o : all) REQUIRE(fast.free(o) == errc::ok);
  const pool_statistics_answer s = fast.statistics();
  CHECK(s.waiting_bytes >= 2 * 4096);
  REQUIRE_FALSE(slow.p->epochs.empty());
  REQUIRE_FALSE(fast.p->epochs.empty());
  REQUIRE(fast.pass(s.epoch) == errc::ok);
  CHECK(fast.statistics().waiting_bytes == s.waiting_bytes);
  REQUIRE(slow.pass(s.epoch - 1) == errc::ok);
  CHECK(fast.statistics().waiting_bytes == 4096);
  CHECK(slow.p->epochs.back() == s.epoch);  // it was asked again
  REQUIRE(slow.pass(s.epoch) == errc::ok);
  CHECK(fast.statistics().waiting_bytes == 0);
  CHECK(slow.pass(s.epoch + 5) == errc::bad_frame);
}

TEST_CASE("a client that is not heard of for its lease is fenced, and holds nothing back any more") {
  world w;
  client fast(w, 1);
  auto slow = std::make_unique<client>(w, 2);
  fast.open();
  slow->open();
  std::vector<pool_object> all;
  for (std::uint64_t i = 0; i < 512; ++i) all.push_back(fast.make(i));
  for (const auto& o : all) REQUIRE(fast.free(o) == errc::ok);
  const std::uint64_t epoch = fast.statistics().epoch;
  REQUIRE(fast.pass(epoch) == errc::ok);
  CHECK(fast.statistics().waiting_bytes > 0);
  w.pass(milliseconds(900));
  REQUIRE(fast.pass(epoch) == errc::ok);
  CHECK(slow->p->closed == errc::ok);
  w.pass(milliseconds(200));
  CHECK(slow->p->closed == errc::stale);
  CHECK(fast.p->closed == errc::ok);
  const pool_statistics_answer s = fast.statistics();
  CHECK(s.waiting_bytes == 0);
  CHECK(s.clients == 1);
  CHECK(s.clients_fenced == 1);
  CHECK(slow->pass(epoch) == errc::stale);
  // It comes back as somebody new.
  slow = std::make_unique<client>(w, 2);
  pool_open_body b = slow->opening();
  b.resume = 1;
  b.instance = fast.opened.instance;
  CHECK(slow->ask<pool_open_answer>(message_type::pool_open, b).fresh == 1);
  CHECK(fast.statistics().clients == 2);
}

TEST_CASE("a client that lost its connection is itself when it comes back within its lease") {
  world w;
  auto one = std::make_unique<client>(w, 1);
  one->open();
  CHECK(one->opened.fresh == 1);
  const std::uint32_t instance = one->opened.instance;
  const auto body = pool_alloc_body{{1, 7, 0, never}, 8, 0};
  const std::uint64_t value = 3;
  const auto first = one->ask<pool_alloc_answer>(message_type::pool_alloc, body, std::as_bytes(std::span(&value, 1)));
  one = std::make_unique<client>(w, 1);
  w.pass(milliseconds(500));
  pool_open_body b = one->opening();
  b.resume = 1;
  b.instance = instance;
  CHECK(one->ask<pool_open_answer>(message_type::pool_open, b).fresh == 0);
  // The answer may have been lost: the same number is the same change.
  const auto again = one->ask<pool_alloc_answer>(message_type::pool_alloc, body, std::as_bytes(std::span(&value, 1)));
  CHECK(std::memcmp(&first, &again, sizeof first) == 0);
  CHECK(one->statistics().allocations == 1);
  const pool_object_body gone{{2, 7, 0, never}, first.at.object};
  CHECK(one->say(message_type::pool_free, gone) == errc::ok);
  CHECK(one->say(message_type::pool_free, gone) == errc::ok);
  CHECK(one->statistics().frees == 1);
  CHECK(one->say(message_type::pool_free, pool_object_body{{3, 7, 0, never}, first.at.object}) == errc::not_found);
  CHECK(one->say(message_type::pool_free, pool_object_body{{1, 7, 0, never}, first.at.object}) == errc::stale);
  // The number of an answered change, with another message.
  CHECK(one->say(message_type::pool_release, gone) == errc::bad_frame);
  CHECK(one->broke == errc::bad_frame);
}

TEST_CASE("a pool ends when nobody has had it open for so long as it was made to stay") {
  world w;
  std::uint32_t first = 0;
  {
    client one(w, 1);
    one.open();
    first = one.opened.instance;
    CHECK(one.say(message_type::pool_close, std::array<std::byte, 0>{}) != errc::ok);  // an empty array has a byte
    const message_head h{static_cast<std::uint16_t>(message_type::pool_close), 0, 0};
    fabric::answer a;
    REQUIRE(w.s->message(*one.p, std::as_bytes(std::span(&h, 1)), a) == errc::ok);
    CHECK(one.pass(1) == errc::stale);
  }
  w.pass(milliseconds(2900));
  {
    client two(w, 2);
    two.open();
    CHECK(two.opened.instance == first);
  }
  w.pass(milliseconds(1100));  // its lease
  w.pass(milliseconds(3100));
  client three(w, 3);
  pool_open_body b = three.opening();
  b.resume = 1;
  b.instance = first;
  CHECK(three.say(message_type::pool_open, b) == errc::not_found);
  three.open();
  CHECK(three.opened.instance != first);
}

TEST_CASE("one-sided access is to the pool's own regions, and for reading") {
  world w;
  client mine(w, 1), theirs(w, 2);
  mine.open();
  pool_open_body b = theirs.opening();
  b.tenant[0] = 6;
  theirs.opened = theirs.ask<pool_open_answer>(message_type::pool_open, b);
  CHECK(mine.opened.instance != theirs.opened.instance);
  (void)mine.make(1);
  (void)theirs.make(2);
  const auto r = mine.ask<region_answer>(message_type::pool_region, pool_region_body{0, 0});
  const fabric::remote at{r.region, r.generation, 64};
  CHECK(w.s->memory(*mine.p, at, 64, fabric::access::write) == nullptr);
  CHECK(w.s->memory(*theirs.p, at, 64, fabric::access::read) == nullptr);
  CHECK(w.s->memory(*mine.p, {r.region, r.generation + 1, 64}, 64, fabric::access::read) == nullptr);
  CHECK(w.s->memory(*mine.p, {r.region, r.generation, r.bytes - 32}, 64, fabric::access::read) == nullptr);
  CHECK(w.s->memory(*mine.p, {r.region, r.generation, ~std::uint64_t{0}}, 64, fabric::access::read) == nullptr);
  std::byte* const p = w.s->memory(*mine.p, at, 64, fabric::access::read);
  REQUIRE(p != nullptr);
  w.s->memory_done(*mine.p, r.region);
  client stranger(w, 3);
  CHECK(w.s->memory(*stranger.p, at, 64, fabric::access::read) == nullptr);
}

TEST_CASE("who has the descriptor of a pool's region can read it and not write it") {
  world w;
  client one(w, 1);
  one.open();
  (void)one.make(7);
  const auto r = one.ask<region_answer>(message_type::pool_region, pool_region_body{0, 0});
  REQUIRE(one.key_fd >= 0);
  CHECK(::mmap(nullptr, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, one.key_fd, 0) == MAP_FAILED);
  const std::uint64_t word = 0;
  CHECK(::pwrite(one.key_fd, &word, sizeof word, 0) < 0);
  CHECK(::fallocate(one.key_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
  void* const mapped = ::mmap(nullptr, r.bytes, PROT_READ, MAP_SHARED, one.key_fd, 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(::mprotect(mapped, r.bytes, PROT_READ | PROT_WRITE) != 0);
  ::munmap(mapped, r.bytes);
  // The same file, opened once more by whoever may.
  const int again = ::open(("/proc/self/fd/" + std::to_string(one.key_fd)).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    CHECK(::mmap(nullptr, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    CHECK(::pwrite(again, &word, sizeof word, 0) < 0);
    ::close(again);
  }
}

TEST_CASE("a change is not made after its deadline, whichever it is, and others go on") {
  world w;
  client one(w, 1), two(w, 2);
  one.open();
  two.open();
  const pool_object at = one.make(1);
  const auto value_of = [&](const pool_object& o) {
    std::vector<std::byte> b;
    REQUIRE(one.say(message_type::pool_read, pool_read_body{o, 8, 0}, &b) == errc::ok);
    std::uint64_t v = 0;
    REQUIRE(b.size() == sizeof(pool_read_answer) + sizeof v);
    std::memcpy(&v, b.data() + sizeof(pool_read_answer), sizeof v);
    return v;
  };
  const auto write = [&](client& c, std::uint64_t number, std::uint64_t deadline, std::uint64_t value) {
    return c.say(message_type::pool_write, pool_write_body{{number, 3, 0, deadline}, at, 8, 0}, nullptr,
                 std::as_bytes(std::span(&value, 1)));
  };
  const std::uint64_t opened_at = one.opened.now;
  CHECK(opened_at == static_cast<std::uint64_t>(w.now_ns));
  CHECK(write(one, 1, opened_at + 1'000'000, 2) == errc::ok);
  w.now_ns += 5'000'000;
  CHECK(write(two, 1, opened_at + 60'000'000, 3) == errc::ok);
  const std::uint64_t late = opened_at + 5'000'000;  // now is too late
  CHECK(write(one, 2, late, 4) == errc::timed_out);
  CHECK(write(one, 2, late, 4) == errc::timed_out);
  CHECK(value_of(at) == 3);
  // What was made keeps its answer, however late it is asked for again.
  CHECK(write(one, 1, opened_at + 1'000'000, 2) == errc::ok);
  CHECK(value_of(at) == 3);
  CHECK(one.say(message_type::pool_free, pool_object_body{{3, 3, 0, late}, at}) == errc::timed_out);
  CHECK(one.say(message_type::pool_release, pool_object_body{{4, 3, 0, late}, at}) == errc::ok);  // it changes nothing
  const std::uint64_t value = 9;
  CHECK(one.say(message_type::pool_alloc, pool_alloc_body{{5, 3, 0, late}, 8, 0}, nullptr,
                std::as_bytes(std::span(&value, 1))) == errc::timed_out);
  CHECK(one.statistics().allocations == 1);
  CHECK(value_of(at) == 3);
  // The same change once more, with more time.
  CHECK(write(one, 6, late + 1, 6) == errc::ok);
  CHECK(value_of(at) == 6);
}

TEST_CASE("compaction in the background rests between its steps, and its clients are left alone meanwhile") {
  world w(true);
  client one(w, 1);
  auto opening = one.opening();
  opening.settings.compact_above = 32768;  // a half
  one.opened = one.ask<pool_open_answer>(message_type::pool_open, opening);
  (void)one.make_sparse(4000);
  const auto settle = [&] {
    while (w.s->maintain()) {
    }
    return one.statistics().steps;
  };
  const std::uint64_t first = settle();
  REQUIRE(first > 0);
  for (int i = 0; i < 10; ++i) CHECK(settle() == first);  // no time has passed
  w.now_ns += std::chrono::nanoseconds(milliseconds(500)).count();
  CHECK(settle() == first + 1);
  const std::size_t asked = one.p->epochs.size();
  (void)one.pass(one.statistics().epoch);
  CHECK(one.p->epochs.size() == asked);  // again, and too soon
  // In the end the round is over, and the memory is back.
  const std::uint64_t before = one.statistics().frame_bytes;
  for (std::uint64_t steps = 0, last = ~steps; steps != last;) {
    last = steps;
    w.now_ns += std::chrono::nanoseconds(milliseconds(100)).count();
    steps = settle();
    (void)one.pass(one.statistics().epoch);
  }
  CHECK(one.statistics().frame_bytes < before / 2);
}

// A connection that serves readers as well would otherwise bring one read between two steps.
TEST_CASE("compaction that is called for leaves time to others between its steps, if there are any") {
  world w;
  client one(w, 1), two(w, 2);
  one.open();
  two.open();
  const pool_object left = one.make_sparse(4000);
  struct rested {
    pool_compact_answer totals;
    pool_compact_rest rest;
  };
  const auto step = [&](std::uint32_t begin) {
    return one.ask<rested>(message_type::pool_compact, pool_compact_body{begin, 1});
  };
  (void)step(1);
  CHECK(step(0).rest.ns == 0);
  REQUIRE(two.say(message_type::pool_read, pool_read_body{left, 8, 0}) == errc::ok);
  const rested beside = step(0);
  REQUIRE(beside.totals.done == 0);
  CHECK(beside.rest.ns > 0);
  CHECK(step(0).rest.ns == 0);
  // Who does not ask is not told.
  std::vector<std::byte> b;
  REQUIRE(one.say(message_type::pool_compact, pool_compact_body{0, 0}, &b) == errc::ok);
  CHECK(b.size() == sizeof(pool_compact_answer));
}

TEST_CASE("regions that have left a pool are told to every client that knew them, and then forgotten") {
  world w;
  client one(w, 1), two(w, 2);
  one.open();
  two.open();
  std::vector<pool_object> all;
  while (one.statistics().regions < 4) all.push_back(one.make(0));
  for (const auto& o : all) REQUIRE(one.free(o) == errc::ok);
  const auto told = [](client& c, std::uint64_t epoch, std::uint64_t gone) {
    std::vector<std::byte> b;
    REQUIRE(c.say(message_type::pool_pass, pool_pass_body{epoch, gone}, &b) == errc::ok);
    pool_pass_answer a{};
    REQUIRE(b.size() >= sizeof a);
    std::memcpy(&a, b.data(), sizeof a);
    REQUIRE(b.size() == sizeof a + a.count * sizeof(std::uint32_t));
    return std::pair(a.gone, a.count);
  };
  const std::uint64_t epoch = one.statistics().epoch;
  (void)told(one, epoch, 0);
  (void)told(two, epoch, 0);
  while (w.s->maintain()) {
  }
  const std::uint64_t left = one.statistics().regions;
  REQUIRE(left < 4);
  const auto [gone, count] = told(one, epoch, 0);
  CHECK(gone == 4 - left);
  CHECK(count == gone);
  CHECK(told(one, epoch, gone) == std::pair(gone, 0u));
  // One that comes later knew none of them.
  client three(w, 3);
  three.open();
  CHECK(told(three, epoch, 0) == std::pair(gone, 0u));
  // The other one has not said that it was told: numbers of new regions go on.
  const auto ordinals = [&] {
    std::set<std::uint32_t> there;
    for (std::uint32_t n = 0; n < 16; ++n)
      if (one.say(message_type::pool_region, pool_region_body{n, 0}) == errc::ok) there.insert(n);
    return there;
  };
  all.clear();
  while (one.statistics().regions < left + 1) all.push_back(one.make(0));
  CHECK(ordinals().contains(4));
  CHECK(told(two, epoch, 0) == std::pair(gone, static_cast<std::uint32_t>(gone)));
  CHECK(told(two, epoch, gone) == std::pair(gone, 0u));
  while (one.statistics().regions < left + 2) all.push_back(one.make(0));
  CHECK_FALSE(ordinals().contains(5));
  CHECK(two.say(message_type::pool_pass, pool_pass_body{epoch, gone + 1}) == errc::bad_frame);
}

TEST_CASE("messages that break the rules of pools cost the connection") {
  world w;
  const auto broken = [&](auto&& f) {
    client c(w, 9);
    c.open();
    f(c);
    return c.broke == errc::bad_frame;
  };
  using c = client;
  const pool_object none{};
  CHECK(broken([](c& x) { x.say(message_type::pool_open, x.opening()); }));
  CHECK(broken([](c& x) { x.say(message_type::open_heap, open_heap_body{}); }));
  CHECK(broken([](c& x) { x.say(message_type::renew, std::uint64_t{0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_alloc, pool_alloc_body{{0, 0, 0, never}, 0, 0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_alloc, pool_alloc_body{{1, 256, 0, never}, 0, 0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_alloc, pool_alloc_body{{1, 0, 0, never}, 8, 0}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_write, pool_write_body{{1, 0, 0, never}, none, 8, 0}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_free, pool_read_body{none, 0, 0}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_read, pool_read_body{none, 0, 1}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_pass, pool_pass_body{0, 77}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_free, pool_object_body{{1, 0, 0, 0}, none}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_free, pool_object_body{{1, 0, 0, never + 1}, none}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_compact, pool_compact_body{2, 0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_compact, pool_compact_body{0, 2}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_read_version, pool_read_body{none, 0, 1}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_write_if, pool_write_if_body{{1, 0, 0, never}, none, 8, 0, 0}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_write_if, pool_write_if_body{{1, 0, 0, never}, none, 0, 1, 0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_list, pool_list_body{0, 0, 0, 0}); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_list, pool_list_body{0, 0, 1, 1}); }));
  const std::byte a{'a'}, zero{0};
  const std::span<const std::byte> letter(&a, 1), nothing(&zero, 1);
  const pool_change once{1, 0, 0, never};
  CHECK(broken([&](c& x) { x.say(message_type::pool_bind, pool_bind_body{once, 1, 1, 2, 1}, nullptr, letter); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_bind, pool_bind_body{once, 0, 0, 0, 1}, nullptr, letter); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_bind, pool_bind_body{once, 1, 1, 0, 2}, nullptr, letter); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_bind, pool_bind_body{once, 1, 1, 0, 1}, nullptr, nothing); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_bind, pool_bind_body{once, 1, 1, 0, 0}); }));
  CHECK(broken([&](c& x) { x.say(message_type::pool_unbind, pool_unbind_body{once, 1, 1}, nullptr, letter); }));
  CHECK(broken([](c& x) { x.say(message_type::pool_lookup, std::array<char, 48>{'x'}); }));
  CHECK(broken([](c& x) { x.say(static_cast<message_type>(99), std::uint64_t{0}); }));
  const auto refused = [&](auto&& change) {
    client x(w, 8);
    pool_open_body b = x.opening();
    change(b);
    const errc e = x.say(message_type::pool_open, b);
    return x.broke != errc::ok ? errc::bad_frame : e;
  };
  CHECK(refused([](pool_open_body& b) { b.major = 99; }) == errc::version_mismatch);
  CHECK(refused([](pool_open_body& b) { b.tenant[0] = 0; }) == errc::bad_frame);
  CHECK(refused([](pool_open_body& b) { b.client[0] = 0; }) == errc::bad_frame);
  CHECK(refused([](pool_open_body& b) { b.resume = 1; }) == errc::bad_frame);
  CHECK(refused([](pool_open_body& b) { b.name[0] = 0; }) == errc::bad_frame);
  CHECK(refused([](pool_open_body& b) { std::memset(b.name, 'x', sizeof b.name); }) == errc::bad_frame);
  CHECK(refused([](pool_open_body& b) { b.settings.block_bytes = 5000; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.block_bytes = 512 << 10; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.arenas = 65; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.naming[3] = 9; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.fallback = 3; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.zero[4] = 1; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.settings.shares_lines = 1; }) == errc::invalid_argument);
  CHECK(refused([](pool_open_body& b) { b.quota_bytes = 1; }) == errc::quota_exceeded);
}
