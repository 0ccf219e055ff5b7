// Real agents that are killed, stopped and started again under a heap: what it says of them, and that it goes on.
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "live_agent.h"
#include "support/await.h"
#include "support/busy_threads.h"

using namespace agent_test;
using namespace fm::literals;
using namespace std::chrono_literals;

namespace {

struct item {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
};

constexpr std::uint64_t cache_bytes = 1_MiB;
constexpr std::uint64_t item_bytes = sizeof(item) + 8;

/// What a heap said of its agents.
class told {
 public:
  void operator()(const fm::agent_event& e) {
    const std::lock_guard lock(mutex_);
    all_.push_back(e);
    changed_.notify_all();
  }
  /// Waits for such an event of that agent, and gives it.
  fm::agent_event await(fm::agent_change change, const std::string& agent) {
    std::unique_lock lock(mutex_);
    std::size_t at = 0;
    const bool came = changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] {
      for (at = 0; at < all_.size(); ++at)
        if (all_[at].change == change && all_[at].agent == agent) return true;
      return false;
    });
    INFO(to_string(change) << " of " << agent);
    REQUIRE(came);
    return all_[at];
  }
  std::vector<fm::agent_change> changes_of(const std::string& agent) {
    const std::lock_guard lock(mutex_);
    std::vector<fm::agent_change> some;
    for (const fm::agent_event& e : all_)
      if (e.agent == agent) some.push_back(e.change);
    return some;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<fm::agent_event> all_;
};

const std::vector<std::string> modest{"--memory", "64MiB", "--region", "256KiB"};

fm::heap_options over(const std::vector<std::string>& agents, told& events) {
  fm::heap_options o;
  o.cache = cache_bytes;
  o.agents = agents;
  o.name = "loss-test";
  o.segment = 32_KiB;
  o.access_within = o.memory_within = 60s;
  o.reconnect_within = 300ms;
  o.on_agent_event = [&events](const fm::agent_event& e) { events(e); };
  return o;
}

/// The number in it; nothing if it is lost. Any other error fails the test.
std::optional<std::uint64_t> look(const fm::ptr<item>& p) {
  try {
    return p->id;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::agent_lost) throw;
    return {};
  }
}

/// Objects that four threads read and write, each its own, and what they should hold.
class used_items {
 public:
  static constexpr std::size_t threads = 4;
  static constexpr std::uint64_t each = 5'000;

  explicit used_items(fm::heap& h) : mine_(threads), values_(threads) {
    for (std::size_t t = 0; t < threads; ++t)
      for (std::uint64_t i = 0; i < each; ++i) {
        mine_[t].push_back(h.make<item>({.id = i}));
        values_[t].push_back(i);
      }
  }
  void use(std::size_t t, std::uint64_t random) {
    const std::uint64_t i = (random >> 33) % each;
    if (random >> 62 == 0) {
      mine_[t][i].write()->id = values_[t][i] + each;
      values_[t][i] += each;
    } else if (mine_[t][i]->id != values_[t][i]) {
      ++wrong;
    }
  }
  /// How many are lost; all others must hold what was written last.
  [[nodiscard]] std::uint64_t count_lost() const {
    std::uint64_t lost = 0;
    for (std::size_t t = 0; t < threads; ++t)
      for (std::uint64_t i = 0; i < each; ++i) {
        const auto is = look(mine_[t][i]);
        if (is) REQUIRE(*is == values_[t][i]);
        lost += !is;
      }
    return lost;
  }

  std::atomic<std::uint64_t> wrong{0};

 private:
  std::vector<std::vector<fm::ptr<item>>> mine_;
  std::vector<std::vector<std::uint64_t>> values_;
};

/// Regions of agents that a process has mapped, by their inodes.
std::set<std::string> mapped_regions(const std::string& process) {
  std::ifstream in("/proc/" + process + "/maps");
  std::set<std::string> all;
  for (std::string address, mode, offset, device, inode, name;
       in >> address >> mode >> offset >> device >> inode && std::getline(in, name);)
    if (name.find("farmem-region") != std::string::npos) all.insert(inode);
  return all;
}

}  // namespace

