// Pools whose parts are on two agents: what was acknowledged is there when one of them is gone, and no thread sees an
// error. Agents are in this process; the real ones are in replicas_chaos_test.cc.
#include "pool/replicas/replicas_fixture.h"

#include <set>
#include <thread>

using namespace pool_test;
using fm::test::await;
using fm::test::code_of;

namespace {

struct kept {
  std::vector<pool_address> at;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<pool_address> freed;
};

kept make_some(pool& p, std::size_t n) {
  kept k;
  for (std::size_t i = 0; i < n; ++i) {
    k.bytes.push_back(pattern(20 + i % 5 * 150, i));
    k.at.push_back(p.alloc_bytes(k.bytes.back()));
  }
  for (std::size_t i = 0; i < n; i += 3) {
    k.bytes[i] = pattern(k.bytes[i].size(), i + n);
    p.write_bytes(k.at[i], k.bytes[i]);
  }
  for (std::size_t i = 1; i < n; i += 3) {
    p.free(pool_ptr<char>(k.at[i]));
    k.freed.push_back(k.at[i]);
    k.bytes[i].clear();
  }
  return k;
}

/// Instances of the pool's parts.
std::set<std::uint32_t> parts_of(const kept& k) {
  std::set<std::uint32_t> parts;
  for (const pool_address& a : k.at) parts.insert(a.instance());
  return parts;
}

/// An administrator says that the agent goes on with all parts, whose term is 2.
void let_survive(member& agent, const kept& k) {
  for (const std::uint32_t instance : parts_of(k))
    CHECK(await([&] { return agent.store().survive(instance, 2).find("goes on") != std::string::npos; }));
}

void require_kept(pool& p, kept& k) {
  for (std::size_t i = 0; i < k.at.size(); ++i) {
    if (k.bytes[i].empty()) continue;
    REQUIRE(p.read_bytes(k.at[i]) == k.bytes[i]);
    std::vector<std::byte> asked(k.bytes[i].size());
    REQUIRE(p.rpc_read_into(k.at[i], asked) == errc::ok);
    REQUIRE(asked == k.bytes[i]);
  }
  for (pool_address at : k.freed) {
    std::vector<std::byte> to(20);
    REQUIRE(p.read_into(at, to) == errc::not_found);
  }
  const pool_report r = p.verify();
  INFO(r.text);
  REQUIRE(r.faults == 0);
}

}  // namespace

TEST_CASE("a pool with replicas has all that was acknowledged when an agent is gone, and goes on") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  pool p(w.o);
  CHECK(members::is_whole(p));
  kept k = make_some(p, 600);
  p.bind("first", pool_ptr<char>(k.at[0]));
  require_kept(p, k);
  w.kill(0);
  require_kept(p, k);
  CHECK(p.lookup<char>("first").address() == k.at[0]);
  kept more = make_some(p, 200);
  require_kept(p, more);
  // Two are left: each part has both.
  CHECK(await([&] { return members::is_whole(p); }));
  w.kill(1);
  require_kept(p, k);
  require_kept(p, more);
  w.start(0);
  w.start(1);
  CHECK(await([&] { return members::is_whole(p); }));
  w.kill(2);
  require_kept(p, k);
  require_kept(p, more);
  kept last = make_some(p, 100);
  require_kept(p, last);
}

TEST_CASE("a second process that opens a pool with replicas finds its parts where they are") {
  members w("tcp", 3);
  pool p(w.o);
  kept k = make_some(p, 300);
  w.kill(0);
  pool q(w.o);
  require_kept(q, k);
  w.start(0);
  pool r(w.o);
  require_kept(r, k);
  kept of_r = make_some(r, 100);
  require_kept(p, of_r);
}

TEST_CASE("threads that use a pool with replicas see no error and nothing old while its agents die and return") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  w.o.compact_above = 0.3;
  pool p(w.o);
  owners u(p);
  for (std::size_t i = 0; i < 6; ++i) {
    u.pass(3000);
    w.kill(i % 3);
    u.pass(1000);
    w.start(i % 3);
    CHECK(await([&] { return members::is_whole(p); }));
  }
  u.stop();
  CHECK(u.wrong().empty());
  INFO(u.wrong());
  CHECK(p.verify().faults == 0);
}

