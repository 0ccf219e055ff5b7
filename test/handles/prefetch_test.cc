#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {

struct ahead_record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
};
struct ahead_parent {
  std::array<fm::ref<ahead_record>, 8> all;
};

fm::heap_options without_neighbours() {
  return {.cache = 8_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 64_KiB, .elastic = false};
}

std::vector<fm::ptr<ahead_record>> make_records(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<ahead_record>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<ahead_record>({.id = i}));
  return all;
}

bool resident(fm::detail::slot_t s) { return fm::detail::word::is_resident(fm::detail::word_at(s).load()); }

}  // namespace

TEST_CASE("prefetching one object makes its access a hit") {
  fm::heap h(without_neighbours());
  auto all = make_records(h, 10);
  REQUIRE_FALSE(fm::prefetch(all[3]));  // it is here
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(fm::prefetch(all[3]));
  const auto misses = h.stats().misses;
  REQUIRE(all[3]->id == 3);
  REQUIRE(h.stats().misses == misses);
  REQUIRE(h.stats().prefetches == 1);
  REQUIRE_FALSE(resident(all[4].slot()));
}

TEST_CASE("a range of roots is prefetched, and null ones and those that are here are passed over") {
  fm::heap h(without_neighbours());
  auto all = make_records(h, 50);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(all[0]->id == 0);
  all.emplace_back();
  // The agent in this process answers at once, so that every ahead_record is free again for the next.
  REQUIRE(fm::prefetch(all) == 49);
  REQUIRE(fm::prefetch(all) == 0);
  const auto misses = h.stats().misses;
  for (std::uint64_t i = 0; i < 50; ++i) REQUIRE(all[i]->id == i);
  REQUIRE(h.stats().misses == misses);
  REQUIRE(fm::prefetch(std::vector<fm::ptr<ahead_record>>()) == 0);
  REQUIRE_FALSE(fm::prefetch(fm::ptr<ahead_record>()));
}

TEST_CASE("the references of an object are prefetched, as a range and as a span") {
  fm::heap h(without_neighbours());
  auto all = make_records(h, 8);
  auto parent = h.make<ahead_parent>();
  {
    auto w = parent.write();
    for (std::size_t i = 0; i < 8; ++i) w->all[i] = all[i];
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  {
    const auto pin = parent.read();
    REQUIRE(fm::prefetch(pin->all[0]));
    REQUIRE(fm::prefetch(std::span<const fm::ref<ahead_record>>(pin->all).subspan(1, 3)) == 3);
    REQUIRE(fm::prefetch(pin->all) == 4);
  }
  for (const auto& p : all) REQUIRE(resident(p.slot()));
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("objects of several heaps are prefetched in one call") {
  fm::heap one(without_neighbours()), two(without_neighbours());
  auto a = make_records(one, 100), b = make_records(two, 100);
  REQUIRE(one.evict_all() == fm::errc::ok);
  REQUIRE(two.evict_all() == fm::errc::ok);
  std::vector<fm::ptr<ahead_record>> mixed;
  for (std::size_t i = 0; i < 100; ++i) {
    mixed.push_back(a[i]);
    mixed.push_back(b[i]);
  }
  REQUIRE(fm::prefetch(mixed) == 200);
  REQUIRE(one.stats().prefetches == 100);
  REQUIRE(two.stats().prefetches == 100);
  for (std::size_t i = 0; i < 200; ++i) REQUIRE(mixed[i]->id == i / 2);
}

TEST_CASE("prefetching stops when memory is short and everything can still be read") {
  fm::heap h({.cache = 1_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 32_KiB, .elastic = false});
  auto all = make_records(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(fm::prefetch(all) < all.size());
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (all[i]->id != i) FAIL(i);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}
