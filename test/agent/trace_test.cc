// Tracing: what is marked, what is handed on, when the agent is idle, and what becomes of slots that are released.
#include "trace_fixture.h"

using namespace store_test;

namespace {

constexpr slot_t foreign = slot_t{1000} * 65536;  ///< in a tablet that this agent never granted

std::set<slot_t> range_of(slot_t first, std::uint64_t count) {
  std::set<slot_t> all;
  for (slot_t s = first; s < first + count; ++s) all.insert(s);
  return all;
}

}  // namespace

TEST_CASE("a list is marked from where it is held to its end, and nothing else is", "[store][trace]") {
  auto s = fm::agent::store::create(small(32));
  tracing_owner o(*s);
  o.open_ready();
  o.list(100, 20000);
  o.list(40000, 10);
  REQUIRE(o.begin(1).ok());
  CHECK(o.trace_all({150}).empty());
  CHECK(o.marks(0) == range_of(150, 19950));
  CHECK_FALSE(o.marked(149));
  CHECK(o.marked(150));
  const auto last = o.trace().answer;
  CHECK(last.idle == 1);
  CHECK(last.marked == 19950);
  CHECK(last.scanned_bytes == 19950 * 16);
  CHECK(last.queued == 0);
  o.audit();
}

TEST_CASE("tracing begins with the first trace message, and idle is said only when nothing is left", "[store][trace]") {
  auto s = fm::agent::store::create(small(32));
  tracing_owner o(*s);
  o.open_ready();
  o.list(1, 20000);
  REQUIRE(o.begin(1).ok());
  settle(*s);
  CHECK(o.marks(0).empty());
  CHECK(o.trace().answer.idle == 1);  // no root, nothing to do
  CHECK(o.trace({1}).answer.idle == 0);
  REQUIRE(s->maintain());  // one step, which is far from the end
  const auto under_way = o.trace();
  CHECK(under_way.answer.idle == 0);
  CHECK(under_way.answer.marked > 1);
  CHECK(under_way.answer.marked < 20000);
  CHECK(under_way.answer.queued > 0);
  CHECK(o.peer->traced().empty());
  settle(*s);
  const auto notices = o.peer->traced();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].cycle == 1);
  CHECK(o.trace().answer.idle == 1);
  settle(*s);
  CHECK(o.peer->traced().empty());             // the answer has said so
  CHECK(o.trace({1, 2, 3}).answer.idle == 1);  // marked long ago
  o.peer->accept(false);
  CHECK(o.trace({50000}).answer.idle == 0);
  settle(*s);  // a notice that does not get through is no matter: the owner asks
  CHECK(o.trace().answer.idle == 1);
}

TEST_CASE("cycles, references to oneself, nulls, arrays and young objects", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  o.write({{1, {2}},
           {2, {3}},
           {3, {1}},
           {4, {4}},
           {5, {0, 6, 0, 7, 5, 7}},
           {6, {}},
           {7, {0}},
           {8, {9, 10}}});  // 9 and 10 were never stored
  batch_builder plain;
  plain.object(type_line, 11, 8, 12).array(type_bytes, 13, 16, 2);
  const region_answer r = o.open_region();
  REQUIRE(o.append(plain, r, 0).ok());
  REQUIRE(o.begin(1).ok());
  CHECK(o.trace_all({1, 4, 5, 8, 11, 13, 20}).empty());
  CHECK(o.marks(0) == std::set<slot_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 20});
  o.audit();
}

