// Agents that leave a pool with replicas, or do not, because of what others of its agents do and are.
#include "pool/replicas/replicas_fixture.h"

using namespace pool_test;
using fm::test::await;

TEST_CASE("an agent that leaves after its backup has left without an answer does not serve beside the next one") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3, false);
  pool p(w.o);
  const auto bytes = pattern(100, 1);
  pool_address object = p.alloc_bytes(bytes);
  const std::uint32_t part = w.part_of(p, 0);
  const std::size_t backup = w.backup_of(p, 0), third = 3 - backup;
  member& b = *w.all[backup];
  // It is let go, and does not hear that. Then its primary leaves, and does not hear whether the backup has taken over.
  b.before_missing_let_go = [&] { w.all[0]->store().drain(true); };
  b.misses_let_go = true;
  b.mutes_leave = 1;
  b.deafened_after_leave = true;
  b.store().drain(true);
  CHECK(w.is_left(backup));
  b.deafened_after_leave = b.deaf = false;
  bool both = false;
  CHECK(await([&] {
    both = w.is_primary(third, part) && w.is_primary(0, part);  // in this order: the third one never stops
    return both || w.all[0]->store().pools_left() == 0;
  }));
  CHECK_FALSE(both);
  w.kill(0);
  w.kill(backup);
  CHECK(p.read_bytes(object) == bytes);
}

TEST_CASE("an agent that is drained stays where the third one is its backup under another address") {
  members w("tcp", 2, false);  // so that no pause of this process makes an agent go on alone
  const pool_options given = w.o;
  pool p(given);
  const std::uint32_t part = w.part_of(p, 0);
  for (std::string& url : w.o.agents) url.replace(url.find("127.0.0.1"), 9, "localhost");
  const pool q(w.o);  // its addresses are the last that both agents were told
  for (const auto& a : w.all) a->store().drain(true);
  const time_point until = clock::now() + std::chrono::seconds(2);  // five tenures
  CHECK(await([&] { return clock::now() >= until; }));
  CHECK(w.is(0, part, "primary"));
  CHECK(p.stats().agents[0].term == 2);
  CHECK(members::is_whole(p));
}
