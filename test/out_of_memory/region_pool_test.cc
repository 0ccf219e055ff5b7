// The agent's regions when memory has run out: whoever leaves a region last gives it back, and cannot fail.
#include "agent/regions/region_pool.h"

#include <catch2/catch.hpp>
#include <new>
#include <vector>

#include "failing_new.h"

using namespace fm::agent;
using fm::test::failing_new;

TEST_CASE("regions are given back without memory, with or without theirs") {
  constexpr std::uint64_t region_bytes = 64u << 10, regions = 40;
  region_pool pool(regions * region_bytes, region_bytes, 0, false);
  owner_key key{};
  key.heap_id[0] = 1;
  std::vector<region*> taken, entered;
  for (std::uint64_t i = 0; i < regions; ++i) {
    taken.push_back(pool.take(nullptr, key, region_use::owner));
    REQUIRE(taken.back() != nullptr);
    if (i % 2 == 0) entered.push_back(pool.enter(taken.back()->number, taken.back()->generation));
  }
  bool keep = false, threw = false;
  failing_new::fail(1, ~std::uint64_t{0} >> 1);
  try {
    for (region* const r : taken) pool.give_back(*r, keep = !keep);
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  for (region* const r : entered) pool.leave(*r);  // it may not throw
  failing_new::stop();
  CHECK_FALSE(threw);
  CHECK(pool.regions_in_use() == 0);
  // All of them can be taken again.
  for (std::uint64_t i = 0; i < regions; ++i) CHECK(pool.take(nullptr, key, region_use::owner) != nullptr);
}
