// How many agents store each page: more and fewer of them while the range is used, no fewer than are wanted, and no two of one
// zone.
#include <algorithm>
#include <atomic>
#include <farmem/farmem.h>

#include "support/error_code.h"
#include "users.h"

using namespace paged_test;

namespace {

using fm::test::code_of;

/// Agents in zones.
struct zoned : served {
  explicit zoned(const std::vector<std::string>& zones) : served("tcp", 0, modes().back(), 2) {
    for (const std::string& z : zones) add_in(z);
    o.strict_zones = true;
    o.suspect_within = 3 * soon;  // no agent is one too many
  }
  const std::string& add_in(const std::string& zone, const std::string& memory = "64MiB") {
    const std::vector<std::string> how{"--memory", memory, "--region", "256KiB", "--zone", zone};
    live.push_back(std::make_unique<agent_test::live_agent>(how));
    o.agents.push_back(live.back()->url("tcp"));
    return o.agents.back();
  }
};

}  // namespace

// What agents have promised is what the whole range needs. While one leaves and comes back, the last places may be on one
// agent.
TEST_CASE("no page is stored on fewer agents than are wanted while they have room", "[replicas]") {
  std::uint64_t degraded = 0;
  for (int round = 0; round < 3; ++round) {
    served w("shm", 4, modes().front(), 2);
    const paged p(w.o);
    users u(p);
    std::atomic<bool> done{false};
    std::thread watcher([&] {
      while (!done) degraded = std::max(degraded, p.stats().degraded_bytes);
    });
    for (const std::string& a : w.o.agents) {
      u.pass(100);
      p.remove_agent(a);
      p.add_agent(a);
    }
    u.pass(5000);
    done = true;
    watcher.join();
    check_all(p, u, w);
  }
  CHECK(degraded == 0);
}

// One that has room left is no help: the others have none.
TEST_CASE("pages are stored on fewer agents than are wanted when only one has room, and do not wait for it",
          "[replicas]") {
  served w("shm", 0, modes().front(), 2);
  for (const char* const memory : {"1GiB", "4MiB", "2MiB"}) static_cast<void>(w.add("shm", memory));
  w.o.suspect_within = served::soon;
  w.o.access_within = std::chrono::seconds(20);
  paged p(w.o);
  w.live[1]->program->end(SIGKILL);
  CHECK(becomes([&] { return p.stats().agents_lost == 1; }));
  for (std::size_t i = 0; i < p.size(); i += page) p.data()[i] = std::byte{1};
  p.evict_all();
  CHECK(p.stats().degraded_bytes != 0);
  CHECK(p.verify() == "");
  CHECK(w.failures == 0);
}

// Heaps take regions without regard to what was promised to ranges.
TEST_CASE("an agent without memory for what it promised is passed over", "[replicas]") {
  for (const std::size_t others : {1, 2}) {
    INFO(others << " others");
    served w("tcp", others, modes().front(), 2);
    const agent_test::live_agent& full = w.add("tcp", "4MiB");
    w.o.capacity = 3_MiB;
    w.o.access_within = std::chrono::seconds(20);
    const paged p(w.o);
    heap h({.cache = 1_MiB, .agents = {full.url("tcp")}, .segment = 64_KiB});
    std::vector<ptr<string>> kept;
    errc e = errc::ok;
    for (; e == errc::ok && kept.size() < 500; e = h.evict_all(std::chrono::seconds(1)))
      for (int i = 0; i < 8; ++i) kept.push_back(h.str(std::string(16_KiB, 'x')));
    CHECK(e != errc::ok);
    std::memset(p.data(), 1, p.size());
    CHECK(code_of([&] { p.evict_all(); }) == errc::ok);
    CHECK(w.failures == 0);
    if (others == 2)
      CHECK(is_whole(p));
    else
      CHECK(p.stats().degraded_bytes != 0);
    CHECK(p.verify() == "");
  }
}

TEST_CASE("a range has more replicas, and fewer, beside threads that use it", "[replicas]") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      served w(t, 4, mode);
      w.o.suspect_within = 3 * served::soon;  // in the end all that are left are needed
      const paged p(w.o);
      std::memset(p.data(), 0, p.size());
      p.evict_all();
      users u(p);
      u.pass(1000);
      p.set_replicas(2);
      CHECK(p.stats().degraded_bytes != 0);
      CHECK(is_whole(p));
      u.pass(1000);
      w.live[1]->program->end(SIGKILL);
      CHECK(becomes([&] { return p.stats().agents_lost == 1; }));
      CHECK(is_whole(p));
      CHECK(code_of([&] { p.set_replicas(0); }) == errc::invalid_argument);
      CHECK(code_of([&] { p.set_replicas(4); }) == errc::invalid_argument);
      p.set_replicas(3);
      CHECK(is_whole(p));
      CHECK(p.stats().surplus_bytes == 0);
      u.pass(1000);
      for (const std::uint32_t n : {1u, 3u, 2u}) {  // the second one comes while the first one is at work
        p.set_replicas(n);
        u.pass(n == 1 ? 100 : 1000);
      }
      CHECK(becomes([&] { return p.stats().surplus_bytes == 0; }));
      CHECK(is_whole(p));
      p.set_replicas(1);
      CHECK(becomes([&] { return p.stats().surplus_bytes == 0; }));
      check_all(p, u, w);
      CHECK(p.stats().lost_pages == 0);
      p.remove_agent(w.o.agents[0]);
      p.remove_agent(w.o.agents[2]);
      CHECK(u.wrong() == 0);
      CHECK(p.verify() == "");
    }
}

