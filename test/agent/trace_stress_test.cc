// Tracing with everything else going on: threads, cleaning, batches, closing, damage, and messages that no owner sends.
#include <atomic>
#include <random>
#include <thread>

#include "trace_fixture.h"

using namespace store_test;

namespace {

constexpr slot_t foreign = slot_t{1000} * 65536;

/// A graph over the slots of three tablets, with references to young objects and to tablets of nobody here.
edges random_graph(std::uint64_t seed, std::uint64_t objects) {
  std::mt19937_64 random(seed);
  const auto some_slot = [&]() -> slot_t {
    const std::uint64_t i = 1 + random() % (objects + objects / 8);
    return i % 3 * 65536 + 1 + i / 3;
  };
  edges graph;
  for (std::uint64_t i = 1; i <= objects; ++i) {
    std::vector<slot_t>& refs = graph[i % 3 * 65536 + 1 + i / 3];
    const std::uint64_t shape = random() % 200;
    refs.resize(shape == 0 ? 300 : shape < 100 ? 1 : shape % 4);
    for (slot_t& to : refs) {
      const std::uint64_t kind = random() % 32;
      to = kind == 0 ? foreign + random() % 500 : kind == 1 ? 0 : some_slot();
    }
  }
  return graph;
}

/// `dirty`: slots that the owner traces, which has them as in the graph; those with false are scanned at home after all.
void check_against_the_book(tracing_owner& o, const edges& graph, const std::vector<slot_t>& roots,
                            const std::map<slot_t, bool>& dirty = {}) {
  std::set<slot_t> found, returned;
  for (std::vector<std::uint64_t> to_send = roots; !to_send.empty();) {
    const std::set<slot_t> remote_references = o.trace_all(to_send);
    to_send.clear();
    found.insert(remote_references.begin(), remote_references.end());
    for (const slot_t slot : remote_references) {
      const auto at = dirty.find(slot);
      if (at == dirty.end() || !returned.insert(slot).second) continue;
      if (!at->second) {
        to_send.push_back(slot | scan_at_home);
        continue;
      }
      for (const slot_t to : graph.at(slot)) {
        if (to == 0) continue;
        found.insert(to);
        to_send.push_back(to);
      }
    }
  }
  for (std::uint32_t t = 0; t < 3; ++t) found.merge(o.marks(t));
  const std::set<slot_t> expected = reachable(graph, roots);
  CHECK(found.size() == expected.size());
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("random graphs are marked as the book says", "[store][trace]") {
  const auto seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{7}));
  CAPTURE(seed);
  store_options options = small(64);
  options.hooks.background = seed % 2 == 0;
  options.trace_threads = seed % 4 == 0 ? 3 : 1;
  options.trace_queue_slots = seed % 3 == 0 ? 64 : 1u << 20;
  options.trace_references_max = seed % 3 == 1 ? 64 : 1u << 18;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s);
  o.open_ready(0, 3);
  edges graph = random_graph(seed, 12000);
  o.write(graph);
  std::mt19937_64 random(seed);
  std::vector<slot_t> roots;
  for (std::uint64_t cycle = 1; cycle <= 3; ++cycle) {
    roots.assign({1 + random() % 4000, 65536 + 1 + random() % 4000});
    REQUIRE(o.begin(cycle).ok());
    edges seen = graph;  // as the owner's frames have it
    std::map<slot_t, bool> dirty;
    std::set<slot_t> named;
    for (auto& [slot, refs] : seen) {
      if (random() % 50 != 0) continue;
      const bool here = random() % 4 != 0;
      dirty[slot] = here;
      named.insert(slot);
      if (here) refs = {1 + random() % 4000, foreign + 1000 + random() % 100};
    }
    REQUIRE(o.dirty(named).ok());
    check_against_the_book(o, seen, roots, dirty);
    if (cycle < 3) REQUIRE(o.end(cycle).ok());
  }
  std::set<slot_t> dead;
  for (const auto& [slot, refs] : graph) dead.insert(slot);
  for (std::uint32_t t = 0; t < 3; ++t)
    for (const slot_t live : o.marks(t)) dead.erase(live);
  const reply released = o.release(dead);
  REQUIRE(released.ok());
  CHECK(released.as<release_answer>().entries == dead.size());
  CHECK(o.audit().objects == graph.size() - dead.size());
  CHECK(o.end(3).as<end_cycle_answer>().objects == graph.size() - dead.size());
}

