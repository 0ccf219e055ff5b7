// fm::pool over every transport: objects come back as they were given, pointers survive compaction, and everything that is wrong
// with a pointer is an error of its own kind.
#include <map>
#include <random>

#include "pool/fixture.h"

namespace {

using namespace pool_test;

struct point {
  std::uint64_t x = 0, y = 0;
  friend bool operator==(const point&, const point&) = default;
};

}  // namespace

TEST_CASE("an object is read as it was allocated and as it was written last, over every transport") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool p(at.options());
  auto a = p.alloc(point{1, 2});
  const auto b = p.alloc(point{3, 4});
  CHECK(p.read(a) == point{1, 2});
  CHECK(p.read(b) == point{3, 4});
  p.write(a, point{5, 6});
  CHECK(p.read(a) == point{5, 6});
  CHECK(p.rpc_read(a) == point{5, 6});
  point direct, scanned;
  CHECK(p.direct_read(a, direct) == pool_read::ok);
  CHECK(direct == point{5, 6});
  CHECK(p.scan_read(a, scanned) == pool_read::ok);
  CHECK(scanned == point{5, 6});
  CHECK(p.read(b) == point{3, 4});
  p.free(a);
  CHECK(code_of([&] { (void)p.read(a); }) == errc::not_found);
  CHECK(p.read(b) == point{3, 4});
  const pool_stats s = p.stats();
  CHECK(s.direct_reads >= 5);
  CHECK(s.agents.at(0).allocations == 2);
  check_sound(p);
}

TEST_CASE("objects of every size come back whole, in either kind of consistency") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, 300u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.versions_upto = versions;
  pool p(o);
  std::vector<std::pair<pool_address, std::size_t>> all;
  std::vector<std::size_t> sizes{1,  7,   8,   9,   39,  40,   41,   63,   64,   65,
                                 99, 100, 101, 104, 160, 1000, 4095, 4096, 4097, 70'000};
  sizes.push_back(p.object_bytes_max());
  for (const std::size_t n : sizes) all.emplace_back(p.alloc_bytes(pattern(n, n)), n);
  for (auto& [a, n] : all) {
    CHECK(p.read_bytes(a) == pattern(n, n));
    std::vector<std::byte> into(n);
    CHECK(p.read_into(a, into) == errc::ok);
    CHECK(into == pattern(n, n));
    p.write_bytes(a, pattern(n, n + 1));
    CHECK(p.read_bytes(a) == pattern(n, n + 1));
    CHECK(p.rpc_read_into(a, into) == errc::ok);
    CHECK(into == pattern(n, n + 1));
  }
  CHECK(code_of([&] { (void)p.alloc_bytes(pattern(p.object_bytes_max() + 1, 1)); }) == errc::too_large);
  CHECK(code_of([&] { (void)p.alloc_bytes({}); }) == errc::too_large);
  check_sound(p);
}

TEST_CASE("pointers survive compaction, and are corrected by reading") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.versions_upto = versions;
  pool p(o);
  pool other(o);  // has cached the table before, and is told nothing
  using value = checked<8>;
  std::vector<pool_ptr<value>> all;
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(p.alloc(value::make(i, 0)));
  for (auto& a : all) (void)other.read(a);
  std::map<std::uint64_t, pool_ptr<value>> kept;
  std::mt19937_64 random(1);
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (random() % 10 != 0)
      p.free(all[i]);
    else
      kept[i] = all[i];
  const pool_stats before = p.stats();
  const pool_compaction c = p.compact();
  CHECK(c.merges_made > 5);
  CHECK(c.objects_moved > 20);
  const pool_stats after = p.stats();
  REQUIRE(after.agents.at(0).classes.size() == 1);
  CHECK(after.agents[0].classes[0].blocks < before.agents[0].classes[0].blocks / 3);
  check_sound(p);
  std::size_t at_once = 0;
  for (auto& [i, a] : kept) {
    const value v = other.read(a);
    CHECK(v.id == i);
    CHECK(v.whole());
    value again;
    at_once += other.direct_read(a, again) == pool_read::ok;
    CHECK(again.id == i);
  }
  CHECK(at_once == kept.size());  // all were corrected
  CHECK(other.stats().corrected_reads > 0);
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (!kept.contains(i)) {
      CHECK(other.try_read(all[i]).error().code() == errc::not_found);
      break;
    }
  for (auto& [i, a] : kept) p.write(a, value::make(i, 1));
  for (auto& [i, a] : kept) CHECK(other.read(a).version == 1);
  for (auto& [i, a] : kept) p.free(a);
  check_sound(p);
}

