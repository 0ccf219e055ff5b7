// Collections of young objects: what they free without an agent, what they must keep because something at home, or on its way there, refers
// to it, and that they start by themselves.
#include "heap/heap_core.h"
#include <random>
#include <set>
#include <thread>

#include "fixture.h"
#include "support/await.h"

using namespace gc_test;

namespace {

/// A cache that holds everything that the tests below make.
fm::heap_options roomy(std::size_t agents = 1) {
  auto o = small(agents);
  o.cache = 32_MiB;
  o.segment = 256_KiB;
  o.verify_cycles = true;
  return o;
}

fm::cycle_report collect_young(fm::heap& h, std::string_view cause = "test") {
  const auto r = h.collect_young(cause);
  require_ok(r);
  REQUIRE(r.of == fm::generation::young);
  return r;
}

}  // namespace

TEST_CASE("young garbage dies without an agent, and its slots are used again") {
  for (const std::size_t agents : {1, 3}) {
    auto o = roomy(agents);
    o.cache = 128_MiB;  // without eviction
    fm::heap h(o);
    const auto kept = make_list(h, 5'000);
    std::uint64_t tablets = 0;
    for (int round = 0; round < 40; ++round) {  // of three times the slots that are granted at a time
      {
        const auto dropped = make_list(h, 20'000);
        dropped.write()->right = dropped;  // a cycle, too
      }
      const auto r = collect_young(h, "round");
      REQUIRE(r.marked == 5'000);
      REQUIRE(r.dead == 20'000);
      REQUIRE(r.freed == 20'000);
      REQUIRE(r.freed_bytes == 20'000 * (8 + sizeof(gc_node)));
      REQUIRE(r.agents.empty());
      if (round == 2) tablets = h.core().cache().slots().tablets().size();
    }
    REQUIRE(h.core().cache().slots().tablets().size() == tablets);
    const auto s = h.stats();
    REQUIRE(s.written_objects == 0);
    REQUIRE(s.collections == 0);
    REQUIRE(s.young_collections == 40);
    REQUIRE(s.young_collected_objects == 800'000);
    REQUIRE(s.last_young.cause == "round");
    require_list(kept, 5'000);
    REQUIRE(require_sound_at_home(h).agent_objects == 5'000);
  }
}

TEST_CASE("what is at home, or was, is not for a collection of young objects, dead or alive") {
  fm::heap h(roomy());
  const auto kept = make_list(h, 1'000);
  {
    const auto dropped = make_list(h, 2'000);
    REQUIRE(h.evict_all() == fm::errc::ok);
    REQUIRE(dropped->id == 1'999);  // near again
    dropped.write()->id = 5;        // and dirty
  }
  const auto r = collect_young(h);
  REQUIRE(r.dirty == 0);
  REQUIRE(r.freed == 0);
  REQUIRE(collect(h).freed == 2'000);
  require_list(kept, 1'000);
}

TEST_CASE("a dirty old object keeps what it refers to") {
  fm::heap h(roomy(2));
  const auto old = h.make<gc_node>({.id = 1});
  const auto far = h.make<gc_node>({.id = 2});
  REQUIRE(h.evict_all() == fm::errc::ok);
  {
    const auto w = old.write();
    w->left = make_list(h, 3'000);
    w->right = h.make<gc_node>({.id = 3, .left = far});
  }
  { const auto dropped = make_list(h, 1'000); }
  const auto r = collect_young(h);
  REQUIRE(r.marked == 3'001);
  REQUIRE(r.freed == 1'000);
  require_list(old->left, 3'000);
  REQUIRE(old->right->left->id == 2);
  // Overwritten, they are young garbage.
  old.write()->left = nullptr;
  REQUIRE(collect_young(h, "again").freed == 3'000);
  require_sound_at_home(h);
  REQUIRE(old->right->id == 3);
}

TEST_CASE("what a home copy refers to is not young any more, and lives until a cycle says otherwise") {
  auto o = roomy();
  o.background_evictor = false;
  fm::heap h(o);
  auto holder = h.make<gc_node>({.id = 1});
  {
    // Pinned, so that it stays here while what refers to it goes home; the rest of its list goes, too.
    const auto child = h.make<gc_node>({.id = 2, .left = make_list(h, 100)});
    const auto pin = child.read();
    holder.write()->left = child;
    const auto give_up = fm::clock::now() + std::chrono::minutes(10);
    while (h.stats().acknowledged_objects != 101 && fm::clock::now() < give_up)
      REQUIRE(h.evict_all(std::chrono::milliseconds(200)) == fm::errc::timed_out);
  }
  REQUIRE(h.stats().acknowledged_objects == 101);
  const auto r = collect_young(h);
  REQUIRE(r.dirty == 0);
  REQUIRE(r.freed == 0);
  REQUIRE(holder->left->id == 2);
  require_list(holder->left->left, 100);
  require_sound(h);
  holder = nullptr;
  REQUIRE(collect_young(h, "still").freed == 0);
  REQUIRE(collect(h).freed == 102);
}

TEST_CASE("weak handles and notices follow young objects into death") {
  fm::heap h(roomy());
  std::atomic<int> said{0};
  auto young = h.make<gc_node>({.id = 5});
  const auto old = h.make<gc_node>({.id = 6});
  const fm::weak<gc_node> w(young), of_old(old);
  h.on_dead(young, [&] { ++said; });
  collect_young(h, "alive");
  REQUIRE(w.lock() == young);
  young = nullptr;
  REQUIRE(h.core().cache().here().counters.misses.get() == 0);
  const auto r = collect_young(h, "dead");
  REQUIRE(r.weak_cleared == 1);  // the notice names the same object
  REQUIRE_FALSE(w.lock());
  collect_young(h, "once more");
  REQUIRE(said == 1);
  REQUIRE(of_old.lock() == old);
}

TEST_CASE("a weak handle of an old object is not for a collection of young ones") {
  fm::heap h(roomy());
  fm::weak<gc_node> w;
  {
    const auto old = h.make<gc_node>({.id = 6});
    w = fm::weak<gc_node>(old);
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
  const auto others = make_list(h, 100);
  REQUIRE(collect_young(h).weak_cleared == 0);
  REQUIRE(w.lock()->id == 6);
  REQUIRE(collect(h).weak_cleared == 1);
  REQUIRE_FALSE(w.lock());
}

TEST_CASE("pins keep young objects and what they refer to") {
  fm::heap h(roomy());
  auto pin = h.make<gc_node>({.id = 8, .left = make_list(h, 10)}).read();
  REQUIRE(collect_young(h, "pinned").marked == 11);
  require_list(pin->left, 10);
  { const auto gone = std::move(pin); }
  REQUIRE(collect_young(h, "given back").freed == 11);
}

TEST_CASE("young objects whose words are aside live and die like others") {
  auto o = roomy();
  o.cache = 4_MiB;
  o.hit = 8 * 4096;
  o.hit_residents = 512;
  fm::heap h(o);
  const auto kept = make_list(h, 2'000);
  std::vector<fm::ptr<gc_node>> dropped;
  for (std::uint64_t i = 0; i < 20'000; ++i) dropped.push_back(h.make<gc_node>({.id = i}));
  const auto deadline = fm::clock::now() + std::chrono::minutes(10);
  while (h.stats().hit_words_aside == 0 && fm::clock::now() < deadline) h.core().cache().eviction().help();
  REQUIRE(h.stats().hit_words_aside > 0);
  dropped.clear();
  const auto r = collect_young(h);
  REQUIRE(r.freed >= 20'000 - std::min<std::uint64_t>(20'000, h.stats().written_objects));
  require_list(kept, 2'000);
  REQUIRE(require_sound_at_home(h).ok());
  collect(h);
  REQUIRE(h.stats().last_cycle.marked == 2'000);
}

TEST_CASE("young objects of a tablet whose pages are all given back keep what they refer to") {
  auto o = roomy();
  o.hit = 4096;  // less than what is open anyway, because slots of it are being allocated
  o.hit_residents = 512;
  fm::heap h(o);
  const auto holder = h.make<gc_node>({.id = 1});
  const std::uint32_t tablet = fm::detail::tablet_of(holder.slot());
  std::vector<fm::ptr<gc_node>> others;
  fm::ptr<gc_node> far;
  do {
    others.push_back(h.make<gc_node>());
    far = others.back();
  } while (fm::detail::tablet_of(far.slot()) == tablet);
  holder.write()->left = h.make<gc_node>({.id = 2, .left = make_list(h, 10)});
  const auto all_aside = [&] {
    using namespace fm::detail;
    for (std::uint64_t page = tablet * pages_per_tablet; page < (tablet + 1) * pages_per_tablet; ++page)
      if (hit.pages[page].state.load() != page_given_back) return false;
    return true;
  };
  const auto deadline = fm::clock::now() + std::chrono::minutes(10);
  while (!all_aside() && fm::clock::now() < deadline) {
    h.core().cache().eviction().wake();
    std::this_thread::yield();
  }
  REQUIRE(all_aside());
  REQUIRE(h.stats().written_objects == 0);
  for (int i = 0; i < 3; ++i) {
    const auto r = collect_young(h);
    REQUIRE(r.freed == 0);
    REQUIRE(all_aside());
  }
  REQUIRE(holder->left->id == 2);
  require_list(holder->left->left, 10);
  require_sound_at_home(h);
}

TEST_CASE("a long array of references goes home in pieces, and all that it refers to is old then") {
  auto o = small();
  o.cache = 16_MiB;
  o.verify_cycles = true;
  o.local_region = 16_MiB;
  fm::heap h(o);
  auto array = h.array<fm::ref<gc_node>>(100'000);
  for (std::size_t i = 0; i < array->size(); i += 10) {
    const auto node = h.make<gc_node>({.id = i});
    array.write()->at(i) = node;
  }
  const auto pin = array->at(50'000).root().read();  // stays, and is referred to from home
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  while (h.stats().acknowledged_objects != 10'000 && fm::clock::now() < give_up)
    (void)h.evict_all(std::chrono::milliseconds(200));
  REQUIRE(h.stats().acknowledged_objects == 10'000);
  REQUIRE(collect_young(h).dirty == 0);
  REQUIRE(pin->id == 50'000);
  require_sound(h);
}

TEST_CASE("collections of young objects start by themselves") {
  auto o = roomy();
  o.collect = true;
  o.verify_cycles = false;
  fm::heap h(o);
  const auto kept = make_list(h, 1'000);
  // Some hundred times the cache at most, and less as soon as enough died young.
  for (std::uint64_t i = 0; i < 40'000'000; ++i) {
    (void)h.make<gc_node>({.id = i});
    if (i % 10'000 == 0 && h.stats().young_collected_objects > 100'000) break;
  }
  const auto s = h.stats();
  INFO(s.text());
  REQUIRE(s.young_collected_objects > 100'000);
  REQUIRE(s.young_collections > s.young_collections_failed);
  require_list(kept, 1'000);
  require_sound_at_home(h);
}

TEST_CASE(
    "large objects in a large cache are collected young before an eighth of it was allocated, and small ones are not") {
  auto o = roomy();
  o.cache = 256_MiB;
  o.local_memory = 1024_MiB;
  o.collect = true;
  o.verify_cycles = false;
  {
    fm::heap h(o);
    for (std::uint64_t bytes = 0; bytes < 10_MiB; bytes += 64_KiB) (void)h.array<std::uint64_t>(8'191);
    REQUIRE(fm::test::await([&] { return h.stats().young_collections != 0; }));
    REQUIRE(fm::test::await([&] { return h.stats().young_collected_objects > 100; }));
  }
  fm::heap h(o);
  for (std::uint64_t bytes = 0; bytes < 24_MiB; bytes += 128) (void)h.array<std::uint64_t>(15);
  REQUIRE(h.stats().young_collections == 0);
}

TEST_CASE("a heap can be told not to collect young objects of its own accord") {
  auto o = small();
  o.collect = true;
  o.collect_young = false;
  fm::heap h(o);
  for (std::uint64_t i = 0; i < 400'000; ++i) (void)h.make<gc_node>({.id = i});
  REQUIRE(h.stats().young_collections == 0);
  collect_young(h);
  REQUIRE(h.stats().young_collections == 1);
}

// Threads that make, link, overwrite and drop lists, between objects that go home and come back all the time, while young objects
// are collected without end.
TEST_CASE("nothing that is reachable dies young beside eviction, write-back and threads that change it") {
  auto o = small(2);
  o.cache = 1_MiB;
  o.segment = 16_KiB;
  o.verify_cycles = true;
  fm::heap h(o);
  constexpr std::size_t threads = 2, chains = 400;
  std::atomic<bool> stop{false};
  std::vector<std::string> wrong(threads);
  std::string failed;
  std::vector<std::thread> working;
  for (std::size_t t = 0; t < threads; ++t)
    working.emplace_back([&, t] {
      try {
        std::mt19937_64 random(t + 1);
        // The heads are old most of the time: each is an element of an array, which goes home like anything else.
        const auto heads = h.array<fm::ref<gc_node>>(chains);
        std::vector<std::uint64_t> lengths(chains);
        std::vector<fm::weak<gc_node>> last(chains);  // of each list, the element without a next one
        for (std::uint64_t step = 0; !stop.load(std::memory_order_relaxed); ++step) {
          const std::size_t c = random() % chains;
          if (lengths[c] > 30 || random() % 16 == 0) {
            heads.write()->at(c) = nullptr;
            lengths[c] = 0;
          } else if (random() % 4 == 0) {
            // The list changes hands: only the log, or the new place, knows of it.
            const std::size_t d = random() % chains;
            fm::ptr<gc_node> taken = heads->at(c);
            heads.write()->at(c) = nullptr;
            heads.write()->at(d) = taken;
            if (c != d) {
              lengths[d] = std::exchange(lengths[c], 0);
              last[d] = last[c];
            } else {
              heads.write()->at(c) = taken;
            }
          } else {
            heads.write()->at(c) = h.make<gc_node>({.id = lengths[c]++, .left = heads->at(c).root()});
            if (lengths[c] == 1) last[c] = fm::weak<gc_node>(heads->at(c).root());
          }
          if (step % 64 == 0) {
            const std::size_t e = random() % chains;
            std::uint64_t expected = lengths[e];
            for (fm::ptr<gc_node> at = heads->at(e); at; at = at->left)
              if (at->id != --expected) throw std::runtime_error("a node is another");
            if (expected != 0) throw std::runtime_error("a list has lost its end");
            if (lengths[e] != 0 && !last[e].lock()) throw std::runtime_error("a weak handle of the living is null");
          }
        }
      } catch (const std::exception& e) {
        wrong[t] = e.what();
        stop = true;
      }
    });
  const auto until = fm::clock::now() + std::chrono::seconds(3);
  const auto enough = [&] {
    const auto s = h.stats();
    return s.written_objects > 10'000 && s.young_collected_objects > 10'000 && s.young_collections > 10;
  };
  const auto give_up = until + std::chrono::minutes(10);
  while (!stop.load() && fm::clock::now() < give_up && (fm::clock::now() < until || !enough())) {
    auto r = h.collect_young("always");
    if (r.ok() && r.number % 8 == 0) r = h.collect("in between");
    if (!r.ok() && r.status != fm::errc::timed_out) {
      failed = r.text();
      stop = true;
    }
  }
  stop = true;
  for (auto& t : working) t.join();
  REQUIRE(failed == "");
  for (const std::string& w : wrong) REQUIRE(w == "");
  INFO(h.stats().text());
  REQUIRE(enough());
  require_sound_at_home(h);
}

TEST_CASE("segments in which everything died young are given back at once, and nothing else is") {
  auto o = roomy();
  o.collect = false;
  fm::heap h(o);
  const auto kept = make_list(h, 1'000);
  const std::uint32_t before = h.stats().segments_free;
  {
    const auto dropped = make_list(h, 60'000);  // several segments of 256 KiB, the first and the last of them shared
    REQUIRE(h.stats().segments_free < before - 8);
    const auto survivor = collect_young(h);
    REQUIRE(survivor.freed == 0);
    REQUIRE(h.stats().segments_free < before - 8);
    dropped.write()->id = 1;
  }
  // While others come and go, a grace period may not be over when the collection is.
  std::atomic<bool> inside{false}, leave{false};
  std::thread other([&] {
    while (!leave) {
      const fm::scope s;
      inside = true;
    }
  });
  while (!inside) std::this_thread::yield();
  const auto r = collect_young(h);
  leave = true;
  other.join();
  REQUIRE(r.freed == 60'000);
  const auto again = collect_young(h);  // whatever had to wait for that thread
  REQUIRE(again.freed == 0);
  const auto s = h.stats();
  REQUIRE(s.segments_free >= before - 2);  // those that the thread fills
  REQUIRE(s.segments_cooled == 0);
  REQUIRE(s.written_objects == 0);
  require_list(kept, 1'000);
  REQUIRE(h.verify().ok());
}

TEST_CASE("a large object that died young leaves its memory to the next") {
  auto o = roomy();
  o.segment = 64_KiB;
  o.collect = false;
  fm::heap h(o);
  const auto address = [&](std::uint64_t fill) {
    const auto a = h.array<std::uint64_t>(32'000);  // four segments
    const auto w = a.write();
    for (auto& v : *w) v = fill;
    return static_cast<const void*>(w->data());
  };
  const void* const first = address(1);
  collect_young(h);
  REQUIRE(address(2) == first);
  // Two of them side by side, of which one may be taken apart.
  const auto kept = h.array<std::uint64_t>(32'000);
  collect_young(h);
  const auto small_ones = make_list(h, 20'000);
  for (int i = 0; i < 100; ++i) {
    address(3);
    collect_young(h);
  }
  const auto r = kept.read();
  REQUIRE((*r)[31'999] == 0);
  require_list(small_ones, 20'000);
  REQUIRE(h.verify().ok());
}
