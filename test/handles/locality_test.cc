// What the cache makes of how a program goes through its objects: scans that are longer than the cache.
#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {

struct scanned {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 15> words{};
};
constexpr std::uint64_t records = 30'000;  // 4.6 MiB as frames, for a cache of 2 MiB

struct scan {
  fm::heap heap;
  std::vector<fm::ptr<scanned>> all;

  explicit scan(const fm::heap_options& options) : heap(options) {
    for (std::uint64_t i = 0; i < records; ++i) all.push_back(heap.make<scanned>({.id = i}));
    REQUIRE(heap.evict_all() == fm::errc::ok);
  }
  void lap() {
    for (std::uint64_t i = 0; i < records; ++i)
      if (all[i]->id != i) FAIL("another object");
  }
};

fm::heap_options small_cache() {
  return {.cache = 2_MiB,
          .local_memory = 64_MiB,
          .local_region = 1_MiB,
          .segment = 32_KiB,
          .collect = false,
          .elastic = false};
}

/// Misses of the last of some laps.
std::uint64_t misses_of_a_lap(double promote_probability) {
  fm::heap_options o = small_cache();
  o.promote_probability = promote_probability;
  scan s(o);
  for (int i = 0; i < 5; ++i) s.lap();
  const std::uint64_t before = s.heap.stats().misses;
  s.lap();
  return s.heap.stats().misses - before;
}

}  // namespace

TEST_CASE("of a scan that is longer than the cache, what was promoted stays until it comes round again") {
  REQUIRE(misses_of_a_lap(0) > records * 99 / 100);  // queues alone: everything goes just before it is wanted
  REQUIRE(misses_of_a_lap(0.1) < records * 95 / 100);
}

TEST_CASE("what was promoted goes, too, when the rest of the cache is pinned") {
  fm::heap_options o = small_cache();  // 64 segments
  o.promote_probability = 1;
  fm::heap h(o);
  constexpr std::uint64_t a_segment = 32_KiB / 152;
  std::vector<fm::read_pin<scanned>> pins;
  for (std::uint64_t i = 0; i < 40 * a_segment; ++i) {
    const auto p = h.make<scanned>({.id = i});
    if (i % (a_segment + 10) == 0) pins.push_back(p.read());
  }
  REQUIRE(pins.size() >= 35);
  std::vector<fm::ptr<scanned>> all;
  for (std::uint64_t i = 0; i < records; ++i) all.push_back(h.make<scanned>({.id = i}));  // more than all of the cache
  for (std::uint64_t i = 0; i < records; ++i) REQUIRE(all[i]->id == i);
}

TEST_CASE("a scan in order brings its neighbours along, and keeps doing so") {
  fm::heap_options o = small_cache();
  o.elastic = true;
  scan s(o);
  s.lap();
  const auto before = s.heap.stats();
  s.lap();
  const auto after = s.heap.stats();
  const std::uint64_t brought = after.elastic_installs - before.elastic_installs;
  REQUIRE(after.misses - before.misses < records / 10);
  REQUIRE(brought > records / 2);
  REQUIRE(after.elastic_touches - before.elastic_touches > brought * 9 / 10);
}
