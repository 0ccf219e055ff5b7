// Evacuation as the last phase of a collection: what is moved and told, and that memory comes back.
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <cmath>

using namespace fm::literals;

namespace {

struct tree_leaf {
  std::uint64_t number = 0;
  fm::ref<tree_leaf> left, right;
  std::array<std::uint64_t, 5> rest{};
};

fm::heap_options small(fm::evacuation_options what) {
  return {.cache = 1_MiB,
          .local_memory = 128_MiB,
          .local_region = 256_KiB,
          .segment = 16_KiB,
          .collect = false,
          .evacuation = what,
          .memory_within = std::chrono::seconds(30)};
}

void require_verified(fm::heap& h) {
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  INFO((v.messages.empty() ? "" : v.messages.front()));
  REQUIRE(v.ok());
}

}  // namespace

TEST_CASE("after a collection sparse regions are emptied, and the report and the statistics tell of it") {
  fm::heap h(small({}));
  std::vector<fm::ptr<tree_leaf>> kept;
  for (std::size_t i = 0; i < 40'000; ++i) {
    const auto p = h.make<tree_leaf>({.number = i});
    if (i % 8 == 0) kept.push_back(p);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = h.collect("test");
  INFO(r.text());
  REQUIRE(r.ok());
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
  require_verified(h);
  // Nothing is sparse any more.
  const auto again = h.collect("again");
  REQUIRE(again.ok());
  REQUIRE(again.agents[0].sparse_regions <= 1);
}

TEST_CASE("memory that evacuation has emptied is used again") {
  fm::heap h(small({}));
  std::vector<fm::ptr<tree_leaf>> kept;
  // Every tenth object stays for ever; the rest of 20 times the agent's memory dies.
  for (std::size_t round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 100'000; ++i) {
      const auto p = h.make<tree_leaf>({.number = i});
      if (i % 50 == 0) kept.push_back(p);
    }
    const auto r = h.collect("round");
    INFO(r.text());
    REQUIRE(r.ok());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) REQUIRE(kept[i]->number == i % 2000 * 50);
  REQUIRE(h.stats().regions_retired > 100);
  require_verified(h);
}

TEST_CASE("a heap can be told to evacuate nothing, and a share that is none is refused") {
  fm::heap h(small({.below_live_ratio = 0}));
  std::vector<fm::ptr<tree_leaf>> kept;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const auto p = h.make<tree_leaf>({.number = i});
    if (i % 8 == 0) kept.push_back(p);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.collect("test").agents[0].evacuated_objects == 0);
  const auto all = h.collect("all", fm::evacuate::all);
  REQUIRE(all.ok());
  REQUIRE(all.agents[0].evacuated_objects > 0);
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    const auto none = fm::heap::open(small({.below_live_ratio = wrong}));
    REQUIRE_FALSE(none);
    REQUIRE(none.error().code() == fm::errc::invalid_argument);
  }
}
