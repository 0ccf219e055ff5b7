// Evacuation with everything else going on: batches and messages in between, cycles, owners that go away, damage.
#include <functional>

#include "evacuation_fixture.h"

using namespace store_test;

namespace {

/// Does something once between copying and publishing.
struct in_between {
  std::function<void()> what;
  static void run(void* self) noexcept {
    auto& me = *static_cast<in_between*>(self);
    if (const auto once = std::exchange(me.what, nullptr)) once();
  }
  store_options options(std::uint64_t regions = 16) {
    store_options o = small(regions);
    o.hooks.cleaner_copied = run;
    o.hooks.context = this;
    return o;
  }
};

std::vector<slot_t> slots_of(const edges& graph) {
  std::vector<slot_t> all;
  for (const auto& [slot, to] : graph) all.push_back(slot);
  return all;
}

}  // namespace

TEST_CASE("a batch that comes while objects are being evacuated wins over their copies", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  in_between between;
  auto s = fm::agent::store::create(between.options());
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(1000);
  o.write(tree.graph);
  o.next_region();
  between.what = [&] {
    batch_builder b;
    for (slot_t i = 1; i <= 1000; i += 10) b.object(type_line, i, 8, 4711);
    const region_answer r = o.open_region();
    REQUIRE(o.append(b, r, 0).ok());
  };
  const evacuate_answer a = o.evacuate(order);
  CHECK(a.lost == 100);
  CHECK(a.objects == 900);
  CHECK(a.emptied == 1);
  o.audit();
  for (const slot_t slot : slots_of(tree.graph)) {
    const auto size = o.fetch(slot).as<fetch_slot_answer>().bytes;
    if (size != (slot % 10 == 1 ? 72 : 32)) FAIL("slot " << slot << " has " << size << " bytes");
    if (slot % 10 == 1) REQUIRE(o.value(slot) == 4711);
  }
}

TEST_CASE("slots that are released while they are evacuated stay released", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first);
  in_between between;
  auto s = fm::agent::store::create(between.options());
  evacuating_owner o(*s);
  o.open_ready();
  o.list(1, 500);
  o.list(1001, 500);
  o.next_region();
  REQUIRE(o.begin(1).ok());
  o.trace_all({1});
  std::set<slot_t> dead;
  for (slot_t i = 1001; i < 1501; ++i) dead.insert(i);
  between.what = [&] { REQUIRE(o.release(dead).ok()); };
  const evacuate_answer a = o.evacuate(order);
  CHECK(a.lost == 500);
  CHECK(a.objects == 500);
  REQUIRE(o.end(1).ok());
  for (const slot_t i : dead) REQUIRE(o.entry(i) == 0);
  CHECK(o.audit().objects == 500);
}

TEST_CASE("a collection that begins while an evacuation is under way marks what is reachable", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  auto s = fm::agent::store::create(small(64));
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(20000);
  o.write(tree.graph);
  o.list(30000, 2000);
  o.next_region();
  REQUIRE(o.ask(1, order).ok());
  for (int i = 0; i < 6; ++i) s->maintain();  // each a step of both
  REQUIRE(o.begin(1).ok());
  o.trace_all({tree.slot_of[0]});
  CHECK(o.marks(0) == reachable(tree.graph, {tree.slot_of[0]}));
  o.audit();
  while (o.ask(1, order).as<evacuate_answer>().done == 0) s->maintain();
  CHECK(o.ask(1, order).as<evacuate_answer>().objects == 22000);
  o.agree_all();
  // And once more, from what was moved.
  REQUIRE(o.begin(2).ok());
  o.trace_all({tree.slot_of[0]});
  CHECK(o.marks(0) == reachable(tree.graph, {tree.slot_of[0]}));
  REQUIRE(o.end(2).ok());
  o.audit();
}

