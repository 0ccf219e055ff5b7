// The background work of an agent without memory: each allocation of it fails in turn. It goes on when there is memory again,
// nothing is lost, and no region stays entered.
#include "agent/evacuation_fixture.h"
#include "failing_new.h"

using namespace store_test;
using fm::test::failing_new;

namespace {

/// Runs `s` until it rests while allocation `k` fails; whether one failed.
bool rests_without_memory(fm::agent::store& s, std::uint64_t k) {
  failing_new::fail(k, 1);
  for (int rested = 0; rested < 3;) rested = s.maintain() ? 0 : rested + 1;
  const bool failed = failing_new::failed() != 0;
  (void)failing_new::stop();
  return failed;
}

}  // namespace

TEST_CASE("an evacuation goes on after any of its allocations has failed") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  std::uint64_t k = 1;
  for (bool failed = true; failed; ++k) {
    INFO("allocation " << k);
    auto s = fm::agent::store::create(small());
    evacuating_owner o(*s);
    o.open_ready();
    const scattered_tree tree(1'500);
    o.write(tree.graph);
    o.next_region();
    REQUIRE(o.ask(1, order).ok());
    failed = rests_without_memory(*s, k);
    const auto told = o.ask(1, order).as<evacuate_answer>();
    REQUIRE(told.done == 1);
    REQUIRE(told.objects == tree.graph.size());
    REQUIRE(told.emptied == told.regions);
    REQUIRE(o.agree_all() == told.emptied);
    settle(*s);
    REQUIRE(o.audit().objects == tree.graph.size());
    for (const auto& [slot, to] : tree.graph) REQUIRE(o.entry(slot) != 0);
  }
  REQUIRE(k > 5);
}

TEST_CASE("sparse regions are cleaned after any allocation of that has failed") {
  std::uint64_t k = 1;
  for (bool failed = true; failed; ++k) {
    INFO("allocation " << k);
    auto s = fm::agent::store::create(small(10));
    owner o(*s);
    o.open_ready();
    for (slot_t i = 0; i < 4; ++i) fill(o, 1 + i * per_region, 100 + i);
    region_answer to = o.open_region();
    std::uint64_t at = 0;
    for (slot_t i = 0; i < 4; ++i) supersede(o, to, at, 1 + i * per_region, 4, 200 + i);
    while (o.send(message_type::open_region).ok()) continue;
    failed = rests_without_memory(*s, k);
    const auto notices = o.peer->retirements();
    REQUIRE(notices.size() == 4);
    for (const region_name& n : notices) REQUIRE(o.agree(n).ok());
    o.audit();
    for (slot_t i = 0; i < 4 * per_region; ++i)
      REQUIRE(o.value(1 + i) == (i % per_region % 4 == 0 ? 100 : 200) + i / per_region);
  }
  REQUIRE(k > 3);
}

TEST_CASE("a lease runs out though an allocation has failed") {
  std::uint64_t k = 1;
  for (bool failed = true; failed; ++k) {
    INFO("allocation " << k);
    manual_clock time;
    store_options options = small();
    options.hooks.now = manual_clock::read;
    options.hooks.context = &time;
    auto s = fm::agent::store::create(options);
    {
      owner o(*s);
      o.open_ready();
      (void)o.open_region();
    }
    time.advance(std::chrono::hours(24 * 365));
    failed = rests_without_memory(*s, k);
    REQUIRE(s->statistics().find(R"("regions_in_use":0)") != std::string::npos);
  }
  REQUIRE(k > 2);
}
