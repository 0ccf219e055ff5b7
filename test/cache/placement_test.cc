// Where new objects go, by numbers that the test gives and in a heap, and how long collections rest that were in vain.
#include "cache/tablets/placement.h"

#include <farmem/farmem.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/collections/collection_requests.h"
#include "cache/object_cache.h"
#include "heap/heap_core.h"

using namespace std::chrono_literals;
using namespace fm::literals;
using fm::detail::collection_rest;
using fm::detail::placement;

namespace {

constexpr std::uint64_t mib = 1 << 20;

struct cell {
  std::uint64_t number = 0;
  fm::ref<cell> next;
};

/// Agents of these sizes, and a heap that writes home what it places, a cache's worth later.
struct agents {
  explicit agents(std::vector<std::uint64_t> sizes) : left(std::move(sizes)), placed(left.size()) {
    where.open(left.size());
  }
  /// The next MiB; none when all are full.
  std::optional<std::uint32_t> next() {
    const auto i = where.next([&](std::uint32_t k) { return left[k]; }, unwritten, mib);
    if (!i) return i;
    ++placed[*i];
    in_cache.push_back(*i);
    if (in_cache.size() > unwritten / mib) {
      left[in_cache.front()] -= std::min(left[in_cache.front()], mib);
      in_cache.erase(in_cache.begin());
    }
    return i;
  }
  std::uint64_t unwritten = 8 * mib;
  std::vector<std::uint64_t> left, placed;
  std::vector<std::uint32_t> in_cache;
  placement where;
};

}  // namespace

TEST_CASE("agents of the same room get objects in turn") {
  agents a({64 * mib, 64 * mib, 64 * mib});
  for (std::uint32_t i = 0; i < 30; ++i) {
    REQUIRE(a.next());
    const auto [least, most] = std::minmax_element(a.placed.begin(), a.placed.end());
    CHECK(*most - *least <= 1);
  }
}

TEST_CASE("agents of the same room get as many slots, however many are taken at a time or come back") {
  agents a({64 * mib, 64 * mib, 64 * mib});
  a.unwritten = 0;
  std::vector<std::int64_t> slots(3);
  std::int64_t most_at_a_time = 0;
  for (std::int64_t i = 0; i < 2'000; ++i) {
    const std::int64_t wanted = std::int64_t{16} << i % 8;
    const auto at = a.where.next([&](std::uint32_t k) { return a.left[k]; }, a.unwritten, mib, wanted);
    REQUIRE(at);
    // A page of free slots has fewer than were wanted, and an idle thread's run comes back.
    const std::int64_t got = i % 3 == 0 ? wanted / 4 : i % 5 == 0 ? 0 : wanted;
    if (got != wanted) a.where.charge(*at, got - wanted);
    slots[*at] += got;
    most_at_a_time = std::max(most_at_a_time, wanted);
    const auto [least, most] = std::minmax_element(slots.begin(), slots.end());
    CHECK(*most - *least <= 2 * most_at_a_time);
  }
}

TEST_CASE("agents of different sizes are full together, and nearly all of their room is used") {
  agents a({192 * mib, 96 * mib});
  std::uint64_t all = 0;
  while (a.next()) REQUIRE(++all < 400);
  CHECK(all >= 280);
  CHECK(all <= 288 + 2 * 8);
  CHECK(a.placed[0] > 180);
  CHECK(a.placed[1] > 90);
}

TEST_CASE("an agent that was full gets objects again when it has room for some regions, and not before") {
  agents a({100 * mib, 0});
  a.unwritten = 0;
  for (int i = 0; i < 10; ++i) CHECK(a.next() == 0u);
  a.left[1] = mib;
  for (int i = 0; i < 10; ++i) CHECK(a.next() == 0u);
  a.left[1] = 50 * mib;
  std::uint64_t before = a.placed[1];
  for (int i = 0; i < 10; ++i) (void)a.next();
  CHECK(a.placed[1] > before);
}

TEST_CASE("an agent with a little more room than what is spoken for gets no less than one with a little less") {
  agents a({8 * mib + 1, 8 * mib, 8 * mib - 1});
  for (int i = 0; i < 30; ++i) {
    const auto at = a.where.next([&](std::uint32_t k) { return a.left[k]; }, a.unwritten, mib);
    REQUIRE(at);
    ++a.placed[*at];
  }
  const auto [least, most] = std::minmax_element(a.placed.begin(), a.placed.end());
  CHECK(*most - *least <= 1);
}

TEST_CASE("a thread whose objects become larger fills its agents alike") {
  fm::heap h({.cache = 1_MiB, .agents = {"local:", "local:"}, .local_memory = 4_MiB, .local_region = 64_KiB});
  std::vector<fm::ptr<cell>> cells;
  std::vector<fm::ptr<std::uint64_t[]>> arrays;
  // Its runs are as long as any by then: the next one has slots for all of the arrays.
  for (std::uint64_t i = 0; i < 2'040; ++i) cells.push_back(h.make<cell>({.number = i}));
  for (int i = 0; i < 800; ++i) arrays.push_back(h.array<std::uint64_t>(128));
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::uint64_t left[2];
  for (std::size_t i = 0; i < 2; ++i) left[i] = h.core().cache().agents()[i]->left_bytes();
  CHECK(std::max(left[0], left[1]) - std::min(left[0], left[1]) <= 3 * 64_KiB);  // of 13 that the arrays take
}

TEST_CASE("there is no agent to choose when all are full") {
  agents a({0, 0});
  CHECK_FALSE(a.next());
}

TEST_CASE("collections that free nothing take a tenth of the time, however long they take") {
  for (const fm::duration took : {fm::duration(1ms), fm::duration(20ms), fm::duration(7s)}) {
    collection_rest r;
    fm::duration collected{}, all{};
    int cycles = 0;
    while (all < 10min) {
      ++cycles;
      collected += took;
      all += took + r.after(false, took, 5s);
    }
    CHECK(collected * 10 <= all);
    if (took < 100ms) CHECK(cycles < 10min / 2500ms + 20);
  }
}

TEST_CASE("a collection that makes room ends the rest, and the next one in vain begins with a short one") {
  collection_rest r;
  for (int i = 0; i < 10; ++i) (void)r.after(false, 10ms, 5s);
  CHECK(r.after(false, 10ms, 5s) == 2500ms);
  CHECK(r.after(true, 10ms, 5s) == 0ms);
  CHECK(r.after(false, 10ms, 5s) == 90ms);
}
