// Evacuation as an owner asks for it: which regions, in which order, how it ends; sources retire and are used again.
#include "evacuation_fixture.h"

using namespace store_test;

namespace {

std::uint32_t share(double ratio) { return static_cast<std::uint32_t>(ratio * evacuation_whole); }

}  // namespace

TEST_CASE("regions below the live ratio that was asked for are emptied, in any order, and others are not", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  auto s = fm::agent::store::create(small());
  evacuating_owner o(*s);
  o.open_ready();
  const region_answer quarter = fill(o, 1, 100), half = fill(o, 1 + per_region, 101),
                      whole = fill(o, 1 + 2 * per_region, 102);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  supersede(o, to, at, 1, 4, 200);
  supersede(o, to, at, 1 + per_region, 2, 201);
  const evacuate_answer a = o.evacuate(order, share(0.4));
  CHECK(a.order == static_cast<std::uint32_t>(order));
  CHECK(a.regions == 1);
  CHECK(a.emptied == 1);
  CHECK(a.objects == per_region / 4);
  CHECK(a.bytes >= a.objects * 72);
  CHECK(a.left_behind == 0);
  const auto notices = o.peer->retirements();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].region == quarter.region);
  for (slot_t i = 0; i < 3 * per_region; ++i) {
    const bool superseded = i < per_region ? i % 4 != 0 : i < 2 * per_region && i % 2 != 0;
    if (o.value(1 + i) != (superseded ? 200 : 100) + i / per_region) FAIL("slot " << 1 + i << " is another");
  }
  CHECK(o.home(1 + per_region).region == half.region);
  CHECK(o.home(1 + 2 * per_region).region == whole.region);
  o.audit();
  REQUIRE(o.agree(notices[0]).ok());
  o.audit();
  SECTION("there is nothing to do when nothing is sparse") {
    const evacuate_answer none = o.evacuate(order, share(0.4));
    CHECK(none.regions == 0);
    CHECK(none.objects == 0);
  }
  SECTION("a share of 0 is nothing, and all sealed regions can be asked for, what was evacuated before included") {
    CHECK(o.evacuate(order, 0).regions == 0);
    const evacuate_answer all = o.evacuate(order);
    CHECK(all.regions == 3);  // half, whole, and the agent's own
    CHECK(all.emptied == 3);
    CHECK(all.objects == per_region / 4 + per_region / 2 + per_region);
    CHECK(o.agree_all() == 3);
    o.audit();
  }
}

TEST_CASE("copies lie in the order that was asked for", "[store]") {
  auto s = fm::agent::store::create(small());
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(1200);
  o.write(tree.graph);
  o.next_region();
  const std::vector<slot_t> slots = tree.slot_of;
  SECTION("depth first") {
    CHECK(o.evacuate(depth_first).objects == slots.size());
    CHECK(o.by_address(slots) == tree.preorder());
  }
  SECTION("breadth first") {
    CHECK(o.evacuate(breadth_first).objects == slots.size());
    CHECK(o.by_address(slots) == tree.by_level());
  }
  SECTION("by address, which changes nothing") {
    const auto before = o.by_address(slots);
    CHECK(o.evacuate(in_address_order).objects == slots.size());
    CHECK(o.by_address(slots) == before);
  }
  SECTION("one after the other") {
    o.evacuate(breadth_first);
    CHECK(o.agree_all() == 1);
    o.evacuate(depth_first);
    CHECK(o.agree_all() == 1);
    CHECK(o.by_address(slots) == tree.preorder());
  }
  o.audit();
}

TEST_CASE("a traversal goes through many regions, and copies of what was reached together lie together", "[store]") {
  auto s = fm::agent::store::create(small(64));
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(20000);  // 10 regions
  o.write(tree.graph);
  o.next_region();
  const bool depth = GENERATE(true, false);
  const evacuate_answer a = o.evacuate(depth ? depth_first : breadth_first);
  CHECK(a.objects == 20000);
  CHECK(a.emptied == a.regions);
  CHECK(o.agree_all() == a.regions);
  const std::vector<slot_t> expected = depth ? tree.preorder() : tree.by_level();
  // Regions are filled in the order of the traversal.
  CHECK(o.by_address(expected) == expected);
  o.audit();
}