TEST_CASE("an agent is not removed if too few stay, or in too few zones", "[replicas]") {
  const auto at_once = std::chrono::seconds(5);  // what is refused does not wait
  {
    served w("tcp", 3, modes().front(), 2);
    w.o.suspect_within = 5 * served::soon;  // the range asks the one that is stopped for so long
    std::atomic<bool> leaving{false};
    w.o.on_agent_event = [&](const agent_event& e) { leaving = leaving || e.change == agent_change::leaving; };
    const paged p(w.o);
    std::memset(p.data(), 1, p.size());
    p.evict_all();
    w.live[2]->program->stop();  // so that the first one cannot be left yet
    agent_test::process drain({FARMEM_AGENT, "--drain", "5min", "--admin", w.live[0]->admin()},
                              w.live[0]->where / "drain");
    CHECK(becomes([&] { return leaving.load(); }));
    CHECK(code_of([&] { p.remove_agent(w.o.agents[1], at_once); }) == errc::invalid_argument);
    w.live[2]->program->send(SIGCONT);
    CHECK(drain.end() == 0);
    CHECK(p.verify() == "");
  }
  zoned w({"a", "a", "b"});
  const paged p(w.o);
  std::memset(p.data(), 1, p.size());
  p.evict_all();
  CHECK(code_of([&] { p.remove_agent(w.o.agents[2], at_once); }) == errc::invalid_argument);
  p.remove_agent(w.o.agents[0]);
  CHECK(is_whole(p));
  CHECK(p.verify() == "");
}

TEST_CASE("with fewer replicas pages stay on an agent that is to be left rather than on one that does not answer",
          "[replicas]") {
  served w("tcp", 2, modes().front(), 2);
  w.o.suspect_within = served::soon;
  w.o.connect_within = std::chrono::milliseconds(500);
  w.o.reconnect_within = std::chrono::seconds(5);
  std::atomic<bool> leaving{false};
  w.o.on_agent_event = [&](const agent_event& e) { leaving = leaving || e.change == agent_change::leaving; };
  const paged p(w.o);
  std::memset(p.data(), 1, p.size());
  p.evict_all();
  // Nothing can go elsewhere, so both still have all.
  agent_test::process drain({FARMEM_AGENT, "--drain", "5min", "--admin", w.live[0]->admin()},
                            w.live[0]->where / "drain");
  CHECK(becomes([&] { return leaving.load(); }));
  w.live[1]->program->end(SIGKILL);
  p.set_replicas(1);
  CHECK(becomes([&] { return p.stats().agents_lost == 1; }));
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  CHECK(p.data()[0] == std::byte{1});
  CHECK(p.stats().lost_pages == 0);
  drain.end(SIGKILL);
}

TEST_CASE("a range that lacks an agent takes small ones, one by one, and none that has no room", "[replicas]") {
  served w("tcp", 2, modes().back(), 2);
  w.o.suspect_within = served::soon;
  w.o.min_replicas = 2;
  const paged p(w.o);
  std::memset(p.data(), 1, p.size());
  p.evict_all();
  w.live[1]->program->end(SIGKILL);
  CHECK(becomes([&] { return p.stats().agents_lost == 1; }));
  served other("tcp", 0, modes().back());
  const std::string& full = other.add("tcp", "2MiB").url("tcp");
  other.o.capacity = 7 * 256_KiB;
  const paged tenant(other.o);
  int refused = 0;
  for (int i = 0; i < 300; ++i) refused += code_of([&] { p.add_agent(full); }) == errc::agent_full;
  CHECK(refused == 300);  // more than the numbers that a range has
  for (int i = 0; i < 2; ++i) CHECK_NOTHROW(p.add_agent(w.add("tcp", "3MiB").url("tcp")));
  CHECK(is_whole(p));
  CHECK(becomes([&] { return code_of([&] { p.evict_all(); }) == errc::ok; }));
  CHECK(p.verify() == "");
}

TEST_CASE("an agent that is named twice stores no page twice", "[replicas]") {
  served w("tcp", 1, modes().back());
  w.o.agents.push_back(w.o.agents[0]);
  const paged p(w.o);
  CHECK(code_of([&] { p.set_replicas(2); }) == errc::invalid_argument);
  w.o.replicas = 2;
  CHECK(code_of([&] { paged none(w.o); }) == errc::invalid_argument);
}