TEST_CASE("the birth of an object moves to where it lives when its pointer is released") {
  const place at("local");
  pool_options o = at.options();
  o.block = 4_KiB;
  o.arenas = 1;
  pool p(o);
  std::vector<pool_ptr<point>> all;
  for (std::uint64_t i = 0; i < 600; ++i) all.push_back(p.alloc(point{i, i}));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 8 != 0) p.free(all[i]);
  p.compact();
  const std::uint64_t aliases = p.stats().agents[0].classes.at(0).aliases;
  REQUIRE(aliases > 0);
  for (std::size_t i = 0; i < all.size(); i += 8) {
    const auto before = all[i];
    p.release(all[i]);
    CHECK(p.read(all[i]) == point{i, i});
    point v;
    CHECK(p.direct_read(all[i], v) == pool_read::ok);
    if (all[i] == before) continue;  // it was born there
    auto dead = before;
    CHECK(p.try_read(dead).error().code() == errc::not_found);
  }
  const pool_agent_stats s = p.stats().agents[0];
  CHECK(s.classes.at(0).aliases == 0);
  for (std::uint64_t i = 0; i < 600; ++i) (void)p.alloc(point{i, i});
  CHECK(p.stats().agents[0].vblocks_reused > 0);
  check_sound(p);
}