TEST_CASE("what is dirty at the owner is marked, and handed to the owner instead of being scanned", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  o.write({{1, {2}}, {2, {0}}, {4, {1}}, {5, {6, 7}}, {6, {0}}, {7, {5}}, {9, {10}}});
  REQUIRE(o.begin(1).ok());
  REQUIRE(o.dirty({1, 5, 600}).ok());
  REQUIRE(o.dirty({5, foreign}).ok());  // named again; the other is none of this agent's
  SECTION("when the owner asks for it, or something refers to it") {
    CHECK(o.trace_all({4, 5, 600}) == std::set<slot_t>{1, 5, 600});
    CHECK(o.marks(0) == std::set<slot_t>{1, 4, 5, 600});
    CHECK(o.trace_all({1, 4, 5}).empty());  // marked long ago
    o.audit();
  }
  SECTION("and is no root") {
    CHECK(o.trace_all({2}).empty());
    CHECK(o.marks(0) == std::set<slot_t>{2});
  }
  SECTION("until the owner sends it back") {
    CHECK(o.trace_all({7}) == std::set<slot_t>{5});
    CHECK(o.trace_all({5 | scan_at_home, 9 | scan_at_home}).empty());
    CHECK(o.marks(0) == std::set<slot_t>{5, 6, 7, 9, 10});
    CHECK(o.trace_all({5 | scan_at_home, 1}) == std::set<slot_t>{1});
    CHECK(o.marks(0) == std::set<slot_t>{1, 5, 6, 7, 9, 10});
    o.audit();
  }
  SECTION("or sends it so at once") {
    CHECK(o.trace_all({1 | scan_at_home}).empty());
    CHECK(o.marks(0) == std::set<slot_t>{1, 2});
  }
  SECTION("but not if it says so when tracing has begun") {
    CHECK(o.trace_all({9}).empty());
    CHECK(o.dirty({7}).code == errc::stale);
    CHECK(o.trace_all({7}) == std::set<slot_t>{5});
    CHECK(o.marks(0) == std::set<slot_t>{5, 7, 9, 10});
  }
  SECTION("for as long as the cycle runs") {
    CHECK(o.trace_all({5}) == std::set<slot_t>{5});
    REQUIRE(o.end(1).ok());
    REQUIRE(o.begin(2).ok());
    CHECK(o.trace_all({1, 5}).empty());
    CHECK(o.marks(0) == std::set<slot_t>{1, 2, 5, 6, 7});
  }
}

TEST_CASE("more that is dirty at the owner than the outbox takes, and than the queue", "[store][trace]") {
  store_options options = small();
  options.trace_references_max = 64;
  options.trace_queue_slots = 64;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s);
  o.open_ready();
  std::vector<slot_t> refs;
  std::set<slot_t> all;
  for (slot_t i = 10; i < 3000; ++i) {
    refs.push_back(i);
    all.insert(i);
  }
  o.write({{1, refs}});
  REQUIRE(o.begin(1).ok());
  REQUIRE(o.dirty(all).ok());
  CHECK(o.trace_all({1}) == all);
  all.insert(1);
  CHECK(o.marks(0) == all);
  o.audit();
}

TEST_CASE("references to tablets of other agents are handed to the owner", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  edges graph{{1, {2, foreign + 1, foreign + 2}}, {2, {foreign + 3}}, {3, {foreign + 4}}};
  for (slot_t i = 10; i < 20; ++i) graph[2].push_back(i), graph[i] = {foreign + 1};  // met again and again
  o.write(graph);
  REQUIRE(o.begin(1).ok());
  CHECK(o.trace({1}).answer.idle == 0);
  settle(*s);
  REQUIRE(o.peer->traced().size() == 1);
  const auto some = o.trace({}, 2);
  REQUIRE(some.remote_references.size() == 2);
  CHECK(some.answer.idle == 0);  // one is left behind
  SECTION("the same number is answered with the same remote references") {
    for (int i = 0; i < 3; ++i) {
      const auto again = o.trace_as(o.number(), {3}, 2);
      REQUIRE(again.raw.ok());
      CHECK(again.remote_references == some.remote_references);
    }
    settle(*s);
    const auto rest = o.trace();
    CHECK(rest.answer.idle == 1);
    std::set<slot_t> all(some.remote_references.begin(), some.remote_references.end());
    all.insert(rest.remote_references.begin(), rest.remote_references.end());
    CHECK(all == std::set<slot_t>{foreign + 1, foreign + 2, foreign + 3, foreign + 4});
    CHECK(some.remote_references.size() + rest.remote_references.size() == 4);  // each of them once
  }
  SECTION("a repeat that may carry fewer leaves the others for later") {
    const auto again = o.trace_as(o.number(), {}, 1);
    REQUIRE(again.raw.ok());
    REQUIRE(again.remote_references.size() == 1);
    CHECK(again.answer.idle == 0);
    std::set<slot_t> all(again.remote_references.begin(), again.remote_references.end());
    const auto rest = o.trace();
    CHECK(rest.remote_references.size() == 2);
    all.insert(rest.remote_references.begin(), rest.remote_references.end());
    CHECK(all == std::set<slot_t>{foreign + 1, foreign + 2, foreign + 3});
  }
  SECTION("an older number is stale, one too far ahead is a violation") {
    o.trace();
    CHECK(o.trace_as(o.number() - 1, {}).raw.code == errc::stale);
    CHECK(o.trace_as(o.number() + 2, {}).raw.returned == errc::bad_frame);
    CHECK(o.trace_as(0, {}).raw.returned == errc::bad_frame);
  }
}

