// An agent dies and the others go on: its tablets get other agents, what was resident goes there, and every other object
// of them is lost and says so.
#include "base/limits.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "collector/stored_types.h"
#include "events/agent_events.h"
#include "heap/heap_core.h"
#include "meddled_agent.h"
#include "support/busy_threads.h"
#include "used_nodes.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

using namespace gc_test;

namespace {

fm::heap_options brief(const std::vector<std::string>& agents) {
  auto o = over(agents);
  o.reconnect_within = std::chrono::milliseconds(300);
  o.verify_cycles = true;
  return o;
}

std::uint32_t agent_of(const fm::ptr<gc_node>& p) { return fm::detail::object_cache::agent_of(p.slot()); }

/// Waits until the tablets of the agent that is lost have others.
void require_rehomed(fm::heap& h, std::size_t lost) {
  auto& cache = h.cache();
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  while (h.stats().tablets_rehomed == 0 && fm::clock::now() < give_up) std::this_thread::yield();
  REQUIRE(h.stats().tablets_rehomed > 0);
  REQUIRE(h.stats().agents_lost == 1);
  REQUIRE(cache.agents()[lost]->lost());
  REQUIRE_FALSE(cache.any_stranded());
}

/// The number in it; nothing if it is lost. Any other error fails the test.
std::optional<std::uint64_t> look(const fm::ptr<gc_node>& p) {
  try {
    return p->id;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::agent_lost) throw;
    return {};
  }
}

std::vector<fm::ptr<gc_node>> make_some(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<gc_node>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<gc_node>({.id = i}));
  return all;
}

}  // namespace