TEST_CASE("a backup that is not heard is done without, and is one again") {
  members w("tcp", 2);
  pool p(w.o);
  owners u(p);
  for (int i = 0; i < 3; ++i) {
    u.pass(500);
    const std::uint64_t term = p.stats().agents[0].term;
    w.all[1]->deaf = true;
    CHECK(await([&] { return p.stats().agents[0].term > term; }));
    u.pass(500);
    CHECK(p.stats().agents[0].backup.empty());
    w.all[1]->deaf = false;
    CHECK(await([&] { return members::is_whole(p); }));
  }
  u.stop();
  INFO(u.wrong());
  CHECK(u.wrong().empty());
}

TEST_CASE("a backup that is told late that it is one, or not at all, has what counts and takes over") {
  const int lost = GENERATE(3, 1'000'000);
  // A primary that never hears of its backup goes on without it after half a tenure: long enough to make some objects.
  members w("tcp", 2, true, lost == 3 ? 200 : 800);
  w.all[1]->forgets = lost;
  pool p(w.o);
  kept k = make_some(p, 200);
  if (lost == 3) CHECK(await([&] { return w.all[1]->forgets == 0; }));
  w.kill(0);
  require_kept(p, k);
}

TEST_CASE(
    "a primary whose backup is silent keeps what it has and who has it open, until somebody says that it goes on") {
  members w("tcp", 2, false);
  w.o.lease = std::chrono::milliseconds(300);
  w.o.keep = std::chrono::milliseconds(10);
  pool p(w.o);
  kept k = make_some(p, 100);
  w.kill(0);
  w.ahead = duration(std::chrono::minutes(1)).count();  // more than any lease
  (void)w.all[1]->store().maintain();
  let_survive(*w.all[1], k);
  require_kept(p, k);
}

TEST_CASE("connections that break between clients and agents, and between agents, cost nothing") {
  members w("tcp", 2);
  pool p(w.o);
  owners u(p);
  for (int i = 0; i < 30; ++i) {
    u.pass(200);
    p.drop_connections();
  }
  u.stop();
  INFO(u.wrong());
  CHECK(u.wrong().empty());
}

TEST_CASE("agents that are drained leave a pool with replicas, and threads that use it see no error and nothing old") {
  const std::string scheme = GENERATE("tcp", "shm");
  const bool with_arbiter = GENERATE(true, false);
  members w(scheme, 3, with_arbiter);
  pool p(w.o);
  owners u(p);
  for (std::size_t i = 0; i < 6; ++i) {
    u.pass(1000);
    w.all[i % 3]->store().drain(true);
    CHECK(w.is_left(i % 3));
    u.pass(1000);
    w.kill(i % 3);  // nobody has to say anything: it had nothing
    u.pass(1000);
    w.start(i % 3);
    CHECK(await([&] { return members::is_whole(p); }));
  }
  u.stop();
  INFO(u.wrong());
  CHECK(u.wrong().empty());
  const pool_report r = p.verify();
  INFO(r.text);
  CHECK(r.faults == 0);
}

TEST_CASE("a process reads what another one has written, while agents leave and are killed") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  pool p(w.o), q(w.o);
  struct counter {
    pool_address at{};
    std::atomic<std::uint64_t> acknowledged{0};
  };
  std::vector<counter> counters(32);
  const std::uint64_t none = 0;
  for (counter& c : counters) c.at = p.alloc_bytes(std::as_bytes(std::span(&none, 1)));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> written{0}, read{0}, old{0}, failed{0};
  const auto use = [&](auto&& each) {
    return std::thread([&, each] {
      for (std::uint64_t i = 0; !stop; ++i) {
        try {
          each(counters[i % counters.size()], i);
        } catch (const error& e) {
          ++failed;
        }
      }
    });
  };
  std::thread writer = use([&](counter& c, std::uint64_t i) {
    pool_address at = c.at;  // which is told where the object is
    p.write_bytes(at, std::as_bytes(std::span(&i, 1)));
    c.acknowledged = i;
    ++written;
  });
  std::thread reader = use([&](counter& c, std::uint64_t) {
    const std::uint64_t least = c.acknowledged;
    std::uint64_t n = 0;
    pool_address at = c.at;
    if (q.read_into(at, std::as_writable_bytes(std::span(&n, 1))) != errc::ok) ++failed;
    if (n < least) ++old;
    ++read;
  });
  const auto pass = [&] {
    const std::uint64_t more = fm::test::effort(500), w0 = written, r0 = read;
    return await([&] { return written > w0 + more && read > r0 + more; });
  };
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(pass());
    if (i % 2 == 0) {
      // Who leaves learns late that somebody else serves, and so does whoever only reads from it: at the next agent's first
      // part, which is silent for longer than a tenure then.
      member& next = *w.all[(i + 1) % 3];
      next.mutes_leave = 1;
      next.deafened_after_leave = true;
      w.all[i % 3]->store().drain(true);
      time_point until = time_point::max();
      CHECK(await([&] {
        if (next.deaf && until == time_point::max()) until = clock::now() + std::chrono::milliseconds(600);
        if (clock::now() >= until) next.deafened_after_leave = next.deaf = false;
        return w.all[i % 3]->store().pools_left() == 0;
      }));
      next.deafened_after_leave = next.deaf = false;
    }
    w.kill(i % 3);
    CHECK(pass());
    w.start(i % 3);
    CHECK(await([&] { return members::is_whole(p) && members::is_whole(q); }));
  }
  stop = true;
  writer.join();
  reader.join();
  CHECK(old == 0);
  CHECK(failed == 0);
}