TEST_CASE("tracing goes on while batches come, objects are moved by the cleaner, and regions are reused",
          "[store][trace]") {
  store_options options = small(10);
  options.hooks.background = true;
  options.trace_threads = 2;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s);
  o.open_ready(0, 3);
  const edges graph = random_graph(99, 9000);
  const std::set<slot_t> expected = reachable(graph, {2, 65537});
  const time_point give_up = clock::now() + std::chrono::minutes(10);
  // Writes objects again as they are, in an order that leaves sparse regions behind, and takes what memory there is.
  std::mt19937_64 random(5);
  std::vector<slot_t> slots;
  for (const auto& [slot, refs] : graph) slots.push_back(slot);
  region_answer to{};
  std::uint64_t at = 64_KiB;
  const auto write_batch = [&](std::span<const slot_t> some) {
    batch_builder b;
    for (const slot_t slot : some) {
      const std::vector<slot_t>& refs = graph.at(slot);
      if (refs.size() == 1) {
        b.object(type_word, slot, 1, refs[0]);
        continue;
      }
      b.begin(type_refs, slot);
      const std::uint64_t length = refs.size();
      b.put(&length, 8);
      b.put(refs.data(), refs.size() * 8);
    }
    while (at + b.bytes.size() > 64_KiB) {
      if (to.generation != 0) REQUIRE(o.seal(to).ok());
      to.generation = 0;
      for (const region_name& r : o.peer->retirements()) REQUIRE(o.agree(r).ok());
      REQUIRE(clock::now() < give_up);
      const reply next = o.send(message_type::open_region);
      if (!next.ok()) {
        std::this_thread::yield();
        continue;
      }
      to = next.as<region_answer>();
      at = 0;
    }
    REQUIRE(o.append(b, to, at).ok());
    at += b.bytes.size();
  };
  for (std::size_t i = 0; i < slots.size(); i += 50)
    write_batch(std::span(slots).subspan(i, std::min<std::size_t>(50, slots.size() - i)));
  for (std::uint64_t cycle = 1; cycle <= 12; ++cycle) {
    REQUIRE(o.begin(cycle).ok());
    auto r = o.trace({2, 65537});
    std::set<slot_t> found(r.remote_references.begin(), r.remote_references.end());
    while (r.answer.idle == 0) {
      REQUIRE(clock::now() < give_up);
      std::vector<slot_t> some(40);
      for (slot_t& slot : some) slot = slots[random() % slots.size()];
      std::sort(some.begin(), some.end());
      some.erase(std::unique(some.begin(), some.end()), some.end());
      write_batch(some);
      r = o.trace();
      found.insert(r.remote_references.begin(), r.remote_references.end());
    }
    for (std::uint32_t t = 0; t < 3; ++t) found.merge(o.marks(t));
    CHECK(found == expected);
    REQUIRE(o.end(cycle).ok());
    for (int i = 0; i < 20; ++i) {
      std::vector<slot_t> some(slots.begin() + i * 300, slots.begin() + i * 300 + 60);
      write_batch(some);
    }
  }
  INFO(s->statistics());
  CHECK(s->statistics().find("\"regions_retired\":0,") == std::string::npos);
  CHECK(s->statistics().find("\"trace_faults\":0,") != std::string::npos);
  o.audit();
}

TEST_CASE("two heaps are traced at the same time and know nothing of each other", "[store][trace]") {
  store_options options = small(64);
  options.hooks.background = true;
  auto s = fm::agent::store::create(options);
  tracing_owner a(*s, 1), b(*s, 2);
  a.open_ready(0, 3);
  b.open_ready(0, 3);
  const edges of_a = random_graph(21, 6000), of_b = random_graph(22, 6000);
  a.write(of_a);
  b.write(of_b);
  REQUIRE(a.begin(1).ok());
  REQUIRE(b.begin(9).ok());
  a.trace({7});
  check_against_the_book(b, of_b, {5, 65540});
  check_against_the_book(a, of_a, {7, 9});
}