TEST_CASE("tracing waits while nobody takes its remote references", "[store][trace]") {
  store_options options = small();
  options.trace_references_max = 64;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s);
  o.open_ready();
  std::vector<slot_t> wide;
  for (slot_t i = 1; i <= 5000; ++i) wide.push_back(foreign + i);
  wide.push_back(2);
  o.write({{1, wide}, {2, {0}}});
  REQUIRE(o.begin(1).ok());
  o.trace({1});
  settle(*s);
  CHECK_FALSE(o.marked(2));  // behind the references that found no room
  CHECK(o.peer->traced().size() == 1);
  std::set<slot_t> remote_references;
  std::uint64_t rounds = 0;
  for (auto r = o.trace(); r.answer.idle == 0; r = o.trace(), ++rounds) {
    CHECK(r.remote_references.size() <= 64);
    remote_references.insert(r.remote_references.begin(), r.remote_references.end());
    settle(*s);
    REQUIRE(rounds < 1000);
  }
  // The last answer of all is idle and may have carried some.
  remote_references.insert(wide.end() - 1, wide.end() - 1);
  const auto last = o.trace_as(o.number(), {});
  remote_references.insert(last.remote_references.begin(), last.remote_references.end());
  CHECK(remote_references == range_of(foreign + 1, 5000));
  CHECK(rounds >= 5000 / 64);
  CHECK(o.marked(2));
}

TEST_CASE("a full queue loses nothing", "[store][trace]") {
  store_options options = small(64);
  options.trace_queue_slots = 64;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s);
  o.open_ready(0, 3);
  // A wide array whose elements, in another tablet, lead to third objects in yet another, and a long list behind the last.
  edges graph;
  for (slot_t i = 0; i < 6000; ++i) {
    graph[1].push_back(65536 + i);
    graph[65536 + i] = {2 * 65536 + i * 7 % 6000, 0, 65536 + (i + 1) % 6000};
    graph[2 * 65536 + i] = {0};
  }
  graph[2 * 65536 + 5] = {100};
  for (slot_t i = 0; i < 20000; ++i) graph[100 + i] = {i + 1 < 20000 ? 101 + i : 0};
  o.write(graph);
  REQUIRE(o.begin(1).ok());
  std::vector<slot_t> roots{1};
  SECTION("of what objects refer to") {}
  SECTION("of roots") {
    for (slot_t i = 0; i < 6000; ++i) roots.push_back(65536 + i);
  }
  CHECK(o.trace_all(roots).empty());
  std::set<slot_t> all;
  for (std::uint32_t t = 0; t < 3; ++t) all.merge(o.marks(t));
  CHECK(all == reachable(graph, roots));
  CHECK(all.size() == 32001);
}

TEST_CASE("a tablet that was granted after the beginning counts as marked and is not scanned", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready(0, 1);
  o.write({{1, {65536}}, {2, {0}}});
  REQUIRE(o.begin(1).ok());
  REQUIRE(o.grant(1, 1).ok());
  o.write({{65536, {2}}});
  CHECK(o.trace_all({1, 65536}).empty());
  CHECK(o.marks(0) == std::set<slot_t>{1});
  CHECK(o.marks(1).size() == 65536);
  CHECK(o.marks(7).size() == 65536);
  CHECK(o.marks_of({1, 2, 65536, 65537, foreign}) == std::vector<bool>{true, false, true, true, true});
  REQUIRE(o.end(1).ok());
  REQUIRE(o.begin(2).ok());
  CHECK(o.trace_all({1}).empty());
  CHECK(o.marks_of({1, 2, 65536, 65537}) == std::vector<bool>{true, true, true, false});
}