TEST_CASE("the backup of a part is in another zone than its primary, if an agent is in one") {
  members w("tcp", 3);
  w.zones = {"a", "a", "b"};
  for (std::size_t i = 0; i < 3; ++i) {
    w.kill(i);
    w.start(i);
  }
  pool p(w.o);
  kept k = make_some(p, 100);
  CHECK(w.backup_of(p, 0) == 2);
  CHECK(w.backup_of(p, 1) == 2);
  CHECK(w.backup_of(p, 2) < 2);
  w.kill(2);
  require_kept(p, k);
  CHECK(await([&] { return members::is_whole(p); }));  // both are left of one zone
  for (std::size_t part = 0; part < 3; ++part) CHECK(w.primary_of(p, part) + w.backup_of(p, part) == 1);
  w.kill(0);
  require_kept(p, k);
}

TEST_CASE("an agent that is drained stays where no third one can take its place, and takes no new pools") {
  members w("tcp", 2);
  pool p(w.o);
  CHECK(members::is_whole(p));
  owners u(p);
  for (const auto& a : w.all) a->store().drain(true);
  const std::uint64_t term = p.stats().agents[0].term;
  u.pass(2000);
  u.stop();
  CHECK(u.wrong().empty());
  CHECK(p.stats().agents[0].term == term);
  CHECK(members::is_whole(p));
  CHECK(w.all[0]->store().pools_left() == 2);
  pool_options other = w.o;
  other.name = "another";
  CHECK(code_of([&] { pool q(other); }) == errc::refused);
  other.replicas = 1;
  other.agents.resize(1);
  CHECK(code_of([&] { pool q(other); }) == errc::refused);
  w.all[0]->store().drain(false);
  pool q(other);
  CHECK(w.all[0]->store().pools_left() == 3);
}

TEST_CASE("agents that leave are heard whichever message is lost, with an arbiter and without") {
  const std::string scheme = GENERATE("tcp", "shm");
  const bool with_arbiter = GENERATE(true, false);
  const int lost = GENERATE(0, 1, 2);
  INFO(scheme << ", " << with_arbiter << ", " << lost);
  members w(scheme, 3, with_arbiter);
  pool p(w.o);
  kept k = make_some(p, 200);
  for (const auto& a : w.all) {
    a->misses_leave = lost == 0 ? 3 : 0;
    a->mutes_leave = lost == 1 ? 1 : 0;
    a->mutes_let_go = lost == 2 ? 1 : 0;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    w.all[i]->store().drain(true);
    CHECK(w.is_left(i));
    w.kill(i);
    require_kept(p, k);
    w.start(i);
    CHECK(await([&] { return members::is_whole(p); }));
  }
}

TEST_CASE("a primary that leaves goes on where its backup is gone, and leaves later") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  pool p(w.o);
  kept k = make_some(p, 200);
  SECTION("its backup falls silent") {
    for (std::size_t i = 1; i < 3; ++i) w.all[i]->deafened_by_leave = true;
    w.all[0]->store().drain(true);
    // It serves alone again, in a later term, for as long as nobody else can.
    CHECK(await([&] { return p.stats().agents[0].term > 2; }));
    require_kept(p, k);
    for (std::size_t i = 1; i < 3; ++i) w.all[i]->deafened_by_leave = w.all[i]->deaf = false;
  }
  SECTION("the arbiter is out of reach for a while") {
    w.arbiter->reachable = false;
    const std::uint64_t asked = w.arbiter->asked;
    w.all[0]->store().drain(true);
    CHECK(await([&] { return w.arbiter->asked > asked + 2; }));
    w.arbiter->reachable = true;
  }
  w.all[0]->store().drain(true);
  CHECK(w.is_left(0));
  w.kill(0);
  require_kept(p, k);
  kept more = make_some(p, 100);
  CHECK(await([&] { return members::is_whole(p); }));
  w.kill(1);
  require_kept(p, k);
  require_kept(p, more);
}