TEST_CASE("messages that come again, late, or with nonsense do no harm", "[store]") {
  auto s = fm::agent::store::create(small(64));
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(20000);
  o.write(tree.graph);
  o.next_region();
  SECTION("asking again tells how far it is, also on another connection") {
    CHECK(o.ask(7, depth_first).as<evacuate_answer>().objects == 0);
    for (int i = 0; i < 20; ++i) s->maintain();
    const auto a = o.ask(7, depth_first).as<evacuate_answer>();
    CHECK(a.objects > 0);
    CHECK(a.done == 0);
    o.disconnect();
    for (int i = 0; i < 3; ++i) s->maintain();
    o.connect();
    REQUIRE(o.open(0, true).ok());
    CHECK(o.ask(7, depth_first).as<evacuate_answer>().objects > a.objects);
    settle(*s);
    const auto end = o.ask(7, depth_first).as<evacuate_answer>();
    CHECK(end.done == 1);
    CHECK(end.objects == 20000);
    CHECK(o.ask(7, depth_first).as<evacuate_answer>().objects == 20000);
    CHECK(o.by_address(tree.slot_of).size() == 20000);
    o.audit();
  }
  SECTION("an earlier number is refused, a later one ends what is under way") {
    REQUIRE(o.ask(7, depth_first).ok());
    for (int i = 0; i < 20; ++i) s->maintain();
    const auto until = o.ask(7, depth_first).as<evacuate_answer>().objects;
    CHECK(o.ask(6, depth_first).code == errc::stale);
    REQUIRE(o.ask(8, in_address_order).ok());
    CHECK(o.ask(7, depth_first).code == errc::stale);
    settle(*s);
    CHECK(o.ask(8, in_address_order).as<evacuate_answer>().objects == 20000);
    CHECK(until > 0);
    o.agree_all();
    o.audit();
  }
  SECTION("a heap that is closed, or expires, in the middle is gone") {
    REQUIRE(o.ask(7, breadth_first).ok());
    for (int i = 0; i < 20; ++i) s->maintain();
    REQUIRE(o.send(message_type::close_heap).ok());
    settle(*s);
    CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
  }
  SECTION("what a correct owner cannot say is a violation") {
    REQUIRE(o.ask(7, depth_first).ok());
    const auto returned = [&](std::uint64_t number, std::uint32_t order, std::uint32_t below) {
      return o.send(message_type::evacuate, evacuate_body{number, order, below}).returned;
    };
    CHECK(returned(0, 0, 0) == errc::bad_frame);
    CHECK(returned(8, 3, 0) == errc::bad_frame);
    CHECK(returned(8, 0, evacuation_whole + 1) == errc::bad_frame);
    CHECK(returned(7, 2, evacuation_whole) == errc::bad_frame);
    CHECK(o.send(message_type::evacuate).returned == errc::bad_frame);
  }
}

TEST_CASE("a heap closed between copying and publishing is simply gone", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first);
  in_between between;
  auto s = fm::agent::store::create(between.options(64));
  evacuating_owner o(*s);
  o.open_ready();
  o.write(scattered_tree(20000).graph);
  o.next_region();
  between.what = [&] { REQUIRE(o.send(message_type::close_heap).ok()); };
  REQUIRE(o.ask(1, order).ok());
  settle(*s);
  CHECK(between.what == nullptr);
  CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
}

TEST_CASE("the cleaner and an evacuation share a heap that runs low", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first);
  auto s = fm::agent::store::create(small(24));
  evacuating_owner o(*s);
  o.open_ready();
  const scattered_tree tree(20000);
  o.write(tree.graph);
  o.next_region();
  REQUIRE(o.ask(1, order).ok());
  for (int i = 0; i < 20; ++i) s->maintain();
  while (o.send(message_type::open_region).ok()) {
  }
  settle(*s);
  const auto a = o.ask(1, order).as<evacuate_answer>();
  CHECK(a.done == 1);
  o.audit();
  while (o.agree_all() != 0) settle(*s);
  o.audit();
  for (const auto& [slot, to] : tree.graph) {
    const reply r = o.fetch(slot);
    REQUIRE(r.as<fetch_slot_answer>().bytes == 32);
    REQUIRE(r.as<slot_t>(sizeof(fetch_slot_answer) + 16) == to[0]);
    REQUIRE(r.as<slot_t>(sizeof(fetch_slot_answer) + 24) == to[1]);
  }
}

TEST_CASE("an owner that damages its own region only loses its evacuation", "[store]") {
  const auto order = GENERATE(in_address_order, depth_first, breadth_first);
  const int which = GENERATE(range(0, 4));
  auto s = fm::agent::store::create(small());
  evacuating_owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  for (slot_t i = 0; i < 800; ++i) b.object(type_line, 1 + i, 8, 100);
  REQUIRE(o.append(b, r, 0).ok());
  REQUIRE(o.seal(r).ok());
  // Over shm:// an owner has its regions mapped and can write where it must not.
  std::byte* p = s->memory(*o.peer, {r.region, r.generation, 0}, 64_KiB, fabric::access::read);
  REQUIRE(p != nullptr);
  std::byte* const second = p + sizeof(batch_header) + 72;
  const std::uint64_t garbage = ~std::uint64_t{0} - 8, other = detail::header::pack(type_line, 70),
                      array = detail::header::pack(type_bytes, 2);
  if (which == 0) std::memcpy(p, &garbage, 8);       // the batch header
  if (which == 1) std::memcpy(second, &garbage, 8);  // an object's header: no such type
  if (which == 2) std::memcpy(second, &other, 8);    // another object's
  if (which == 3) std::memcpy(second, &array, 8);    // an array, of 100 bytes
  s->memory_done(*o.peer, r.region);
  CHECK(o.evacuate(order).left_behind == 0);
  CHECK(o.peer->retirements().empty());
  CHECK(s->statistics().find("\"regions_unwalkable\":1") != std::string::npos);
  CHECK(o.value(1 + 400) == 100);  // undamaged objects are still read
  CHECK(o.evacuate(order).regions <= 1);
}