TEST_CASE("released slots lose their entries, and regions without a live one retire", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready(0, 2);
  o.list(1, 3000);
  o.next_region();
  o.list(65536, 3000);
  o.next_region();
  o.list(10000, 2);
  const audit_answer before = o.audit();
  REQUIRE(o.begin(1).ok());
  o.trace_all({65536, 10000});
  CHECK(o.marks(0) == std::set<slot_t>{10000, 10001});
  const std::set<slot_t> dead = range_of(1, 3000);
  std::set<slot_t> named = dead;
  named.insert(20000);  // allocated once, never stored
  const reply r = o.release(named);
  REQUIRE(r.ok());
  CHECK(r.as<release_answer>().entries == 3000);
  CHECK(r.as<release_answer>().bytes == 3000 * 16);
  const audit_answer after = o.audit();
  CHECK(after.objects == before.objects - 3000);
  CHECK(after.live_bytes == before.live_bytes - 3000 * 16);
  CHECK(after.metadata_bytes < before.metadata_bytes + 5'000'000);
  for (const slot_t slot : {1, 700, 3000}) CHECK(o.entry(slot) == 0);
  CHECK(o.entry(10000) != 0);
  CHECK(o.entry(65536) != 0);
  const auto retiring = o.peer->retirements();
  REQUIRE(retiring.size() == 1);
  CHECK(o.agree(retiring[0]).ok());
  const reply again = o.release(named);
  REQUIRE(again.ok());
  CHECK(again.as<release_answer>().entries == 0);
  CHECK(o.release({10000}).code == errc::corrupt);  // reached
  REQUIRE(o.grant(2, 1).ok());
  CHECK(o.release({2 * 65536}).code == errc::corrupt);  // not part of the cycle
  CHECK(o.value(10000) == 10001);
  const reply ended = o.end(1);
  REQUIRE(ended.ok());
  const auto totals = ended.as<end_cycle_answer>();
  CHECK(totals.objects == 3002);
  CHECK(totals.live_bytes == 3002 * 16);
  CHECK(totals.regions == 2);
  CHECK(totals.tracing_ns > 0);
  o.audit();
  CHECK(o.release(named).code == errc::stale);
  o.node(1, {2});  // the slots are used again
  o.node(700, {0});
  o.flush();
  CHECK(o.value(1) == 2);
  o.audit();
}

TEST_CASE("objects that move while they are traced are found all the same", "[store][trace]") {
  auto s = fm::agent::store::create(small(64));
  tracing_owner o(*s);
  o.open_ready();
  constexpr slot_t count = 20000;
  o.list(1, count);
  REQUIRE(o.begin(1).ok());
  o.trace({1});
  for (int i = 0; i < 4; ++i) {
    s->maintain();
    o.list(1 + 5000 * static_cast<slot_t>(i), 5000);  // written again as it was, but for the last of each
    o.node(5000 * static_cast<slot_t>(i + 1), {i < 3 ? 5000 * static_cast<slot_t>(i + 1) + 1 : 0});
    o.flush();
    for (const region_name& r : o.peer->retirements()) REQUIRE(o.agree(r).ok());
  }
  // Between the two batches the list was cut; what was behind the cut is logged by the owner.
  CHECK(o.trace_all({5001, 10001, 15001}).empty());
  CHECK(o.marks(0) == range_of(1, count));
  o.audit();
}

TEST_CASE("cycle numbers only grow", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  o.list(1, 100);
  CHECK(o.begin(0).returned == errc::bad_frame);
  CHECK(o.end(0).returned == errc::bad_frame);
  CHECK(o.end(1).code == errc::stale);
  REQUIRE(o.begin(5).ok());
  REQUIRE(o.dirty({50}).ok());
  REQUIRE(o.begin(5).ok());  // the answer was lost
  CHECK(o.send(message_type::begin_cycle, cycle_name{4}).code == errc::stale);
  CHECK(o.end(4).code == errc::stale);
  CHECK(o.trace_all({1}) == std::set<slot_t>{50});
  CHECK(o.marks(0) == range_of(1, 50));
  CHECK(o.send(message_type::begin_cycle, cycle_name{5}).code == errc::stale);
  const reply first = o.end(5);
  REQUIRE(first.ok());
  const reply again = o.end(5);
  REQUIRE(again.ok());
  CHECK(first.body == again.body);
  CHECK(o.send(message_type::begin_cycle, cycle_name{5}).code == errc::stale);
  CHECK(o.send(message_type::read_marks, read_marks_body{5, 0, 1}).code == errc::stale);
  CHECK(o.send(message_type::trace, trace_body{5, 1, 0, 0, 0}).code == errc::stale);
  CHECK(o.dirty({1}).code == errc::stale);
  REQUIRE(o.begin(6).ok());
  CHECK(o.marks(0).empty());
  o.trace({1});
  REQUIRE(o.begin(7).ok());  // in the middle of the one before
  CHECK(o.marks(0).empty());
  settle(*s);
  CHECK(o.marks(0).empty());
  CHECK(o.end(6).code == errc::stale);
}
