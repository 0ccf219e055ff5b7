// The set of what was met: numbers in every direction, where intervals touch, where the table takes over, and beyond 32 bits.
#include "channel/graph/visited.h"
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <random>
#include <unordered_map>

using fm::detail::slot_t;
using fm::detail::visited_set;

TEST_CASE("slots met upwards are one interval, with numbers in the order of being met") {
  visited_set v;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto a = v.add(100 + i);
    REQUIRE(a.added);
    REQUIRE(a.number == i);
  }
  REQUIRE(v.intervals() == 2);  // and the one of nothing
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto a = v.add(100 + i);
    REQUIRE_FALSE(a.added);
    REQUIRE(a.number == i);
  }
}

TEST_CASE("slots met downwards are one interval, and their numbers have the right sign") {
  visited_set v;
  for (std::uint64_t i = 0; i < 1000; ++i) REQUIRE(v.add(5000 - i).number == i);
  REQUIRE(v.intervals() == 2);
  for (const std::uint64_t i : {0u, 1u, 500u, 998u, 999u}) {
    const auto a = v.add(5000 - i);
    REQUIRE_FALSE(a.added);
    REQUIRE(a.number == i);
  }
}

TEST_CASE("an interval that meets another one does not swallow it") {
  visited_set v;
  REQUIRE(v.add(10).number == 0);
  REQUIRE(v.add(13).number == 1);
  REQUIRE(v.add(12).number == 2);  // down from 13
  REQUIRE(v.add(11).number == 3);
  REQUIRE_FALSE(v.add(10).added);
  REQUIRE(v.add(9).number == 4);
  REQUIRE(v.add(14).number == 5);
  REQUIRE(v.add(15).number == 6);
  const std::uint64_t expected[] = {4, 0, 3, 2, 1, 5, 6};
  for (std::uint64_t s = 9; s <= 15; ++s) {
    REQUIRE_FALSE(v.add(s).added);
    REQUIRE(v.add(s).number == expected[s - 9]);
  }
}

TEST_CASE("an interval is not extended by a slot that was met after others") {
  visited_set v;
  REQUIRE(v.add(100).number == 0);
  REQUIRE(v.add(200).number == 1);
  REQUIRE(v.add(101).number == 2);
  REQUIRE(v.add(201).number == 3);
  REQUIRE(v.add(102).number == 4);
  REQUIRE(v.add(101).number == 2);
  REQUIRE(v.add(201).number == 3);
  REQUIRE(v.add(102).number == 4);
}

TEST_CASE("numbers go beyond 32 bits") {
  visited_set up, down;
  const std::uint64_t big = (std::uint64_t{1} << 32) - 3;
  up.set_next_number(big);
  down.set_next_number(big);
  for (std::uint64_t i = 0; i < 10; ++i) {
    REQUIRE(up.add(1000 + i).number == big + i);
    REQUIRE(down.add(1000 - i).number == big + i);
  }
  for (std::uint64_t i = 0; i < 10; ++i) {
    REQUIRE(up.add(1000 + i).number == big + i);
    REQUIRE(down.add(1000 - i).number == big + i);
  }
}

TEST_CASE("any order of slots gives the numbers that a hash table gives") {
  std::mt19937_64 random(7);
  for (const std::uint64_t range : {64u, 4096u, 200000u}) {
    for (const int pattern : {0, 1, 2}) {
      visited_set v;
      std::unordered_map<slot_t, std::uint64_t> expected;
      std::uint64_t wrong = 0;
      slot_t at = range;
      for (int i = 0; i < 60000; ++i) {
        if (pattern == 0 || random() % 8 == 0)
          at = 1 + random() % (2 * range);
        else
          at = pattern == 1 ? at + 1 : std::max<slot_t>(1, at + random() % 3 - 1);
        const auto [known, added] = expected.emplace(at, expected.size());
        const auto a = v.add(at);
        if (a.added != added || a.number != known->second) ++wrong;
      }
      REQUIRE(wrong == 0);
      REQUIRE(v.size() == expected.size());
    }
  }
}

TEST_CASE("many short intervals become a table, and a long one does not") {
  visited_set scattered, dense;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    REQUIRE(scattered.add(1 + 7 * i).number == i);
    REQUIRE(dense.add(1 + i).number == i);
  }
  REQUIRE(scattered.intervals() == 0);
  REQUIRE(dense.intervals() == 2);
  for (std::uint64_t i = 0; i < 20000; ++i) REQUIRE(scattered.add(1 + 7 * i).number == i);
}