TEST_CASE("what is wrong with a pointer is told apart, and none of it reaches bytes of others") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool mine(at.options());
  pool_options o = at.options();
  do o.tenant = pool_tenant::random();
  while (tag_of(o) == tag_of(at.options()));
  pool theirs(o);
  auto a = mine.alloc(point{1, 2});
  const auto secret = theirs.alloc(point{7, 7});

  SECTION("null") {
    pool_ptr<point> null;
    CHECK(!null);
    CHECK(mine.try_read(null).error().code() == errc::access_denied);
    CHECK(code_of([&] { mine.free(null); }) == errc::access_denied);
  }
  SECTION("of another tenant's pool") {
    auto stolen = secret;
    CHECK(mine.try_read(stolen).error().code() == errc::access_denied);
    CHECK(code_of([&] { mine.write(stolen, point{}); }) == errc::access_denied);
    CHECK(code_of([&] { mine.free(stolen); }) == errc::access_denied);
    CHECK(code_of([&] { mine.release(stolen); }) == errc::access_denied);
    CHECK(theirs.read(secret) == point{7, 7});
    // The same block and index, with this pool's instance: what comes is this pool's, or nothing.
    const auto& s = secret.address();
    pool_ptr<point> mixed(
        pool_address::make(a.address().instance(), s.block() + 1, s.generation(), s.index(), s.hint()));
    CHECK(mine.try_read(mixed).error().code() == errc::not_found);
  }
  SECTION("forged") {
    std::mt19937_64 random(3);
    for (int i = 0; i < 300; ++i) {
      pool_address f = a.address();
      switch (random() % 4) {
        case 0:
          f = pool_address::make(f.instance(), std::uint32_t(random()), f.generation(), f.index(), f.hint());
          break;
        case 1:
          f = pool_address::make(f.instance(), f.block(), std::uint32_t(random() | 2), f.index(), f.hint());
          break;
        case 2:
          f = pool_address::make(f.instance(), f.block(), f.generation(),
                                 std::uint16_t(f.index() + 1 + random() % 60'000), f.hint());
          break;
        default:
          f = pool_address::make(f.instance(), std::uint32_t(random()), std::uint32_t(random()),
                                 std::uint16_t(random()), std::uint16_t(random()));
      }
      pool_ptr<point> p(f);
      REQUIRE(mine.try_read(p).error().code() == errc::not_found);
      point v;
      REQUIRE(mine.direct_read(p, v) != pool_read::ok);
      REQUIRE(mine.scan_read(p, v) != pool_read::ok);
      REQUIRE(code_of([&] { mine.free(p); }) == errc::not_found);
      REQUIRE(code_of([&] { mine.write(p, point{}); }) == errc::not_found);
      REQUIRE(code_of([&] { mine.release(p); }) == errc::not_found);
    }
    // A wrong hint is no forgery: it is corrected.
    pool_ptr<point> p = a;
    p.address().set_hint(40);
    CHECK(mine.read(p) == point{1, 2});
    p.address().set_hint(65'000);
    CHECK(mine.read(p) == point{1, 2});
    CHECK(p.address().hint() == a.address().hint());
  }
  SECTION("freed, and freed again") {
    mine.free(a);
    CHECK(code_of([&] { mine.free(a); }) == errc::not_found);
    CHECK(mine.try_read(a).error().code() == errc::not_found);
    const auto b = mine.alloc(point{3, 4});  // in the same slot, most likely
    CHECK(mine.try_read(a).error().code() == errc::not_found);
    CHECK(code_of([&] { mine.write(a, point{}); }) == errc::not_found);
    CHECK(mine.read(b) == point{3, 4});
  }
  SECTION("of another size") {
    pool_ptr<std::array<std::uint64_t, 3>> larger(a.address());
    pool_ptr<std::uint32_t> smaller(a.address());
    pool_ptr<std::array<std::uint64_t, 300>> much_larger(a.address());
    CHECK(mine.try_read(larger).error().code() == errc::layout_mismatch);
    CHECK(mine.try_read(smaller).error().code() == errc::layout_mismatch);
    CHECK(mine.try_read(much_larger).error().code() == errc::layout_mismatch);
    std::uint32_t v = 0;
    CHECK(mine.direct_read(smaller, v) == pool_read::wrong_size);
    CHECK(code_of([&] { mine.write(smaller, 1u); }) == errc::layout_mismatch);
    CHECK(code_of([&] { mine.write(larger, {}); }) == errc::layout_mismatch);
    CHECK(mine.read(a) == point{1, 2});
  }
  check_sound(mine);
  check_sound(theirs);
}

TEST_CASE("the same tenant and name is the same pool, another name is another") {
  const place at("shm");
  pool first(at.options()), second(at.options());
  pool_options o = at.options();
  o.name = "other";
  while (tag_of(o) == tag_of(at.options())) o.name += "s";
  pool other(o);
  const auto a = first.alloc(point{1, 2});
  CHECK(second.read(a) == point{1, 2});
  pool_ptr<point> b = a;
  CHECK(other.try_read(b).error().code() == errc::access_denied);
  second.write(b, point{3, 4});
  CHECK(first.read(a) == point{3, 4});
  second.free(a);
  b = a;
  CHECK(first.try_read(b).error().code() == errc::not_found);
}

TEST_CASE("a pointer into a pool whose agent was started again is of a lost agent, not of another pool") {
  const std::string scheme = GENERATE("shm", "tcp");
  place at(scheme);
  pool_ptr<point> old;
  {
    pool before(at.options());
    old = before.alloc(point{1, 2});
  }
  at.agent().program->end(SIGKILL);
  at.agent().start_again();
  pool after(at.options());
  CHECK(after.try_read(old).error().code() == errc::agent_lost);
  CHECK(code_of([&] { after.write(old, point{}); }) == errc::agent_lost);
  CHECK(code_of([&] { after.free(old); }) == errc::agent_lost);
  CHECK(code_of([&] { after.release(old); }) == errc::agent_lost);
  const auto made = after.alloc(point{3, 4});
  CHECK(after.read(made) == point{3, 4});
}

TEST_CASE("an agent that is full says so, and takes objects again when there is room") {
  const place at("tcp", 4_MiB, 1_MiB);
  pool p(at.options());
  std::vector<pool_address> all;
  errc why = errc::ok;
  while (all.size() < 1000) {
    const auto r = p.try_alloc_bytes(pattern(60'000, all.size()));
    if (!r) {
      why = r.error().code();
      break;
    }
    all.push_back(*r);
  }
  CHECK(why == errc::agent_full);
  REQUIRE(all.size() > 20);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(p.read_bytes(all[i]) == pattern(60'000, i));
  for (const auto& a : all) p.free(a);
  for (std::size_t i = 0; i < 10; ++i) CHECK(p.try_alloc_bytes(pattern(60'000, i)).has_value());
  check_sound(p);
}

TEST_CASE("memory comes back by compaction when an allocation needs it") {
  const place at("local", 4_MiB, 1_MiB);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.arenas = 1;
  pool p(o);
  std::vector<pool_ptr<checked<8>>> all;
  for (;;) {
    const auto v = checked<8>::make(all.size(), 0);
    const auto r = p.try_alloc_bytes(std::as_bytes(std::span(&v, 1)));
    if (!r) break;
    all.emplace_back(*r);
  }
  std::vector<pool_ptr<checked<8>>> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 16 == 0)
      kept.push_back(all[i]);
    else
      p.free(all[i]);
  // Every block of that class has objects left, so there is no frame for another class.
  std::vector<pool_address> large;
  for (int i = 0; i < 8; ++i) large.push_back(p.alloc_bytes(pattern(50'000, i)));
  CHECK(p.stats().agents[0].classes.at(0).merges_made > 0);
  for (auto& k : kept) CHECK(p.read(k).whole());
  for (int i = 0; i < 8; ++i) CHECK(p.read_bytes(large[i]) == pattern(50'000, i));
  check_sound(p);
}

TEST_CASE("a pool has its quota") {
  const place at("local");
  pool_options o = at.options();
  o.quota = 2_MiB;
  pool p(o);
  errc why = errc::ok;
  for (int i = 0; i < 100 && why == errc::ok; ++i)
    if (const auto r = p.try_alloc_bytes(pattern(60'000, i)); !r) why = r.error().code();
  CHECK(why == errc::quota_exceeded);
  CHECK(p.stats().agents[0].frame_bytes <= 2_MiB);
  o.name = "greedy";
  o.quota = 1_GiB;
  CHECK(code_of([&] { pool q(o); }) == errc::quota_exceeded);
  o.quota = 1000;
  CHECK(code_of([&] { pool q(o); }) == errc::quota_exceeded);
}

TEST_CASE("an agent has as many pools, and a pool as many clients, as the agent was told") {
  const place at("shm", 64_MiB, 1_MiB, {"--pools", "2", "--pool-clients", "3"});
  pool_options o = at.options();
  const pool one(o), two(o);
  {
    const pool three(o);
    CHECK(code_of([&] { const pool four(o); }) == errc::agent_full);
  }
  CHECK(code_of([&] { const pool four(o); }) == errc::ok);
  o.name = "another";
  const pool another(o);
  o.name = "one too many";
  CHECK(code_of([&] { const pool more(o); }) == errc::agent_full);
}

TEST_CASE("options out of range are refused with their name") {
  const auto refused = [](auto&& change) {
    pool_options o;
    o.tenant = pool_tenant::random();
    change(o);
    return code_of([&] { pool p(o); });
  };
  CHECK(refused([](pool_options& o) { o.agents.clear(); }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.name = ""; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.name = std::string(48, 'x'); }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.block = 5000; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.block = 2048; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.arenas = 0; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.compact_above = 2; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) {
          o.identity_by_class = {{256, pool_identity::offset}, {256, pool_identity::random_8}};
        }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.agents = {"local:", "local:"}; }) == errc::invalid_argument);
  CHECK(refused([](pool_options& o) { o.agents = {"carrier://pigeon"}; }) != errc::ok);
  CHECK(refused([](pool_options&) {}) == errc::ok);
  const pool_tenant t = pool_tenant::random();
  CHECK(pool_tenant::parse(t.text()) == t);
  CHECK(code_of([] { (void)pool_tenant::parse("12"); }) == errc::invalid_argument);
  CHECK(pool_tenant::try_parse(std::string(32, '0')).error().code() == errc::invalid_argument);
  CHECK(pool_tenant::try_parse(t.text()).value() == t);
}

TEST_CASE("an empty tenant is refused by name, whatever the agents are") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.tenant = {};
  CHECK(o.tenant.is_empty());
  const auto opened = pool::open(o);
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code() == errc::invalid_argument);
  CHECK(std::string(opened.error().what()).find("pool_options::tenant") != std::string::npos);
}

TEST_CASE("objects of every small size are what was written, in the slots that waste least") {
  const place at("shm");
  struct kind {
    std::uint32_t versions_upto = 0;
    pool_identity identity = pool_identity::birth;
    bool shares_lines = false;
  };
  for (const kind& k : {kind{0, pool_identity::birth, true}, kind{0, pool_identity::offset, true},
                        kind{200, pool_identity::birth, false}, kind{0, pool_identity::random_16, false}}) {
    pool_options o = at.options();
    o.name = "versions " + std::to_string(k.versions_upto) + ", identity " + std::to_string(int(k.identity));
    o.arenas = 1;
    o.versions_upto = k.versions_upto;
    o.identity = k.identity;
    pool p(o);
    std::vector<pool_address> all;
    for (int round = 0; round < 20; ++round)
      for (std::size_t n = 1; n <= 232; ++n) all.push_back(p.alloc_bytes(pattern(n, all.size())));
    const auto whole = [&](std::size_t i) { return p.read_bytes(all[i]) == pattern(i % 232 + 1, i); };
    for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(whole(i));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % 5 != 0) p.free(all[i]);
    (void)p.compact();
    for (std::size_t i = 0; i < all.size(); i += 5) REQUIRE(whole(i));
    const pool_stats stats = p.stats();
    std::vector<std::uint32_t> slots;
    for (const pool_class_stats& c : stats.agents.at(0).classes) slots.push_back(c.slot_bytes);
    CHECK(slots == (k.shares_lines
                        ? std::vector<std::uint32_t>{32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256}
                        : std::vector<std::uint32_t>{32, 64, 128, 192, 256}));
    CHECK(p.verify().ok());
  }
}

TEST_CASE(
    "size classes have the identities that the options say, and their objects are what they were after compaction") {
  const place at("shm");
  pool_options o = at.options();
  o.block = 16_KiB;
  o.identity = pool_identity::birth;
  o.identity_by_class = {{64, pool_identity::random_8}, {256, pool_identity::offset}, {1024, pool_identity::random_16}};
  o.fallback = pool_fallback::offset;  // 256 slots of 64 bytes are too many for 8 bits
  pool p(o);
  std::vector<std::pair<pool_address, std::size_t>> all;
  for (const std::size_t n : {30, 150, 700, 3000})
    for (std::size_t i = 0; i < 600; ++i) all.emplace_back(p.alloc_bytes(pattern(n, i)), i);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 3 != 0) p.free(all[i].first);
  p.compact();
  const std::map<std::uint32_t, pool_identity> wanted{{64, pool_identity::offset},
                                                      {192, pool_identity::offset},
                                                      {768, pool_identity::random_16},
                                                      {3072, pool_identity::birth}};
  std::size_t seen = 0;
  const pool_stats stats = p.stats();
  for (const pool_class_stats& c : stats.agents.at(0).classes) {
    CAPTURE(c.slot_bytes);
    CHECK(wanted.contains(c.slot_bytes));
    if (wanted.contains(c.slot_bytes)) CHECK(int(c.identity) == int(wanted.at(c.slot_bytes)));
    CHECK(c.compacted);
    ++seen;
  }
  CHECK(seen == wanted.size());
  for (std::size_t i = 0; i < all.size(); i += 3) {
    const std::vector<std::byte> there = p.read_bytes(all[i].first);
    CHECK(there == pattern(there.size(), all[i].second));
  }
  check_sound(p);
}

TEST_CASE("two agents share a pool's objects, and what one has no room for goes to the other") {
  const place one("shm", 4_MiB, 1_MiB), two("tcp", 32_MiB, 1_MiB);
  pool_options o = one.options();
  o.agents = {one.url(), two.url()};
  pool p(o);
  std::vector<pool_address> all;
  for (std::size_t i = 0; i < 120; ++i) all.push_back(p.alloc_bytes(pattern(60'000, i)));
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(p.read_bytes(all[i]) == pattern(60'000, i));
  const pool_stats s = p.stats();
  CHECK(s.agents.at(0).allocations > 10);
  CHECK(s.agents.at(1).allocations > s.agents.at(0).allocations);
  p.compact();
  check_sound(p);
}