TEST_CASE(
    "what was resident of an agent that died goes to another one, the rest is lost, and everything else goes on") {
  meddled_agent first, second;
  auto o = brief({first.url(), second.url()});
  o.cache = 2_MiB;
  fm::heap h(o);
  auto all = make_some(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  // Of the agent that will die: some that are as at home, some that are newer, and some that were never there.
  std::vector<fm::ptr<gc_node>> clean, dirty, fresh;
  std::uint64_t of_first = 0, of_second = 0;
  for (const auto& p : all) {
    ++(agent_of(p) == 0 ? of_first : of_second);
    if (agent_of(p) == 0) continue;
    if (clean.size() < 500)
      clean.push_back(p);
    else if (dirty.size() < 500)
      dirty.push_back(p);
  }
  REQUIRE(of_first > 4'000);
  REQUIRE(of_second > 4'000);
  for (const auto& p : clean) REQUIRE(p->id < 20'000);
  for (const auto& p : dirty) p.write()->id += 100'000;
  for (std::uint64_t i = 0; i < 5'000; ++i)
    if (auto p = h.make<gc_node>({.id = 200'000 + i}); agent_of(p) == 1) fresh.push_back(std::move(p));
  second.die();
  require_rehomed(h, 1);

  for (const auto& p : all) REQUIRE(agent_of(p) == 0);
  for (const auto& p : clean) REQUIRE(look(p) < 20'000u);
  for (const auto& p : dirty) REQUIRE(look(p) >= 100'000u);
  for (const auto& p : fresh) REQUIRE(look(p) >= 200'000u);
  std::uint64_t lost = 0;
  for (const auto& p : all) lost += !look(p);
  REQUIRE(lost > 0);
  REQUIRE(lost <= of_second - clean.size() - dirty.size());
  REQUIRE(h.cache().losses().objects() == lost);

  // Ten times the cache, all of it at the one that is left.
  {
    std::vector<fm::ptr<gc_node>> more = make_some(h, 300'000);
    for (std::uint64_t i = 0; i < more.size(); i += 97) REQUIRE(more[i]->id == i);
  }
  collect(h, "without it");
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (const auto& p : clean) REQUIRE(look(p) < 20'000u);
  for (const auto& p : dirty) REQUIRE(look(p) >= 100'000u);
  for (const auto& p : fresh) REQUIRE(look(p) >= 200'000u);
  require_sound_at_home(h);

  // The lost are forgotten when nothing refers to them, and their slots hold new objects.
  all.clear();
  const auto r = collect(h, "the lost");
  REQUIRE(r.dead >= lost);
  REQUIRE(h.cache().losses().objects() == 0);
  const auto again = make_some(h, 300'000);
  for (std::uint64_t i = 0; i < again.size(); ++i) REQUIRE(again[i]->id == i);
  require_sound_at_home(h);
}

TEST_CASE("four threads go on while an agent dies, and read what they wrote or that it is lost") {
  meddled_agent first, second, third;
  auto o = brief({first.url(), second.url(), third.url()});
  o.cache = 2_MiB;
  o.collect = true;
  o.verify_cycles = false;
  fm::heap h(o);
  used_nodes used(h);
  fm::test::busy_threads threads(
      used_nodes::threads, [&](std::size_t t, std::uint64_t random) { used.use(t, random); },
      [](const fm::error& e) { return e.code() == fm::errc::agent_lost || e.code() == fm::errc::disconnected; });
  threads.pass(20'000);
  second.die();
  require_rehomed(h, 1);
  threads.pass(200'000);
  threads.stop();
  REQUIRE(used.wrong == 0);
  REQUIRE(threads.unexpected().empty());
  std::uint64_t lost = 0;
  for (std::size_t t = 0; t < used_nodes::threads; ++t)
    for (std::uint64_t i = 0; i < used_nodes::each; ++i) {
      const auto is = look(used.nodes()[t][i]);
      if (is) REQUIRE(*is == used.values()[t][i]);
      lost += !is;
    }
  REQUIRE(lost > 0);
  REQUIRE(lost < 2 * used_nodes::each);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
}

TEST_CASE("events come in order, what the function throws is dropped, and what waits in vain is counted") {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<fm::agent_event> got;
  bool go_on = false;
  fm::detail::agent_events events;
  events.start([&](const fm::agent_event& e) {
    std::unique_lock lock(mutex);
    got.push_back(e);
    changed.notify_all();
    changed.wait_for(lock, std::chrono::minutes(10), [&] { return go_on; });
    throw std::runtime_error("thrown by the test");
  });
  const auto until = [&](std::size_t n) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(10), [&] { return got.size() >= n; }));
  };
  events.post({.change = fm::agent_change::silent, .agent = "first"});
  until(1);
  constexpr std::uint64_t room = fm::detail::limits::agent_events_max;
  for (std::uint64_t i = 0; i < room + 7; ++i)
    events.post({.change = fm::agent_change::lost, .agent = "many", .tablets = i});
  {
    const std::lock_guard lock(mutex);
    go_on = true;
    changed.notify_all();
  }
  until(room + 1);
  events.post({.change = fm::agent_change::back, .agent = "last"});
  until(room + 2);
  events.stop();
  REQUIRE(got.size() == room + 2);
  REQUIRE(got.front().agent == "first");
  for (std::uint64_t i = 0; i < room; ++i) REQUIRE(got[i + 1].tablets == i);
  REQUIRE(got.back().agent == "last");
  REQUIRE(got.back().missed == 7);
}

TEST_CASE("tablets of an agent that is lost go to the agent that has room for them") {
  auto little = agent_options();
  little.memory_bytes = 8_MiB;
  meddled_agent small_one("tcp://127.0.0.1:0", little), dying, large;
  auto o = brief({small_one.url(), dying.url(), large.url()});
  o.cache = 2_MiB;
  fm::heap h(o);
  const auto all = make_some(h, 40'000);
  std::vector<fm::ptr<gc_node>> moved;
  for (const auto& p : all)
    if (agent_of(p) == 1) moved.push_back(p);
  REQUIRE(moved.size() > 10'000);
  dying.die();
  require_rehomed(h, 1);
  for (const auto& p : moved) REQUIRE(agent_of(p) == 2);
}

TEST_CASE("slots that a lost agent had not given out are given out by the others, and none beyond them") {
  meddled_agent staying, dying;
  fm::heap h(brief({staying.url(), dying.url()}));
  (void)make_some(h, 100);  // runs so short that the rest begins within a page of the table
  dying.die();
  require_rehomed(h, 1);
  for (const auto& p : make_some(h, 5'000)) REQUIRE(fm::detail::tablet_info_of(p.slot()).heap.load() == &h.cache());
}

TEST_CASE("when no agent is left an eighth of the cache can be changed, and what is resident is read") {
  meddled_agent only;
  auto o = brief({only.url()});
  o.cache = 4_MiB;
  fm::heap h(o);
  const auto all = make_some(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (std::uint64_t i = 0; i < all.size(); ++i) REQUIRE(all[i]->id == i);
  const std::string url = only.url();
  only.die();
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  while (h.cache().eviction().refusal(0) != fm::errc::agent_lost && fm::clock::now() < give_up)
    std::this_thread::yield();
  std::uint64_t changed = 0, refused = 0;
  for (const auto& p : all) try {
      p.write()->left = {};
      ++changed;
    } catch (const fm::error& e) {
      REQUIRE(e.code() == fm::errc::agent_lost);
      REQUIRE(std::string(e.what()).find(url) != std::string::npos);
      ++refused;
    }
  REQUIRE(changed > 1'000);
  REQUIRE(changed * sizeof(gc_node) <= o.cache / 8);
  REQUIRE(refused == all.size() - changed);
  REQUIRE(h.evict_all() == fm::errc::agent_lost);
  for (std::uint64_t i = 0; i < all.size(); ++i) REQUIRE(look(all[i]) == i);
}

TEST_CASE("a loss is not forgotten with a page of the table") {
  meddled_agent first, second;
  auto o = brief({first.url(), second.url()});
  o.hit = 64_KiB;
  fm::heap h(o);
  const auto all = make_some(h, 60'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.die();
  require_rehomed(h, 1);
  std::uint64_t lost = 0, again = 0;
  for (const auto& p : all) lost += !look(p);
  REQUIRE(lost > 0);
  REQUIRE(h.stats().hit_pages_given_back > 0);
  for (const auto& p : all) again += !look(p);
  REQUIRE(again == lost);
}

TEST_CASE("an agent that comes back without the heap is left at once, however long it might be waited for") {
  meddled_agent first;
  auto second = std::make_unique<meddled_agent>();
  const std::string at = second->url();
  auto o = brief({first.url(), at});
  o.reconnect_within = std::chrono::minutes(10);
  fm::heap h(o);
  const auto all = make_some(h, 5'000);
  second.reset();
  meddled_agent other(at);
  require_rehomed(h, 1);
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (const auto is = look(all[i])) REQUIRE(*is == i);
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "without it");
}

namespace {

struct other_node {
  std::uint64_t id = 0;
};

/// What the heap said of the loss.
class told_of_loss {
 public:
  void operator()(const fm::agent_event& e) {
    if (e.change != fm::agent_change::rehomed) return;
    const std::lock_guard lock(mutex_);
    event_ = e;
    changed_.notify_all();
  }
  fm::agent_event await() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::minutes(10), [this] { return event_.has_value(); }));
    return *event_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<fm::agent_event> event_;
};

}  // namespace

TEST_CASE("the event of a loss says how many objects of which types are lost, as of the last collection") {
  meddled_agent first, second;
  told_of_loss told;
  auto o = brief({first.url(), second.url()});
  o.on_agent_event = [&told](const fm::agent_event& e) { told(e); };
  fm::heap h(o);
  const auto all = make_some(h, 9'000);
  std::vector<fm::ptr<other_node>> others;
  for (std::uint64_t i = 0; i < 3'000; ++i) others.push_back(h.make<other_node>({.id = i}));
  std::uint64_t nodes_there = 0, others_there = 0;
  for (const auto& p : all) nodes_there += agent_of(p) == 1;
  for (const auto& p : others) others_there += fm::detail::object_cache::agent_of(p.slot()) == 1;
  REQUIRE(nodes_there > others_there);
  REQUIRE(others_there > 0);
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "counts by type");
  require_ok(h.collect_young("after the count"));
  SECTION("nothing was resident, and nothing was made since: the numbers are exact") {
    second.die();
    const fm::agent_event e = told.await();
    REQUIRE(e.lost_objects == nodes_there + others_there);
    REQUIRE(e.lost_types.size() == 2);
    CHECK(e.lost_types[0].name.find("gc_node") != std::string::npos);
    CHECK(e.lost_types[0].objects == nodes_there);
    CHECK(e.lost_types[1].name.find("other_node") != std::string::npos);
    CHECK(e.lost_types[1].objects == others_there);
  }
  SECTION("some are resident: their number is exact, and the types are in proportion") {
    std::uint64_t resident = 0;
    for (const auto& p : others)
      if (fm::detail::object_cache::agent_of(p.slot()) == 1) resident += p->id < 3'000;
    REQUIRE(resident == others_there);
    second.die();
    const fm::agent_event e = told.await();
    REQUIRE(e.lost_objects <= nodes_there);
    std::uint64_t sum = 0;
    for (const fm::lost_type& t : e.lost_types) sum += t.objects;
    CHECK(sum == e.lost_objects);
    CHECK(e.lost_types.front().name.find("gc_node") != std::string::npos);
  }
}

TEST_CASE("types of lost objects are estimated by samples of an agent, and unknown if it never answered") {
  meddled_agent first, second;
  fm::heap h(brief({first.url(), second.url()}));
  const auto all = make_some(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  auto& cache = h.cache();
  fm::detail::stored_types sampled(cache, 2);
  REQUIRE(sampled.estimate(0, 10).empty());
  bool asked = false;
  sampled.count([&] { return std::exchange(asked, true); });  // ends before the second message
  REQUIRE(asked);
  REQUIRE(sampled.estimate(0, 10).empty());
  fm::detail::stored_types again(cache, 2);
  again.count([] { return false; });
  for (std::uint32_t agent = 0; agent < 2; ++agent) {
    const auto types = again.estimate(agent, 12'345);
    REQUIRE(types.size() == 1);
    CHECK(types[0].objects == 12'345);
  }
  REQUIRE(again.estimate(2, 10).empty());
  REQUIRE(again.estimate(0, 0).empty());
}

TEST_CASE("the types of lost objects are unknown when no collection has ended before the loss") {
  meddled_agent first, second;
  told_of_loss told;
  auto o = brief({first.url(), second.url()});
  o.on_agent_event = [&told](const fm::agent_event& e) { told(e); };
  fm::heap h(o);
  const auto all = make_some(h, 2'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.die();
  const fm::agent_event e = told.await();
  CHECK(e.lost_objects > 0);
  CHECK(e.lost_types.empty());
}
