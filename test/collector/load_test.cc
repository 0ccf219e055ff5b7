// Agents that have too much to do: a heap has others serve some of its tablets, beside the program.
#include "heap/heap_core.h"
#include "replicas_fixture.h"
#include "support/busy_threads.h"
#include "used_nodes.h"

#include <atomic>
#include <string>

using namespace gc_test;

namespace {

/// Agents that say what the test tells them of their load.
struct agent_with_load {
  std::atomic<double> busy{0.1};
  meddled_agent at{"tcp://127.0.0.1:0", options()};

 private:
  fm::agent::store_options options() {
    auto o = agent_options();
    o.hooks.busy = [](void* a) { return static_cast<agent_with_load*>(a)->busy.load(); };
    o.hooks.context = this;
    return o;
  }
};

std::uint64_t served_by(fm::heap& h, std::uint32_t agent) {
  std::uint64_t n = 0;
  for (const std::uint32_t t : h.cache().slots().tablets()) n += replica_set::of_tablet(t).primary() == agent;
  return n;
}

}  // namespace

TEST_CASE("an overloaded agent serves fewer tablets, and the program notices nothing") {
  const std::uint32_t replicas = GENERATE(1u, 2u);
  agent_with_load first, second, third;
  auto o = over({first.at.url(), second.at.url(), third.at.url()});
  o.replicas = replicas;
  o.cache = 1_MiB;
  fm::heap h(o);
  h.core().gc().members().watch_load(std::chrono::milliseconds(2));
  used_nodes used(h);
  fm::test::busy_threads threads(
      used_nodes::threads, [&](std::size_t t, std::uint64_t random) { used.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(10'000);
  const std::uint64_t before = served_by(h, 0);
  REQUIRE(before > 0);
  CHECK(h.stats().tablets_moved_for_load == 0);
  const auto moved = [&](std::uint64_t n) {
    return fm::test::await([&] {
      h.core().gc().look_at_members();
      return h.stats().tablets_moved_for_load >= n;
    });
  };
  first.busy = 1.5;
  second.busy = 0.5;
  REQUIRE(moved(1));
  first.busy = 0.1;  // and nothing of the second, which is busy, but not too much so
  threads.pass(10'000);
  third.busy = 3;
  const std::uint64_t so_far = h.stats().tablets_moved_for_load;
  REQUIRE(moved(so_far + 1));
  threads.stop();
  CHECK(used.wrong == 0);
  REQUIRE(threads.unexpected().empty());
  for (std::size_t t = 0; t < used_nodes::threads; ++t) require_numbers(used.nodes()[t], used.values()[t]);
  CHECK(h.stats().lost_objects == 0);
  require_whole(h);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
}

TEST_CASE("a program that fetches nothing moves nothing, however busy an agent is") {
  agent_with_load first, second;
  auto o = over({first.at.url(), second.at.url()});
  fm::heap h(o);
  auto& members = h.core().gc().members();
  members.watch_load(std::chrono::milliseconds(1));
  const auto all = make_some(h, 1'000);
  first.busy = 2;
  second.busy = 0;
  const std::uint64_t looks = members.looks_at_load();
  REQUIRE(fm::test::await([&] {
    h.core().gc().look_at_members();
    return members.looks_at_load() > looks + 10 * fm::detail::limits::overloaded_looks;
  }));
  CHECK(h.stats().tablets_moved_for_load == 0);
  require_some(all);
}

TEST_CASE("with rebalance off, load moves nothing") {
  agent_with_load first, second;
  auto o = over({first.at.url(), second.at.url()});
  o.rebalance = false;
  fm::heap h(o);
  h.core().gc().members().watch_load(std::chrono::milliseconds(1));
  h.core().gc().look_at_members();
  const auto all = make_some(h, 1'000);
  first.busy = 2;
  REQUIRE(h.evict_all() == fm::errc::ok);
  require_some(all);
  h.core().gc().look_at_members();
  CHECK(h.core().gc().members().looks_at_load() == 0);
}