TEST_CASE("a heap that goes away while it is traced is simply gone", "[store][trace]") {
  manual_clock time;
  store_options options = small(64);
  const bool threads = GENERATE(false, true);
  options.hooks.background = threads;
  options.hooks.now = manual_clock::read;
  options.hooks.context = &time;
  options.lease_default_ms = 1000;
  auto s = fm::agent::store::create(options);
  tracing_owner other(*s, 2);
  other.open_ready();
  {
    tracing_owner o(*s, 1);
    o.open_ready(0, 4);
    o.write(random_graph(3, 12000));
    o.list(3 * 65536, 20000);  // more than one step
    REQUIRE(o.begin(1).ok());
    o.trace({1, 2, 3, 65538, 3 * 65536});
    if (!threads) REQUIRE(s->maintain());
    SECTION("closed by its owner") {
      REQUIRE(o.send(message_type::close_heap).ok());
      CHECK(o.trace_as(2, {}).raw.code == errc::not_found);
    }
    SECTION("its lease runs out") {
      o.disconnect();
      time.advance(std::chrono::seconds(2));
      for (int i = 0; i < 10; ++i) s->maintain();
    }
    SECTION("with the store") {}
  }
  time.advance(std::chrono::seconds(2));
  const time_point give_up = clock::now() + std::chrono::minutes(10);
  while (s->statistics().find("\"regions_in_use\":0,") == std::string::npos) {
    REQUIRE(clock::now() < give_up);
    s->maintain();
  }
  REQUIRE(other.begin(1).ok());
  other.trace_all({5});
  CHECK(other.marks(0) == std::set<slot_t>{5});
}

TEST_CASE("an owner that comes back goes on with its cycle", "[store][trace]") {
  auto s = fm::agent::store::create(small(32));
  tracing_owner o(*s);
  o.open_ready();
  o.list(1, 20000);
  o.write({{30000, {foreign}}});
  REQUIRE(o.begin(1).ok());
  o.trace({1, 30000});
  s->maintain();
  o.disconnect();
  settle(*s);  // it has nobody to tell
  o.connect();
  REQUIRE(o.open(0, true).ok());
  const auto repeated = o.trace_as(o.number(), {1, 30000});
  REQUIRE(repeated.raw.ok());
  CHECK(repeated.remote_references.empty());
  CHECK(repeated.answer.idle == 0);
  CHECK(o.trace_all({}) == std::set<slot_t>{foreign});
  CHECK(o.trace().answer.marked == 20001);
}

TEST_CASE("home copies that their owner has damaged are no harm to anybody else", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  batch_builder b;
  b.object(type_word, 1, 1, 2).object(type_word, 2, 1, 3).object(type_word, 3, 1, 4);
  b.begin(type_refs, 5);
  const std::uint64_t words[] = {3, 1, 0, 6};
  b.put(words, sizeof words);
  b.object(type_word, 6, 1, 0);
  const region_answer r = o.open_region();
  REQUIRE(o.append(b, r, 0).ok());
  std::byte* const p = s->memory(*o.peer, {r.region, r.generation, 0}, 64_KiB, fabric::access::read);
  REQUIRE(p != nullptr);
  const auto damage = [&](slot_t slot, std::size_t word, std::uint64_t value) {
    std::memcpy(p + b.offsets[slot] + word * 8, &value, 8);
  };
  std::set<slot_t> found{1, 2, 3, 4, 5, 6};
  SECTION("a reference that names no slot") {
    damage(1, 1, detail::slot_limit);
    found = {1, 5, 6};
  }
  SECTION("another object's header") {
    damage(2, 0, detail::header::pack(type_word, 3));
    found = {1, 2, 5, 6};
  }
  SECTION("a type that nobody knows") {
    damage(2, 0, detail::header::pack(77, 2));
    found = {1, 2, 5, 6};
  }
  SECTION("a length beyond the object") {
    damage(5, 1, std::uint64_t{1} << 40);
    found = {5};
  }
  SECTION("a length that is just too long for its size class") {
    damage(5, 1, 4);
    found = {5};
  }
  s->memory_done(*o.peer, r.region);
  REQUIRE(o.begin(1).ok());
  o.trace_all(found == std::set<slot_t>{5} ? std::vector<slot_t>{5} : std::vector<slot_t>{5, 1});
  CHECK(o.marks(0) == found);
  const bool damaged = found.size() != 6;
  CHECK((s->statistics().find("\"trace_faults\":0,") == std::string::npos) == damaged);
}

