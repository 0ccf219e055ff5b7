// Names of objects, which all processes of a pool share, and thresholds of compaction by size class.
#include <map>
#include <thread>

#include "pool/fixture.h"

namespace {

using namespace pool_test;

struct point {
  std::uint64_t x = 0, y = 0;
  friend bool operator==(const point&, const point&) = default;
};

}  // namespace

TEST_CASE("a name leads every process to its object, until it is taken away") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool p(at.options()), other(at.options());
  const auto a = p.alloc(point{1, 2}), b = p.alloc(point{3, 4});
  CHECK(other.try_lookup<point>("root").error().code() == errc::not_found);
  CHECK(other.try_unbind("root").error().code() == errc::not_found);
  p.bind("root", a);
  CHECK(other.lookup<point>("root") == a);
  CHECK(other.read(other.lookup<point>("root")) == point{1, 2});
  other.bind("root", a);  // it is so already
  CHECK(other.try_bind("root", b.address()).error().code() == errc::conflict);
  CHECK(p.lookup<point>("root") == a);
  other.bind("root", b, pool_bind::replace);
  CHECK(p.lookup<point>("root") == b);
  // A name keeps nothing alive.
  p.free(b);
  pool_address freed = *other.try_lookup_address("root");
  CHECK(p.try_read_bytes(freed).error().code() == errc::not_found);
  p.unbind("root");
  CHECK(other.try_lookup<point>("root").error().code() == errc::not_found);
  p.bind("root", a);
  p.bind("r\xc3\xb6\x01t", a);
  CHECK(other.lookup<point>("r\xc3\xb6\x01t") == a);

  SECTION("what cannot be a name or be named is refused") {
    CHECK(p.try_bind("", a.address()).error().code() == errc::invalid_argument);
    CHECK(p.try_bind(std::string(48, 'x'), a.address()).error().code() == errc::invalid_argument);
    CHECK(p.try_bind(std::string_view("a\0b", 3), a.address()).error().code() == errc::invalid_argument);
    CHECK(p.try_lookup_address("").error().code() == errc::invalid_argument);
    CHECK(p.try_unbind(std::string(48, 'x')).error().code() == errc::invalid_argument);
    CHECK(p.try_bind("null", pool_address{}).error().code() == errc::access_denied);
    CHECK_NOTHROW(p.bind(std::string(47, 'x'), a));
  }
  SECTION("another pool has other names") {
    pool_options o = at.options();
    o.name = "another";
    pool q(o);
    CHECK(q.try_lookup_address("root").error().code() == errc::not_found);
    CHECK(q.try_bind("root", a.address()).error().code() != errc::ok);
  }
  SECTION("there is a bound") {
    std::size_t bound = 0;
    errc why = errc::ok;
    for (int i = 0; i < 2000 && why == errc::ok; ++i) {
      const auto r = p.try_bind("name " + std::to_string(i), a.address());
      if (r)
        ++bound;
      else
        why = r.error().code();
    }
    CHECK(why == errc::agent_full);
    CHECK(bound == 1024 - 2);
    p.unbind("name 7");
    CHECK_NOTHROW(p.bind("once more", a));
  }
  SECTION("names stay when the one that gave them has gone") {
    pool_options o = at.options();
    o.keep = std::chrono::minutes(1);
    { pool gone(o); }
    pool later(o);
    CHECK(later.lookup<point>("root") == a);
  }
}

TEST_CASE("of many that bind a name at once, one succeeds, and all find its object") {
  const place at("tcp");
  std::vector<std::unique_ptr<pool>> pools;
  for (int i = 0; i < 4; ++i) pools.push_back(std::make_unique<pool>(at.options()));
  for (int round = 0; round < 10; ++round) {
    const std::string name = "round " + std::to_string(round);
    std::atomic<int> won{0}, lost{0}, others{0};
    std::array<pool_ptr<point>, 4> found;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < pools.size(); ++t)
      threads.emplace_back([&, t] {
        pool& p = *pools[t];
        const auto mine = p.alloc(point{t, t});
        const auto r = p.try_bind(name, mine.address());
        (r ? won : r.error().code() == errc::conflict ? lost : others).fetch_add(1);
        if (!r) p.free(mine);
        found[t] = p.lookup<point>(name);
      });
    for (auto& t : threads) t.join();
    CHECK(won.load() == 1);
    CHECK(lost.load() == 3);
    CHECK(others.load() == 0);
    for (const auto& f : found) CHECK(f == found[0]);
    CHECK(pools[0]->read(found[0]).x < 4);
  }
}

TEST_CASE("a size class is compacted above its own threshold, and others above theirs") {
  const std::string scheme = GENERATE("local", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.arenas = 1;
  o.compact_above = 0.2;
  o.compact_above_by_class = {{32, 0}, {64, 0.95}, {128, 0.3}};
  pool p(o);
  pool_options later = o;  // the first one decides
  later.compact_above_by_class = {{32, 0.1}, {64, 0.1}, {128, 0.1}};
  pool q(later);
  const std::array<std::size_t, 4> sizes{8, 40, 100, 150};  // slots of 32, 64, 128 and 192
  std::array<std::vector<pool_address>, 4> all;
  for (std::size_t s = 0; s < sizes.size(); ++s)
    for (std::size_t i = 0; i < 1000; ++i) all[s].push_back(p.alloc_bytes(pattern(sizes[s], i)));
  for (auto& of_size : all)
    for (std::size_t i = 0; i < of_size.size(); ++i)
      if (i % 2 == 0) q.free(of_size[i]);
  const auto moved = [&] {
    std::map<std::uint32_t, std::uint64_t> by_slot;
    const pool_stats s = p.stats();
    for (const auto& c : s.agents.at(0).classes) by_slot[c.slot_bytes] = c.objects_moved;
    return by_slot;
  };
  const time_point until = clock::now() + std::chrono::minutes(1);
  // The agent compacts by itself.
  while ((moved()[192] == 0 || moved()[128] == 0) && clock::now() < until) std::this_thread::yield();
  CHECK(moved()[192] > 0);
  CHECK(moved()[128] > 0);
  CHECK(moved()[64] == 0);
  CHECK(moved()[32] == 0);
  p.compact();  // of all that can be
  CHECK(moved()[64] > 0);
  CHECK(moved()[32] > 0);
  check_sound(p);
  pool_options wrong = at.options();
  wrong.compact_above_by_class = {{64, 0.5}, {64, 0.4}};
  CHECK(code_of([&] { pool r(wrong); }) == errc::invalid_argument);
  wrong.compact_above_by_class = {{64, 1.5}};
  CHECK(code_of([&] { pool r(wrong); }) == errc::invalid_argument);
}
