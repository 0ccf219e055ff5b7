// Evacuation as the last phase of a collection: what is moved and told, that memory comes back, and what order is good for.
#include "fixture.h"
#include "heap/heap_core.h"

#include <cmath>
#include <random>

using namespace gc_test;

namespace {

struct tree_leaf {
  std::uint64_t number = 0;
  fm::ref<tree_leaf> left, right;
  std::array<std::uint64_t, 5> rest{};
};

fm::heap_options evacuating(fm::evacuation_options what) {
  auto o = small();
  o.local_region = 256_KiB;
  o.segment = 16_KiB;
  o.evacuation = what;
  return o;
}

// A binary tree, numbered as in a heap, whose nodes are made in a random order.
fm::ptr<tree_leaf> make_tree(fm::heap& h, std::size_t count) {
  std::vector<fm::ptr<tree_leaf>> nodes(count);
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  for (const std::size_t i : order) nodes[i] = h.make<tree_leaf>({.number = i});
  for (const std::size_t i : order) {
    const auto n = nodes[i].write();
    if (2 * i + 1 < count) n->left = nodes[2 * i + 1];
    if (2 * i + 2 < count) n->right = nodes[2 * i + 2];
  }
  return nodes[0];
}

// Sum of the numbers, left before right; a scope a node.
std::uint64_t walk(const fm::ptr<tree_leaf>& root) {
  std::uint64_t sum = 0;
  std::vector<fm::ptr<tree_leaf>> open{root};
  while (!open.empty()) {
    const fm::ptr<tree_leaf> p = std::move(open.back());
    open.pop_back();
    if (!p) continue;
    const auto n = p.read();
    sum += n->number;
    open.push_back(n->right.root());
    open.push_back(n->left.root());
  }
  return sum;
}

}  // namespace

TEST_CASE("after a collection sparse regions are emptied, and the report and the statistics tell of it") {
  fm::heap h(evacuating({}));
  std::vector<fm::ptr<tree_leaf>> kept;
  for (std::size_t i = 0; i < 40'000; ++i) {
    const auto p = h.make<tree_leaf>({.number = i});
    if (i % 8 == 0) kept.push_back(p);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = collect(h);
  REQUIRE(r.freed == 35'000);
  const fm::cycle_part& a = r.agents[0];
  REQUIRE(a.evacuation == fm::errc::ok);
  REQUIRE(a.order == fm::evacuation_order::address);
  REQUIRE(a.sparse_regions > 5);
  REQUIRE(a.emptied_regions == a.sparse_regions);
  REQUIRE(a.evacuated_objects > 4'000);
  REQUIRE(a.evacuated_bytes >= a.evacuated_objects * 72);
  REQUIRE(r.text().find("evacuated in address order") != std::string::npos);
  const auto s = h.stats();
  REQUIRE(s.evacuated_objects == a.evacuated_objects);
  REQUIRE(s.emptied_regions == a.emptied_regions);
  for (std::size_t i = 0; i < kept.size(); ++i) REQUIRE(kept[i]->number == i * 8);
  require_sound_at_home(h);
  // Nothing is sparse any more.
  const auto again = collect(h, "again");
  REQUIRE(again.agents[0].sparse_regions <= 1);
}

TEST_CASE("memory that evacuation has emptied is used again") {
  auto o = evacuating({});
  o.local_memory = 8_MiB;
  fm::heap h(o);
  std::vector<fm::ptr<tree_leaf>> kept;
  // One object of 50 stays for ever; the rest of three times the agent's memory dies.
  for (std::size_t round = 0; round < 8; ++round) {
    for (std::size_t i = 0; i < 40'000; ++i) {
      const auto p = h.make<tree_leaf>({.number = i});
      if (i % 50 == 0) kept.push_back(p);
    }
    collect(h, "round");
  }
  for (std::size_t i = 0; i < kept.size(); ++i) REQUIRE(kept[i]->number == i % 800 * 50);
  REQUIRE(h.stats().regions_retired > 32);  // all that the agent has
  require_sound_at_home(h);
}

TEST_CASE("what evacuations give back is not room, because their copies took as much") {
  auto o = evacuating({});
  o.local_memory = 8_MiB;
  fm::heap h(o);
  std::vector<fm::ptr<tree_leaf>> kept;
  for (std::size_t i = 0; i < 40'000; ++i) kept.push_back(h.make<tree_leaf>({.number = i}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  const std::uint64_t live = kept.size() * sizeof(tree_leaf);
  for (int i = 0; i < 12; ++i) {
    collect(h, "all", fm::evacuate::all);
    REQUIRE(h.core().cache().agents()[0]->left_bytes() <= o.local_memory - live);
  }
  REQUIRE(h.stats().regions_retired > 32);  // all that the agent has
}

TEST_CASE("a heap can be told to evacuate nothing, and a share that is none is refused") {
  fm::heap h(evacuating({.below_live_ratio = 0}));
  std::vector<fm::ptr<tree_leaf>> kept;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const auto p = h.make<tree_leaf>({.number = i});
    if (i % 8 == 0) kept.push_back(p);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(collect(h).agents[0].evacuated_objects == 0);
  const auto all = collect(h, "all", fm::evacuate::all);
  REQUIRE(all.agents[0].evacuated_objects > 0);
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    const auto none = fm::heap::open(evacuating({.below_live_ratio = wrong}));
    REQUIRE_FALSE(none);
    REQUIRE(none.error().code() == fm::errc::invalid_argument);
  }
}

TEST_CASE("a walk through a scattered tree misses a fraction of what it did, once the tree lies depth first") {
  constexpr std::size_t count = 40'000;  // 7 times the cache
  auto o = evacuating({.order = fm::evacuation_order::depth_first});
  o.cache = 512_KiB;
  fm::heap h(o);
  const auto root = make_tree(h, count);
  const auto misses_of_walk = [&] {
    const std::uint64_t before = h.stats().misses;
    if (walk(root) != count * (count - 1) / 2) FAIL("the tree is another");
    return h.stats().misses - before;
  };
  REQUIRE(h.evict_all() == fm::errc::ok);
  misses_of_walk();
  const std::uint64_t scattered = misses_of_walk();
  const auto r = collect(h, "order", fm::evacuate::all);
  REQUIRE(r.agents[0].evacuated_objects > count * 8 / 10);
  REQUIRE(r.agents[0].order == fm::evacuation_order::depth_first);
  // The emptied regions retire, hints are corrected, windows are learnt.
  std::uint64_t in_order = misses_of_walk();
  for (int walks = 0; walks < 20 && in_order * 4 > scattered; ++walks) in_order = misses_of_walk();
  INFO(scattered << " misses, then " << in_order);
  CHECK(in_order * 4 <= scattered);
  require_sound_at_home(h);
}