TEST_CASE("messages of a cycle that no owner sends end the connection", "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  o.list(1, 10);
  REQUIRE(o.begin(1).ok());
  const auto bad = [&](message_type type, auto... words) {
    std::vector<std::byte> m;
    (tracing_owner::add(m, words), ...);
    return o.send(type, m.data(), m.size()).returned == errc::bad_frame;
  };
  constexpr std::uint64_t one = 1, limit = detail::slot_limit;
  const dirty_body one_page{1, 1, 0};
  CHECK(bad(message_type::add_dirty, one_page));
  CHECK(bad(message_type::add_dirty, dirty_body{1, 0xffffffff, 0}, slot_bits{}));
  CHECK(bad(message_type::add_dirty, dirty_body{1, 1, 1}, slot_bits{}));
  CHECK(bad(message_type::add_dirty, one_page, slot_bits{1, {}}));
  CHECK(bad(message_type::add_dirty, one_page, slot_bits{limit, {}}));
  CHECK(bad(message_type::add_dirty, one_page, slot_bits{0, {2}}, slot_bits{}));
  CHECK(bad(message_type::add_dirty, dirty_body{1, 2, 0}, slot_bits{0, {2}}, slot_bits{511, {2}}));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 0}));
  CHECK(bad(message_type::trace, trace_body{1, 1, 0xffffffff, 0, 0}, one));
  CHECK(bad(message_type::trace, trace_body{1, 1, 0, 0, 0}, one));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 1}, one));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 0}, std::uint64_t{0}));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 0}, limit));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 0}, scan_at_home));
  CHECK(bad(message_type::trace, trace_body{1, 1, 1, 0, 0}, one | scan_at_home >> 1));
  CHECK(bad(message_type::trace, trace_body{1, 1, 2, 0, 0}, one, limit));
  CHECK(bad(message_type::trace, trace_body{1, 0, 1, 0, 0}, one));
  CHECK(bad(message_type::trace, trace_body{1, 2, 1, 0, 0}, one));
  CHECK(bad(message_type::read_marks, read_marks_body{1, 0, 0}));
  CHECK(bad(message_type::read_marks, read_marks_body{1, 0, marks_tablets_max + 1}));
  CHECK(bad(message_type::read_marks, read_marks_body{1, (1u << 24) - 1, 2}));
  CHECK(bad(message_type::read_marks, read_marks_body{1, 0xffffffff, 1}));
  CHECK(bad(message_type::release_slots, release_body{1, 1, 0}));
  CHECK(bad(message_type::release_slots, release_body{1, 0xffffffff, 0}, slot_bits{}));
  CHECK(bad(message_type::release_slots, release_body{1, 1, 1}, slot_bits{}));
  CHECK(bad(message_type::release_slots, release_body{1, 1, 0}, slot_bits{1, {}}));
  CHECK(bad(message_type::release_slots, release_body{1, 1, 0}, slot_bits{limit, {}}));
  CHECK(bad(message_type::release_slots, release_body{1, 1, 0}, slot_bits{65536, {}}));  // not granted
  CHECK(bad(message_type::release_slots, release_body{1, 2, 0}, slot_bits{0, {2}}, slot_bits{65536, {}}));
  settle(*s);
  CHECK(o.marks(0).empty());  // nothing of all that was applied
  CHECK(o.entry(1) != 0);
  CHECK(o.send(message_type::release_slots, release_body{2, 0, 0}).code == errc::stale);
  CHECK(o.send(message_type::release_slots, release_body{1, 0, 0}).ok());
  o.audit();
}
