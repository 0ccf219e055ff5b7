// Agents of a pool with replicas that do not hear each other, without an arbiter: what calls do meanwhile, and afterwards.
#include "pool/replicas/replicas_fixture.h"

using namespace pool_test;
using fm::test::await;
using fm::test::code_of;

TEST_CASE("without an arbiter agents that do not hear each other for long go on when they do") {
  members w("tcp", 2, false);
  pool p(w.o);
  const auto bytes = pattern(100, 1);
  pool_address before = p.alloc_bytes(bytes);
  w.all[1]->deaf = true;
  const time_point until = clock::now() + std::chrono::seconds(2);  // five tenures
  CHECK(await([&] { return clock::now() >= until; }));
  w.all[1]->deaf = false;
  CHECK(p.read_bytes(before) == bytes);
  for (int part = 0; part < 2; ++part) CHECK_FALSE(p.alloc_bytes(bytes).is_null());
  CHECK(members::is_whole(p));
  CHECK(p.stats().agents[0].term == 2);
}

TEST_CASE("a call fails when access_within has passed, whatever it asks its agent for on the way") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 2, false);
  w.o.access_within = std::chrono::seconds(3);
  pool p(w.o);
  const std::uint32_t part = w.part_of(p, 0);
  const auto bytes = pattern(64, 1);
  std::vector<pool_address> all;
  while (all.size() < 2)
    if (const pool_address a = p.alloc_bytes(bytes); a.instance() == part) all.push_back(a);
  pool q(w.o);  // knows no block yet
  w.kill(1);
  const auto fails = [&](auto&& call) {
    const time_point begin = clock::now();
    const errc e = call();
    const duration took = clock::now() - begin;
    CHECK((e == errc::timed_out || e == errc::under_replicated));
    CHECK(took < std::chrono::milliseconds(5500));
  };
  std::vector<std::byte> to(64);
  CHECK(await([&] { return p.direct_read_into(all[0], to) != pool_read::ok; }));  // its lease has run out
  fails([&] { return p.read_into(all[0], to); });
  fails([&] { return q.read_into(all[1], to); });
  fails([&] { return code_of([&] { p.write_bytes(all[0], bytes); }); });
}
