// Collections by the agents: what dies and what lives, by roots, frames, weak handles, pins and containers; and what comes of what died.
#include "fixture.h"
#include "heap/heap_core.h"
#include "support/await.h"
#include "support/error_code.h"

#include <future>
#include <thread>

using namespace gc_test;

TEST_CASE("a collection frees what no root reaches, and keeps the rest") {
  for (const std::size_t agents : {1, 3}) {
    fm::heap h(small(agents));
    const auto kept = make_list(h, 20'000);
    { const auto dropped = make_list(h, 30'000); }
    REQUIRE(h.evict_all() == fm::errc::ok);
    const auto r = collect(h);
    REQUIRE(r.marked == 20'000);
    REQUIRE(r.dead == 30'000);
    REQUIRE(r.freed == 30'000);
    std::uint64_t objects = 0, freed = 0;
    for (const auto& a : r.agents) {
      objects += a.objects;
      freed += a.freed_objects;
    }
    REQUIRE(objects == 20'000);
    REQUIRE(freed == 30'000);
    require_list(kept, 20'000);
    REQUIRE(require_sound_at_home(h).agent_objects == 20'000);
    collect(h, "again");
    REQUIRE(h.stats().last_cycle.dead == 0);
  }
}

TEST_CASE("what only frames know is traced: resident objects, never written back") {
  auto o = small(2);
  o.verify_cycles = true;
  fm::heap h(o);
  const auto kept = make_list(h, 500);
  { const auto dropped = make_list(h, 700); }
  const auto r = collect(h);
  REQUIRE(r.marked == 500);
  REQUIRE(r.dead == 700);
  require_list(kept, 500);
  require_sound(h);
}

TEST_CASE("a frame without references is believed over a home copy that had some") {
  fm::heap h(small());
  const auto holder = h.make<gc_node>({.id = 1, .left = make_list(h, 2'000)});
  REQUIRE(h.evict_all() == fm::errc::ok);
  holder.write()->left = nullptr;  // dirty, and not written back again
  const auto r = collect(h);
  REQUIRE(r.marked == 1);
  REQUIRE(r.freed == 2'000);
}

TEST_CASE("a large heap of which all is dirty, and a long array") {
  fm::heap h({.cache = 32_MiB, .local_memory = 256_MiB, .collect = false});
  const auto array = h.array<fm::ref<gc_node>>(50'000);
  for (std::size_t i = 0; i < 50'000; ++i) {
    const auto node = h.make<gc_node>({.id = i, .left = h.make<gc_node>({.id = i})});
    const auto w = array.write();
    (*w)[i] = node;
  }
  { const auto dropped = make_list(h, 1'000); }
  const auto r = collect(h);
  REQUIRE(r.dirty == 101'001);
  REQUIRE(r.traced_here == 100'001);
  REQUIRE(r.marked == 100'001);
  REQUIRE(r.dead == 1'000);
}

TEST_CASE("a cycle that nobody waits for takes its share of a core, and hurries when somebody comes") {
  fm::heap_options options = small();
  options.collect_share = 0.01;
  options.cache = 16_MiB;
  fm::heap h(options);
  const auto kept = make_list(h, 100'000);
  { const auto dropped = make_list(h, 10'000); }
  const auto cycle_number = [&](std::uint64_t n) {
    while (h.stats().last_cycle.number < n) std::this_thread::yield();
    return h.stats().last_cycle;
  };
  h.collect_soon("alone");
  const auto alone = cycle_number(1);
  require_ok(alone);
  REQUIRE(alone.cause == "alone");
  REQUIRE(alone.freed == 10'000);
  REQUIRE(alone.paced_ns > alone.cpu_ns);  // and not a share of the time, which a busy machine lengthens
  h.collect_soon("with company");
  const auto waited = collect(h, "company");
  REQUIRE(waited.paced_ns == 0);
  REQUIRE(waited.marked == 100'000);
  require_list(kept, 100'000);
  options.collect_share = 0;
  REQUIRE_THROWS_AS(fm::heap(options), fm::error);
}

TEST_CASE("continuous collection goes on without allocation, and without being asked") {
  fm::heap_options options = small();
  options.collect = options.collect_continuously = true;
  fm::heap h(options);
  auto list = make_list(h, 1'000);
  const auto cycle_number = [&](std::uint64_t n) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    while (h.stats().last_cycle.number < n) {
      REQUIRE(std::chrono::steady_clock::now() < give_up);
      std::this_thread::yield();
    }
  };
  cycle_number(2);
  list = list->left;  // drops one object
  REQUIRE(h.evict_all() == fm::errc::ok);
  cycle_number(h.stats().last_cycle.number + 3);
  REQUIRE(h.stats().collected_objects == 1);
  require_list(list, 999);
}

TEST_CASE("cycles of references die together, and shared objects live by one reference") {
  fm::heap h(small());
  const auto shared = h.make<gc_node>({.id = 1});
  fm::ptr<gc_node> keeper = h.make<gc_node>({.id = 2, .left = shared});
  {
    const auto a = h.make<gc_node>({.id = 3, .right = shared}), b = h.make<gc_node>({.id = 4, .left = a});
    a.write()->left = b;
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = collect(h);
  REQUIRE(r.marked == 2);
  REQUIRE(r.freed == 2);
  REQUIRE(keeper->left->id == 1);
}

TEST_CASE("slots of dead objects are used again, and their regions are given back") {
  fm::heap h(small());
  const auto kept = make_list(h, 1'000);
  std::uint64_t tablets = 0;
  for (int round = 0; round < 12; ++round) {
    { const auto dropped = make_list(h, 60'000); }
    collect(h, "round");
    if (round == 2) tablets = h.core().cache().slots().tablets().size();
  }
  REQUIRE(h.core().cache().slots().tablets().size() == tablets);  // 720,000 objects in what three rounds needed
  require_list(kept, 1'000);
  require_sound_at_home(h);
  REQUIRE(h.stats().regions_retired > 10);
}

TEST_CASE("what waits in a batch that is not full yet is freed as well") {
  auto o = small();
  o.background_evictor = false;
  fm::heap h(o);
  {
    fm::ptr<gc_node> dropped;
    auto& evictor = h.core().cache().eviction();
    // Until memory is short, and then only as far as that it is not any more.
    for (std::uint64_t i = 0; h.stats().written_objects == 0 && i < 50'000; ++i) {
      dropped = h.make<gc_node>({.id = i, .left = dropped});
      (void)evictor.help();
    }
  }
  REQUIRE(h.stats().written_objects > h.stats().acknowledged_objects);
  collect(h);
  REQUIRE(h.stats(fm::detail_level::types).types.empty());
}

TEST_CASE("a weak handle becomes null with its object, and locks it while it lives") {
  fm::heap h(small());
  auto a = h.make<gc_node>({.id = 5});
  const fm::weak<gc_node> w(a), copy(w);
  collect(h, "alive");
  REQUIRE(w.lock() == a);
  a = nullptr;
  collect(h, "dead");
  REQUIRE_FALSE(w.lock());
  REQUIRE_FALSE(copy.lock());
  // Its slot serves others now, and the handles do not name them.
  const auto others = make_list(h, 5'000);
  REQUIRE_FALSE(w.lock());
}

TEST_CASE("a notice of a dead object comes once, with its value, and none for the living") {
  fm::heap h(small());
  std::atomic<int> said{0}, of_living{0};
  const auto living = h.make<gc_node>({.id = 1});
  {
    const auto a = h.make<gc_node>({.id = 42});
    h.on_dead(a, [&said, id = a->id] { said += static_cast<int>(id); });
    h.on_dead(living, [&of_living] { ++of_living; });
    collect(h, "alive");
    REQUIRE(said == 0);
  }
  collect(h, "dead");
  collect(h, "once more");
  REQUIRE(said == 42);
  h.close();
  REQUIRE(of_living == 0);
  fm::heap other(small());
  REQUIRE_THROWS_AS(other.on_dead(fm::ptr<gc_node>(), [] {}), fm::error);
}

TEST_CASE("a notice that takes its time, and allocates and collects meanwhile, holds up no collection") {
  fm::heap h(small());
  std::atomic<bool> began{false}, released{false};
  std::uint64_t nodes = 0;
  h.on_dead(h.make<gc_node>({.id = 1}), [&] {
    began = true;
    const auto list = make_list(h, 1'000);
    (void)h.collect("by a notice, which waits for nothing");
    for (const gc_node& e : fm::walk(list, &gc_node::left)) nodes += e.id < 1'000;
    (void)fm::test::await([&] { return released.load(); });
  });
  h.collect_soon("finds the object dead");
  REQUIRE(fm::test::await([&] { return began.load(); }));
  const std::uint64_t before = h.stats().collections;
  h.collect_soon("beside the notice");
  CHECK(fm::test::await([&] { return h.stats().collections > before; }));
  REQUIRE_FALSE(released.exchange(true));
  collect(h, "waits for the notice");
  CHECK(nodes == 1'000);
  REQUIRE(h.verify().ok());
}

TEST_CASE("what is not to run beside notices waits for them, and a notice cannot ask for it") {
  fm::heap h(small());
  std::atomic<bool> began{false}, released{false};
  fm::errc refused = fm::errc::ok;
  h.on_dead(h.make<gc_node>({.id = 1}), [&] {
    began = true;
    refused = fm::test::code_of([&] { (void)h.verify(); });
    (void)fm::test::await([&] { return released.load(); });
  });
  h.collect_soon("finds the object dead");
  REQUIRE(fm::test::await([&] { return began.load(); }));
  auto verified = std::async(std::launch::async, [&] {
    const bool ok = h.verify().ok();
    return ok && released.load();
  });
  const std::uint64_t before = h.stats().collections;
  h.collect_soon("so that a verification that does not wait has its turn");
  CHECK(fm::test::await([&] { return h.stats().collections > before; }));
  released = true;
  REQUIRE(verified.get());
  REQUIRE(refused == fm::errc::scope_misuse);
}

TEST_CASE("a pin keeps its object and what it refers to") {
  fm::heap h(small());
  const fm::weak<gc_node> inner = [&] { return fm::weak<gc_node>(h.make<gc_node>({.id = 7})); }();
  auto pin = h.make<gc_node>({.id = 8, .left = h.make<gc_node>({.id = 9})}).read();
  collect(h, "pinned");
  REQUIRE_FALSE(inner.lock());
  REQUIRE(pin->left->id == 9);
  const fm::weak<gc_node> outer(pin->left.root());
  { const auto gone = std::move(pin); }
  collect(h, "given back");
  REQUIRE_FALSE(outer.lock());
}

TEST_CASE(
    "what a thread is about to read lives while the thread waits for memory, though nothing refers to it any more") {
  fm::heap_options options = small();
  options.elastic = false;
  fm::heap h(options);
  const auto holder =
      h.make<gc_node>({.id = 1, .left = h.make<gc_node>({.id = 2, .left = h.make<gc_node>({.id = 3})})});
  std::vector<fm::ptr<char[]>> arrays;
  for (int i = 0; i < 40; ++i) arrays.push_back(h.array<char>(28'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  auto pin = holder.write();
  std::promise<void> filled;
  std::uint64_t ids[2] = {};
  auto reader = std::async(std::launch::async, [&] {
    filled.get_future().wait();
    const fm::scope s;
    const gc_node* two = pin->left.get(s);  // waits, outside of the scope: it has given out nothing
    ids[0] = two->id;
    ids[1] = two->left->id;
  });
  fm::detail::arena& memory = h.core().cache().memory();
  std::vector<fm::read_pin<char[]>> pins;
  for (std::size_t i = 0; memory.available() > memory.gate_level(); ++i) pins.push_back(arrays.at(i).read());
  h.core().cache().leases().take_back_all();  // so that no segment is open, and the reader needs a new one
  const std::uint64_t stalls = h.stats().stalls_for_memory;
  filled.set_value();
  while (h.stats().stalls_for_memory == stalls) std::this_thread::yield();
  pin->left = nullptr;
  const auto r = h.collect("while it waits");
  pins.clear();
  reader.get();
  require_ok(r);
  REQUIRE(r.dead == 0);
  REQUIRE(ids[0] == 2);
  REQUIRE(ids[1] == 3);
  { const auto given_back = std::move(pin); }
  const auto after = collect(h, "after it");
  REQUIRE(after.dead == 2);
}

TEST_CASE("containers survive with what they hold, and what they dropped dies") {
  auto o = small();
  o.verify_cycles = true;
  fm::heap h(o);
  fm::vector<fm::ref<gc_node>> v(h);
  for (std::uint64_t i = 0; i < 3'000; ++i) v.push_back(h.make<gc_node>({.id = i}));
  fm::hash_map<std::uint64_t, fm::ref<gc_node>> m(h);
  for (std::uint64_t i = 0; i < 3'000; ++i) m.insert_or_assign(i, v[i]);
  for (std::uint64_t i = 0; i < 3'000; i += 2) m.erase(i);
  v.clear();
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = collect(h);
  REQUIRE(r.dead >= 1'500);
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    const auto found = m.find(i);
    REQUIRE(bool(found) == (i % 2 == 1));
    if (found) REQUIRE((*found)->id == i);
  }
  require_sound_at_home(h);
}

TEST_CASE("collections start by themselves, and a service that makes garbage does not grow") {
  auto o = small();
  o.collect = true;
  o.local_memory = 16_MiB;
  fm::heap h(o);
  const auto kept = make_list(h, 1'000);
  for (std::uint64_t i = 0; i < 1'200'000; ++i) (void)h.make<gc_node>({.id = i});  // six times the agent's memory
  require_list(kept, 1'000);
  const auto s = h.stats();
  INFO(s.text());
  REQUIRE(s.collections + s.young_collections > 3);
  REQUIRE(s.collections_failed == 0);
}

// Inside, the thread could wait for memory only: a collection's pauses wait for its scope.
TEST_CASE("a scope that is to begin while the agents are full waits for a collection before it begins") {
  auto o = small();
  o.collect = true;
  o.local_memory = 8_MiB;
  o.local_region = 256_KiB;
  o.elastic = false;
  o.memory_within = std::chrono::seconds(8);
  fm::heap h(o);
  std::vector<fm::ptr<char[]>> kept, garbage;
  for (int i = 0; i < 700; ++i) kept.push_back(h.array<char>(3'000));
  fm::errc full = fm::errc::ok;
  while (full != fm::errc::agent_full) try {
      garbage.push_back(h.array<char>(3'000));
    } catch (const fm::error& e) {
      full = e.code();
    }
  REQUIRE(collect(h, "all of it lives").freed == 0);
  const std::uint64_t before = h.stats().collections;
  garbage.clear();
  // Nothing is allocated from here on, so nothing but the want of memory asks for a collection. What is near comes first, so that
  // the scope has given something out when more is wanted.
  const auto near = kept.front().read();
  for (std::size_t i = 0; i < kept.size(); i += 4) {
    const fm::scope s;
    CHECK(kept.front().get(s)->size() == 3'000);
    for (std::size_t k = i; k < i + 4; ++k) (*kept[k].get_for_write(s))[0] = 'x';
  }
  std::size_t written = 0;
  for (const auto& p : kept) {
    const fm::scope s;
    written += (*p.get(s))[0] == 'x';
  }
  CHECK(written == kept.size());
  // One more, because a collection is counted when its evacuation has ended, and the next one begins after that.
  (void)collect(h, "after it");
  CHECK(h.stats().collections > before + 1);
}

// An attempt at a pause holds all other threads back, and fails while a scope is open. The next one is for when that scope
// has ended.
TEST_CASE("a collection that meets an open scope tries one pause, and the gate stays open until the scope has ended") {
  auto o = small();
  o.cache = 64_MiB;  // without eviction, which has pauses of its own
  fm::heap h(o);
  const auto kept = make_list(h, 100);
  const auto tried = [&] { return h.stats().recent_pauses.size(); };
  std::promise<void> opens, ends;
  auto holder = std::async(std::launch::async, [&] {
    const fm::scope s;
    opens.set_value();
    ends.get_future().wait();
    return kept.get(s)->id;
  });
  opens.get_future().wait();
  const std::size_t before = tried();
  auto collection = std::async(std::launch::async, [&] { return h.collect("test"); });
  const bool met = fm::test::await([&] { return tried() != before; });
  std::array<std::future<std::uint64_t>, 2> others;
  for (auto& other : others)
    other = std::async(std::launch::async, [&] {
      std::uint64_t read = 0;
      for (int round = 0; round < 100; ++round)
        for (const gc_node& e : fm::walk(make_list(h, 1'000), &gc_node::left)) read += e.id < 1'000;
      return read;
    });
  for (auto& other : others) CHECK(other.get() == 100'000);
  const std::size_t tries = tried() - before;
  ends.set_value();
  CHECK(holder.get() == 99);
  const auto r = collection.get();
  require_ok(r);
  CHECK(met);
  CHECK(tries == 1);
  CHECK(r.pauses_abandoned >= 1);
  require_list(kept, 100);
}

TEST_CASE("a heap that is closed lets a thread go that waits at its gate") {
  fm::heap_options options = small();
  options.elastic = false;
  options.memory_within = std::chrono::minutes(10);  // a waiter that is not let go ends long after the guard below
  for (int round = 0; round < 10; ++round) {
    fm::heap h(options);
    std::vector<fm::ptr<char[]>> arrays;
    for (int i = 0; i < 40; ++i) arrays.push_back(h.array<char>(28'000));
    REQUIRE(h.evict_all() == fm::errc::ok);
    std::promise<void> knows, is_full;
    auto waiter = std::async(std::launch::async, [&] {
      (void)arrays.front()->size();  // it waits for the heaps that it has used
      knows.set_value();
      is_full.get_future().wait();
      const fm::scope s;
    });
    knows.get_future().wait();
    const fm::detail::arena& memory = h.core().cache().memory();
    std::vector<fm::read_pin<char[]>> pins;
    {
      const fm::scope s;
      (void)arrays.front().get(s);  // who holds something takes what is kept back
      for (std::size_t i = 0; memory.available() >= memory.gate_level(); ++i) pins.push_back(arrays.at(i).read());
    }
    const std::uint64_t stalls = h.stats().stalls_for_memory;
    is_full.set_value();
    while (h.stats().stalls_for_memory == stalls) std::this_thread::yield();
    const auto begin = fm::clock::now();
    h.close();
    CHECK(h.core().cache().pressure().waiters.load() == 0);
    waiter.get();
    CHECK(fm::clock::now() - begin < options.memory_within / 2);
  }
}
