// Pools with replicas that end: at both agents, whatever happens to what they say to each other, and in nobody's way.
#include "pool/replicas/replicas_fixture.h"

using namespace pool_test;
using fm::test::await;

namespace {

/// No agent has anything of the pool.
bool is_gone(const members& w) {
  return std::all_of(w.all.begin(), w.all.end(), [](const std::unique_ptr<member>& a) {
    return a->store().statistics().find("\"replicated\"") == std::string::npos;
  });
}

}  // namespace

TEST_CASE("a pool with replicas that nobody has open ends at both agents, and at the arbiter") {
  members w("tcp", 2);
  w.o.keep = std::chrono::milliseconds(50);
  {
    pool p(w.o);
    (void)p.alloc_bytes(pattern(100, 1));
    CHECK(w.arbiter->records() == 2);
  }
  CHECK(await([&] { return is_gone(w); }));
  CHECK(await([&] { return w.arbiter->records() == 0; }));
}

TEST_CASE("an arbiter that does not answer when a pool ends keeps no other pool of the agent waiting") {
  members w("tcp", 2);
  pool_options other = w.o;
  other.name = "another";
  other.replicas = 1;
  other.agents.resize(1);
  pool q(other);
  w.o.keep = std::chrono::milliseconds(50);
  w.arbiter->holds = true;
  { const pool p(w.o); }
  CHECK(await([&] { return w.arbiter->held == 2; }));
  (void)q.alloc_bytes(pattern(100, 1), {.expires_after = std::chrono::milliseconds(20)});
  const time_point enough = clock::now() + std::chrono::seconds(30);
  CHECK(await([&] { return q.stats().agents[0].expired == 1 || clock::now() > enough; }));
  CHECK(q.stats().agents[0].expired == 1);
  w.arbiter->release();
  CHECK(await([&] { return w.arbiter->records() == 0; }));
}

TEST_CASE("a pool with replicas ends at both agents without an arbiter, also if what they say to each other is lost") {
  members w("tcp", 2, false);
  w.o.keep = std::chrono::milliseconds(50);
  for (const auto& a : w.all) a->misses_let_go = true;
  { const pool p(w.o); }
  CHECK(await([&] { return is_gone(w); }));
  for (const auto& a : w.all) CHECK_FALSE(a->misses_let_go);
  const pool again(w.o);  // under the same name
  CHECK(members::is_whole(again));
}

TEST_CASE("a copy without an arbiter stays as long as a client asks for it, and goes when none does") {
  members w("tcp", 2, false);
  auto p = std::make_unique<pool>(w.o);
  const std::uint32_t part = w.part_of(*p, 0);
  w.kill(0);
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t before = w.all[1]->asked;
    CHECK(await([&] { return w.all[1]->asked > before + 10; }));
    w.ahead = w.ahead + duration(std::chrono::minutes(12)).count();
    CHECK(w.is(1, part, "backup"));
  }
  p.reset();
  w.ahead = w.ahead + duration(std::chrono::minutes(21)).count();
  CHECK(await([&] { return !w.is(1, part, "backup"); }));
}