TEST_CASE("as long as the arbiter is out of reach nobody goes on, and what was asked is done when it is back") {
  members w("tcp", 2);
  pool p(w.o);
  kept k = make_some(p, 100);
  w.arbiter->reachable = false;
  const std::uint64_t asked = w.arbiter->asked;
  w.kill(0);
  CHECK(await([&] { return w.arbiter->asked > asked + 2; }));
  pool_options impatient = w.o;
  impatient.connect_within = std::chrono::milliseconds(300);
  CHECK(code_of([&] { pool q(impatient); }) == errc::unreachable);
  w.arbiter->reachable = true;
  require_kept(p, k);
}

TEST_CASE("without an arbiter an administrator says who goes on, and nobody else does") {
  members w("tcp", 2, false);
  pool p(w.o);
  kept k = make_some(p, 100);
  const std::set<std::uint32_t> parts = parts_of(k);
  REQUIRE(parts.size() == 2);
  const auto survive = [&](std::uint32_t instance, std::uint64_t term) {
    return w.all[1]->store().survive(instance, term);
  };
  CHECK(survive(*parts.begin(), 7).find("nothing was done") != std::string::npos);
  CHECK(survive(*parts.begin() ^ 0x100, 2).find("no pool") != std::string::npos);
  w.kill(0);
  let_survive(*w.all[1], k);  // one part has lost its primary, the other one its backup: both wait for somebody's word
  require_kept(p, k);
}

TEST_CASE("an alone primary without an arbiter is silent to its clients when its backup is, and says so") {
  members w("tcp", 2, false);
  w.o.access_within = std::chrono::milliseconds(1500);
  pool p(w.o);
  const auto bytes = pattern(64, 1);
  pool_address a = p.alloc_bytes(bytes);
  w.kill(0);
  w.kill(1);
  std::vector<std::byte> to(64);
  const errc e = p.read_into(a, to);
  CHECK((e == errc::timed_out || e == errc::under_replicated || e == errc::agent_lost));
}

TEST_CASE("what a pool with replicas cannot be made of is refused by name") {
  members w("tcp", 2);
  const auto refused = [&](auto&& spoil, errc code, const char* what) {
    pool_options o = w.o;
    spoil(o);
    try {
      pool q(o);
      FAIL("it was opened");
    } catch (const error& e) {
      INFO(e.what());
      CHECK(e.code() == code);
      CHECK(std::string(e.what()).find(what) != std::string::npos);
    }
  };
  refused([](pool_options& o) { o.replicas = 3; }, errc::invalid_argument, "replicas 3");
  refused([](pool_options& o) { o.replicas = 0; }, errc::invalid_argument, "replicas 0");
  refused([](pool_options& o) { o.agents.pop_back(); }, errc::invalid_argument, "agents");
  refused([](pool_options& o) { o.agents[1] = o.agents[0]; }, errc::invalid_argument, "twice");
  refused([](pool_options& o) { o.agents[1] = "local:"; }, errc::invalid_argument, "local");
  refused([](pool_options& o) { o.agents[1] = "shm:///nowhere"; }, errc::invalid_argument, "two kinds");
  refused([](pool_options& o) { o.identity = pool_identity::random_16; }, errc::invalid_argument, "random ids");
  // An agent with another size of regions cannot be a backup.
  fm::agent::store_options other;
  other.memory_bytes = 64_MiB;
  other.region_bytes = 2_MiB;
  other.arbiter = w.arbiter;
  member m("tcp://127.0.0.1:0", other);
  refused(
      [&](pool_options& o) {
        o.agents[1] = m.url();
        o.connect_within = std::chrono::seconds(1);
        o.name = "two sizes";
      },
      errc::under_replicated, "backup");
  pool p(w.o);
  refused(
      [](pool_options& o) {
        o.replicas = 1;
        o.agents.resize(1);
      },
      errc::invalid_argument, "with replicas");
}