TEST_CASE("one of two agents is killed beside four threads, and the other takes all that comes", "[agent]") {
  const std::string scheme = GENERATE("tcp", "shm");
  live_agent first(modest), second(modest);
  told events;
  fm::heap h(over({first.url(scheme), second.url(scheme)}, events));
  used_items items(h);
  fm::test::busy_threads threads(
      used_items::threads, [&](std::size_t t, std::uint64_t random) { items.use(t, random); },
      [](const fm::error& e) { return e.code() == fm::errc::agent_lost; });
  threads.pass(10'000);
  CHECK(second.program->end(SIGKILL) == -SIGKILL);
  const fm::agent_event e = events.await(fm::agent_change::rehomed, second.url(scheme));
  threads.pass(50'000);
  threads.stop();
  CHECK(items.wrong == 0);
  CHECK(threads.unexpected().empty());
  CHECK(e.tablets > 0);
  CHECK(e.lost_objects > 0);
  CHECK(events.changes_of(second.url(scheme)) ==
        std::vector{fm::agent_change::silent, fm::agent_change::lost, fm::agent_change::rehomed});
  CHECK(events.changes_of(first.url(scheme)).empty());
  const std::uint64_t lost = items.count_lost();
  CHECK(lost > 0);
  CHECK(lost <= e.lost_objects);
  const fm::heap_stats s = h.stats();
  CHECK(s.agents_lost == 1);
  CHECK(s.tablets_rehomed == e.tablets);
  CHECK(s.lost_objects <= e.lost_objects);

  std::vector<fm::ptr<item>> more;
  for (std::uint64_t i = 0; i < 10 * cache_bytes / item_bytes; ++i) more.push_back(h.make<item>({.id = i}));
  for (std::uint64_t i = 0; i < more.size(); ++i) REQUIRE(more[i]->id == i);
  const auto r = h.collect("after the loss");
  INFO(r.text());
  CHECK(r.ok());
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  CHECK(v.ok());
}

TEST_CASE("an agent that is stopped and goes on loses nothing, and its silence ends the connection", "[agent]") {
  // The agents keep the heap however long this machine takes.
  const std::vector<std::string> patient{"--memory", "64MiB", "--region", "256KiB", "--lease", "3600s"};
  live_agent first(patient), second(patient);
  told events;
  auto o = over({first.url("tcp"), second.url("tcp")}, events);
  o.access_within = 1s;
  o.reconnect_within = std::chrono::milliseconds(wait_ms);
  fm::heap h(o);
  std::vector<fm::ptr<item>> all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(h.make<item>({.id = i}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.program->send(SIGSTOP);
  // A reader alone notices: it reads until the connection is given up.
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, unexpected{0};
  std::thread reader([&] {
    for (std::uint64_t i = 0; !stop; i = (i + 7919) % all.size()) {
      try {
        wrong += all[i]->id != i;
      } catch (const fm::error& e) {
        unexpected += e.code() != fm::errc::timed_out;
      }
    }
  });
  events.await(fm::agent_change::silent, second.url("tcp"));
  stop = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(unexpected == 0);
  second.program->send(SIGCONT);
  events.await(fm::agent_change::back, second.url("tcp"));
  for (std::uint64_t i = 0; i < all.size(); ++i) REQUIRE(all[i]->id == i);
  CHECK(h.stats().agents_lost == 0);
  CHECK(h.stats().lost_objects == 0);
  CHECK(h.collect("all are back").ok());
}

TEST_CASE("an agent that is killed and started again is left at once", "[agent]") {
  live_agent first(modest), second(modest);
  told events;
  auto o = over({first.url("tcp"), second.url("tcp")}, events);
  o.reconnect_within = std::chrono::milliseconds(wait_ms);
  fm::heap h(o);
  std::vector<fm::ptr<item>> all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(h.make<item>({.id = i}));
  const std::string at = second.url("tcp");
  CHECK(second.program->end(SIGKILL) == -SIGKILL);
  second.start_again();
  events.await(fm::agent_change::rehomed, at);
  std::uint64_t lost = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const auto is = look(all[i]);
    if (is) REQUIRE(*is == i);
    lost += !is;
  }
  CHECK(lost > 0);
  for (std::uint64_t i = 0; i < 10 * cache_bytes / item_bytes; ++i) REQUIRE(h.make<item>({.id = i})->id == i);
}

TEST_CASE("a heap does not keep the memory of an agent mapped that it has lost", "[agent]") {
  live_agent first(modest), second(modest);
  std::vector<std::string> agents{first.url("shm")};
  const bool has_another = GENERATE(false, true);
  INFO(has_another);
  if (has_another) agents.push_back(second.url("shm"));
  told events;
  fm::heap h(over(agents, events));
  std::vector<fm::ptr<item>> all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(h.make<item>({.id = i}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  const std::set<std::string> gone = mapped_regions(std::to_string(first.program->id()));
  const auto kept = [&] {
    std::set<std::string> mine = mapped_regions("self");
    std::erase_if(mine, [&](const std::string& r) { return !gone.contains(r); });
    return mine.size();
  };
  CHECK(kept() != 0);
  CHECK(first.program->end(SIGKILL) == -SIGKILL);
  events.await(has_another ? fm::agent_change::rehomed : fm::agent_change::lost, first.url("shm"));
  CHECK(fm::test::await([&] { return kept() == 0; }));
  // Nor their places, once the other agent has its tablets.
  if (has_another) CHECK(fm::test::await([&] { return mapped_regions("self").size() == h.stats().regions; }));
}

TEST_CASE("an agent with replicas is killed, or falls silent, and no thread sees an error", "[agent]") {
  const std::string scheme = GENERATE("tcp", "shm");
  const int how = GENERATE(SIGKILL, SIGSTOP);
  INFO(scheme << ", signal " << how);
  live_agent first(modest), second(modest), third(modest);
  told events;
  auto o = over({first.url(scheme), second.url(scheme), third.url(scheme)}, events);
  o.replicas = 2;
  o.suspect_within = 2s;
  o.reconnect_within = std::chrono::milliseconds(wait_ms);
  fm::heap h(o);
  used_items items(h);
  fm::test::busy_threads threads(
      used_items::threads, [&](std::size_t t, std::uint64_t random) { items.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(10'000);
  second.program->send(how);
  const fm::agent_event e = events.await(fm::agent_change::rehomed, second.url(scheme));
  threads.pass(20'000);
  threads.stop();
  CHECK(items.wrong == 0);
  CHECK(threads.unexpected().empty());
  CHECK(e.tablets > 0);
  CHECK(e.promoted_tablets == e.tablets);
  CHECK(e.lost_objects == 0);
  events.await(fm::agent_change::replicated, "");
  second.program->send(SIGCONT);  // it is not asked any more
  CHECK(items.count_lost() == 0);
  CHECK(h.stats().tablets_degraded == 0);
  CHECK(h.collect("after the loss").ok());
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  CHECK(v.ok());
}

TEST_CASE("an agent is drained by its administrator, or by SIGTERM, beside threads that see no error", "[agent]") {
  const std::string scheme = GENERATE("tcp", "shm");
  const bool by_signal = GENERATE(false, true);
  INFO(scheme << (by_signal ? ", SIGTERM" : ", --drain"));
  auto settings = modest;
  settings.insert(settings.end(), {"--drain-on-term", "5min"});
  live_agent first(modest), second(settings);
  told events;
  fm::heap h(over({first.url(scheme), second.url(scheme)}, events));
  used_items items(h);
  fm::test::busy_threads threads(
      used_items::threads, [&](std::size_t t, std::uint64_t random) { items.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(10'000);
  if (by_signal) {
    CHECK(second.program->end(SIGTERM) == 0);
  } else {
    process drain({FARMEM_AGENT, "--drain", "5min", "--admin", second.admin()}, second.where / "drain");
    CHECK(drain.end() == 0);
    CHECK(text_of(second.where / "drain").find("the agent is drained") != std::string::npos);
  }
  events.await(fm::agent_change::leaving, second.url(scheme));
  events.await(fm::agent_change::left, second.url(scheme));
  threads.pass(20'000);
  threads.stop();
  CHECK(items.wrong == 0);
  CHECK(threads.unexpected().empty());
  CHECK(items.count_lost() == 0);
  CHECK(h.agents() == std::vector{first.url(scheme)});
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  CHECK(v.ok());
  if (by_signal) return;
  // It takes no heap until that is taken back, and is as good as any other then.
  CHECK_FALSE(fm::heap::open({.agents = {second.url(scheme)}}).has_value());
  process stay({FARMEM_AGENT, "--stay", "--admin", second.admin()}, second.where / "stay");
  CHECK(stay.end() == 0);
  h.add_agent(second.url(scheme));
  CHECK(h.agents().size() == 2);
}

TEST_CASE("an agent that a heap cannot leave says so, and stays", "[agent]") {
  live_agent only(modest);
  told events;
  fm::heap h(over({only.url("tcp")}, events));
  const auto p = h.make<item>({.id = 7});
  REQUIRE(h.evict_all() == fm::errc::ok);
  process drain({FARMEM_AGENT, "--drain", "1s", "--admin", only.admin()}, only.where / "drain");
  CHECK(drain.end() == 1);
  CHECK(text_of(only.where / "drain").find("1 heaps still store objects here") != std::string::npos);
  events.await(fm::agent_change::staying, only.url("tcp"));
  CHECK(p->id == 7);
  for (std::uint64_t i = 0; i < 100'000; ++i) (void)h.make<item>({.id = i});  // more slots than it had
  process wrong({FARMEM_AGENT, "--drain", "soon", "--admin", only.admin()}, only.where / "wrong");
  CHECK(wrong.end() == 2);
}

TEST_CASE("a pool without replicas is counted by an agent that is drained, and stays until it is closed", "[agent]") {
  live_agent only(modest);
  fm::pool p({.agents = {only.url("tcp")},
              .name = "stays",
              .tenant = fm::pool_tenant::random(),
              .keep = std::chrono::milliseconds(10)});
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const auto drained = [&](const char* within) {
    process drain({FARMEM_AGENT, "--drain", within, "--admin", only.admin()}, only.where / "drain");
    return drain.end();
  };
  auto at = p.alloc_bytes(bytes);
  CHECK(drained("300ms") == 1);
  CHECK(text_of(only.where / "drain").find("1 pools are here") != std::string::npos);
  std::array<std::byte, 3> now{};
  CHECK(p.read_into(at, now) == fm::errc::ok);
  CHECK(now == bytes);
  p.close();
  CHECK(drained("5min") == 0);
}