TEST_CASE("more replicas than there is room for are refused, and the range is as it was", "[replicas]") {
  served w("tcp", 0, modes().back());
  for (int i = 0; i < 2; ++i) (void)w.add("tcp", "4MiB");
  w.o.capacity = 7_MiB;
  const paged p(w.o);
  std::memset(p.data(), 1, p.size());
  CHECK(code_of([&] { p.set_replicas(2); }) == errc::agent_full);
  CHECK(p.stats().degraded_bytes == 0);
  p.evict_all();
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  CHECK(p.verify() == "");
}

TEST_CASE("what fewer agents than min_replicas would store stays here until there are enough", "[replicas]") {
  served w("tcp", 2, modes().front(), 2);
  w.o.suspect_within = served::soon;
  w.o.access_within = std::chrono::seconds(2);
  w.o.min_replicas = 3;
  CHECK(code_of([&] { paged none(w.o); }) == errc::invalid_argument);
  w.o.min_replicas = 0;
  CHECK(code_of([&] { paged none(w.o); }) == errc::invalid_argument);
  w.o.min_replicas = 2;
  const paged p(w.o);
  CHECK(code_of([&] { p.set_replicas(1); }) == errc::invalid_argument);
  const std::size_t half = p.size() / 2;
  std::memset(p.data(), 1, half);
  p.evict_all();
  w.live[0]->program->end(SIGKILL);
  CHECK(becomes([&] { return p.stats().agents_lost == 1; }));
  // Of a stripe that one agent has, and of one that nobody has yet.
  p.data()[0] = std::byte{2};
  CHECK(code_of([&] { p.evict_all(); }) == errc::under_replicated);
  p.data()[half] = std::byte{3};
  CHECK(code_of([&] { p.evict_all(); }) == errc::under_replicated);
  CHECK(std::memcmp(p.data() + 1, p.data() + 2, half - 2) == 0);  // others are read, and leave again
  p.add_agent(w.add("tcp").url("tcp"));
  CHECK(is_whole(p));
  CHECK(becomes([&] { return code_of([&] { p.evict_all(); }) == errc::ok; }));
  CHECK(p.data()[0] == std::byte{2});
  CHECK(p.data()[half] == std::byte{3});
  CHECK(p.data()[half - 1] == std::byte{1});
  CHECK(p.stats().lost_pages == 0);
  CHECK(p.verify() == "");
}

// Each zone has one copy of everything, so the small agent, the only one of its zone, has to have room for it all.
TEST_CASE("a range of replicas in zones needs room in each of them", "[replicas]") {
  zoned w({"a", "a"});
  const std::string small = w.add_in("b", "12MiB");
  w.o.capacity = 16_MiB;
  CHECK(code_of([&] { paged none(w.o); }) == errc::agent_full);
  const std::string large = w.add_in("b");
  {
    const paged p(w.o);
    std::memset(p.data(), 1, p.size());
    p.evict_all();
    CHECK(is_whole(p));
    CHECK(code_of([&] { p.remove_agent(large); }) == errc::agent_full);
    p.remove_agent(small);
    CHECK(is_whole(p));
    CHECK(p.verify() == "");
  }
  // Where zones may be shared, it has what it has room for.
  w.o.strict_zones = false;
  w.o.agents.pop_back();
  const paged p(w.o);
  std::memset(p.data(), 2, p.size());
  p.evict_all();
  CHECK(is_whole(p));
  CHECK(p.verify() == "");
}

TEST_CASE("with strict zones no two agents of a zone store a page", "[replicas]") {
  zoned w({"a", "a", "b"});
  w.o.replicas = 3;
  CHECK(code_of([&] { paged none(w.o); }) == errc::invalid_argument);
  w.o.replicas = 2;
  const paged p(w.o);
  CHECK(code_of([&] { p.set_replicas(3); }) == errc::invalid_argument);
  std::memset(p.data(), 1, p.size());
  p.evict_all();
  CHECK(is_whole(p));
  std::uint64_t lost = 0;
  const auto kill = [&](std::size_t i) {
    w.live[i]->program->end(SIGKILL);
    ++lost;
    CHECK(becomes([&] { return p.stats().agents_lost == lost; }));
  };
  // The only one of its zone stores everything, so it alone is enough.
  kill(0);
  CHECK(is_whole(p));
  kill(1);
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  // One more of that zone stores nothing beside it, and one of another zone everything.
  p.add_agent(w.add_in("b"));
  std::memset(p.data(), 2, p.size());
  p.evict_all();
  CHECK(becomes([&] { return p.stats().degraded_bytes == p.size(); }));
  p.add_agent(w.add_in("c"));
  CHECK(is_whole(p));
  kill(2);
  CHECK(is_whole(p));
  kill(3);
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  CHECK(p.stats().lost_pages == 0);
  CHECK(w.failures == 0);
}