TEST_CASE("traversals begin where nobody refers to, go round cycles once, and leave nothing out", "[store]") {
  const auto order = GENERATE(depth_first, breadth_first);
  store_options options = small();
  SECTION("with room on the stack") {}
  SECTION("without") { options.trace_queue_slots = 64; }
  auto s = fm::agent::store::create(options);
  evacuating_owner o(*s);
  o.open_ready();
  edges graph;
  for (slot_t i = 0; i < 100; ++i) graph[1 + i] = {1 + (i + 1) % 100};  // a cycle
  graph[200] = {200, 200, 1};                                           // refers to itself, and to the cycle
  for (slot_t i = 0; i < 300; ++i) graph[300].push_back(1000 + i * 7 % 300);
  for (slot_t i = 0; i < 300; ++i) graph[1000 + i] = {i % 2 == 0 ? 300u : 60000u};  // nothing is stored there
  graph[301] = {~slot_t{0} >> 24, slot_t{70000}, 0, 5};                             // no such slot, no such tablet
  o.write(graph);
  o.next_region();
  const evacuate_answer a = o.evacuate(order);
  CHECK(a.objects == graph.size());
  CHECK(a.emptied == a.regions);
  o.audit();
  std::vector<slot_t> slots;
  for (const auto& [slot, to] : graph) slots.push_back(slot);
  const std::vector<slot_t> lie = o.by_address(slots);
  // 200 is the first that nobody else refers to, and leads into the cycle.
  REQUIRE(lie[0] == 200);
  for (slot_t i = 0; i < 100; ++i) REQUIRE(lie[1 + i] == 1 + i);
  REQUIRE(lie[101] == 301);
  if (options.trace_queue_slots > 64) {
    CHECK(lie[102] == 300);  // of the other cycle, by its address
    for (slot_t i = 0; i < 300; ++i) CHECK(lie[103 + i] == 1000 + i * 7 % 300);
  }
}

TEST_CASE("objects as large as half a region are evacuated", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  auto s = fm::agent::store::create(small(32));
  evacuating_owner o(*s);
  o.open_ready();
  // Two arrays of half a region each, less what headers take; a list through all of them.
  const std::size_t words = (64_KiB / 2 - sizeof(batch_header) - 16) / 8;
  for (slot_t i = 0; i < 10; i += 2) {
    const region_answer r = o.open_region();
    for (slot_t k = 0; k < 2; ++k) {
      batch_builder b;
      std::vector<slot_t> refs(words, 0);
      refs.back() = 1 + (i + k + 3) % 10;
      b.begin(type_refs, 1 + i + k);
      const std::uint64_t length = words;
      b.put(&length, 8);
      b.put(refs.data(), refs.size() * 8);
      REQUIRE(o.append(b, r, k * 32_KiB).ok());
    }
    REQUIRE(o.seal(r).ok());
  }
  const evacuate_answer a = o.evacuate(order);
  CHECK(a.objects == 10);
  CHECK(a.emptied == 5);
  CHECK(o.agree_all() == 5);
  o.audit();
  if (order == in_address_order) return;
  std::vector<slot_t> expected;
  for (slot_t i = 0; i < 10; ++i) expected.push_back(1 + i * 3 % 10);
  CHECK(o.by_address(expected) == expected);
}

TEST_CASE("an agent that is full is evacuated through its reserve, by address, as far as that goes", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first);
  auto s = fm::agent::store::create(small(12));
  evacuating_owner o(*s);
  o.open_ready();
  for (slot_t i = 0; i < 8; ++i) fill(o, 1 + i * per_region, 100 + i);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  for (slot_t i = 0; i < 4; ++i) supersede(o, to, at, 1 + i * per_region, 4, 200 + i);
  while (o.send(message_type::open_region).ok()) {
  }
  // 4 quarters fit into the region that is held back; what is in the other 4 does not.
  const evacuate_answer a = o.evacuate(order);
  CHECK(a.order == static_cast<std::uint32_t>(in_address_order));
  CHECK(a.left_behind == 1);
  CHECK(a.regions == 8);
  CHECK(a.emptied == 4);
  CHECK(o.agree_all() == a.emptied);
  o.audit();
  for (slot_t i = 0; i < 8 * per_region; ++i)
    if (o.value(1 + i) != (i < 4 * per_region && i % per_region % 4 != 0 ? 200 : 100) + i / per_region)
      FAIL("slot " << 1 + i << " is another");
  CHECK(o.send(message_type::open_region).ok());
}

TEST_CASE("a traversal that does not fit beside what owners need takes the sparsest regions that do", "[store]") {
  auto s = fm::agent::store::create(small(10));
  evacuating_owner o(*s);
  o.open_ready();
  for (slot_t i = 0; i < 5; ++i) fill(o, 1 + i * per_region, 100 + i);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  supersede(o, to, at, 1, 4, 200);
  // 6 of 9 are in use, and 2 must be left.
  const evacuate_answer a = o.evacuate(depth_first);
  CHECK(a.order == static_cast<std::uint32_t>(depth_first));
  CHECK(a.regions == 5);
  CHECK(a.left_behind == 1);
  CHECK(a.emptied == 1);
  CHECK(a.objects == per_region / 4);
  o.audit();
  CHECK(o.send(message_type::open_region).ok());
  CHECK(o.send(message_type::open_region).ok());
}
