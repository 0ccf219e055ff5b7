// Tracing on the compute node: it marks exactly what the agents mark, and collects as they do. The agents' tracer and this one
// share no code but the snapshot, so each is the other's check.
#include "fixture.h"
#include "heap/heap_core.h"

#include <random>

using namespace gc_test;
using fm::detail::tracing;

namespace {

// Nodes with two random edges, of which some roots are kept; what is reached from them is counted by following the edges.
struct random_graph {
  std::vector<fm::ptr<gc_node>> roots;
  std::vector<std::array<std::uint32_t, 2>> edges;
  std::vector<std::uint32_t> rooted;

  random_graph(fm::heap& h, std::uint32_t n, std::uint32_t kept, std::uint64_t seed) : edges(n) {
    std::mt19937_64 random(seed);
    std::vector<fm::ptr<gc_node>> all;
    for (std::uint32_t i = 0; i < n; ++i) all.push_back(h.make<gc_node>({.id = i}));
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto w = all[i].write();
      for (std::uint32_t& to : edges[i])
        to = static_cast<std::uint32_t>(random() % (n * 2));  // half of them lead somewhere
      if (edges[i][0] < n) w->left = all[edges[i][0]];
      if (edges[i][1] < n) w->right = all[edges[i][1]];
    }
    for (std::uint32_t i = 0; i < kept; ++i) {
      rooted.push_back(static_cast<std::uint32_t>(random() % n));
      roots.push_back(all[rooted.back()]);
    }
  }
  [[nodiscard]] std::uint64_t reachable() const {
    std::vector<bool> seen(edges.size());
    std::vector<std::uint32_t> open;
    std::uint64_t n = 0;
    const auto reach = [&](std::uint32_t i) {
      if (i >= edges.size() || seen[i]) return;
      seen[i] = true;
      ++n;
      open.push_back(i);
    };
    for (const std::uint32_t i : rooted) reach(i);
    while (!open.empty()) {
      const auto at = edges[open.back()];
      open.pop_back();
      for (const std::uint32_t i : at) reach(i);
    }
    return n;
  }
};

}  // namespace

TEST_CASE("both tracers mark the same objects of a still heap, and as many as are reachable") {
  for (const std::size_t agents : {1, 3})
    for (const std::uint64_t seed : {1, 2, 3}) {
      CAPTURE(agents, seed);
      fm::heap h(small(agents));
      h.core().gc().trace_by(tracing::both, seed == 3 ? 64 : 1 << 20);
      const random_graph g(h, 8'000, 150, seed);
      // Seed 1: as it comes, part of it in the cache. Then all of it at home; then some of it resident and changed.
      if (seed != 1) REQUIRE(h.evict_all() == fm::errc::ok);
      if (seed == 3)
        for (std::size_t i = 0; i < g.roots.size(); i += 3) g.roots[i].write()->rest[0] = 7;
      const auto r = collect(h);
      REQUIRE(r.marked == g.reachable());
      REQUIRE(r.dead == 8'000 - g.reachable());
      REQUIRE(collect(h).dead == 0);
      require_sound_at_home(h);
    }
}

TEST_CASE("both tracers agree about containers, arrays, pins and pages of the table that were given back") {
  auto o = small(2);
  o.cache = 4_MiB;
  o.hit = 16 * 4096;
  fm::heap h(o);
  h.core().gc().trace_by(tracing::both);
  fm::vector<fm::ref<gc_node>> v(h);
  for (std::uint64_t i = 0; i < 5'000; ++i) v.push_back(h.make<gc_node>({.id = i}));
  fm::hash_map<std::uint64_t, fm::ref<gc_node>> m(h);
  for (std::uint64_t i = 0; i < 5'000; i += 3) m.insert_or_assign(i, v[i]);
  const auto array = h.array<fm::ref<gc_node>>(20'000);
  for (std::size_t i = 0; i < 20'000; i += 2) {
    const auto node = h.make<gc_node>({.id = i, .left = v[i % 5'000]});
    const auto w = array.write();
    (*w)[i] = node;
  }
  auto pin = h.make<gc_node>({.id = 1, .left = h.make<gc_node>({.id = 2})}).read();
  v.clear();
  { const auto dropped = make_list(h, 3'000); }
  REQUIRE(h.evict_all(std::chrono::milliseconds(300)) == fm::errc::timed_out);  // the pin stays
  const auto r = collect(h);
  REQUIRE(r.dead >= 3'000);
  REQUIRE(pin->left->id == 2);
  for (std::uint64_t i = 0; i < 5'000; i += 3) REQUIRE((*m.find(i))->id == i);
  const auto again = collect(h);
  REQUIRE(again.marked == r.marked);
}

TEST_CASE("a collection by the compute node frees what no root reaches, and keeps the rest") {
  for (const std::size_t stack : {16, 1 << 20}) {  // without room, and with
    fm::heap h(small(2));
    h.core().gc().trace_by(tracing::compute_node, stack);
    const auto kept = make_list(h, 20'000);
    const auto wide = h.array<fm::ref<gc_node>>(3'000);
    for (std::size_t i = 0; i < 3'000; ++i) {
      const auto node = h.make<gc_node>({.id = i});
      const auto w = wide.write();
      (*w)[i] = node;
    }
    { const auto dropped = make_list(h, 30'000); }
    REQUIRE(h.evict_all() == fm::errc::ok);
    const auto before = h.stats();
    const auto r = collect(h);
    REQUIRE(r.marked == 23'001);
    REQUIRE(r.freed == 30'000);
    REQUIRE(r.agents[0].marked == 0);  // the agents did not trace
    REQUIRE(h.stats().misses + h.stats().prefetches >= before.misses + before.prefetches + 20'000);
    require_list(kept, 20'000);
    REQUIRE(require_sound_at_home(h).agent_objects == 23'001);
  }
}

TEST_CASE("cycles by the compute node and by agents follow each other") {
  fm::heap h(small(2));
  const auto kept = make_list(h, 5'000);
  std::uint64_t freed = 0;
  for (int round = 0; round < 8; ++round) {
    h.core().gc().trace_by(round % 2 == 0 ? tracing::compute_node : tracing::agents);
    { const auto dropped = make_list(h, 5'000); }
    const auto r = collect(h);
    REQUIRE(r.marked == 5'000);
    REQUIRE(r.dead >= 5'000);  // with those that were being written back when they died
    freed += r.freed;
  }
  require_list(kept, 5'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  freed += collect(h).freed;
  REQUIRE(freed == 40'000);
}
