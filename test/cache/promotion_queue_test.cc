// Tablets that threads wait for get their new primaries before all others, and each of them once.
#include "cache/replicas/promotion_queue.h"
#include <catch2/catch.hpp>

#include <array>
#include <vector>

using fm::detail::promotion_queue;
using fm::detail::tablet_move;

namespace {

const std::array<tablet_move, 2> moves{{{.first = 3, .count = 2, .to = 1}, {.first = 9, .count = 1, .to = 2}}};

std::vector<std::uint32_t> numbers(const std::vector<tablet_move>& taken) {
  std::vector<std::uint32_t> out;
  for (const tablet_move& m : taken) out.insert(out.end(), m.count, m.first);
  return out;
}

}  // namespace

TEST_CASE("a tablet that is waited for is the next to be swept, unless it was, or is none of those that move") {
  promotion_queue q(moves);
  CHECK(q.next({}) == 3);
  CHECK(q.next(9) == 9);
  CHECK(q.next(5) == 3);
  q.note_swept(9);
  CHECK(q.next(9) == 3);
  CHECK(q.is_swept(9));
  CHECK_FALSE(q.is_swept(4));
}

TEST_CASE("each tablet that was swept is taken once, with its new primary") {
  promotion_queue q(moves);
  CHECK(q.take_swept().empty());
  q.note_swept(9);
  const std::vector<tablet_move> first = q.take_swept();
  REQUIRE(numbers(first) == std::vector<std::uint32_t>{9});
  CHECK(first[0].to == 2);
  CHECK_FALSE(q.is_swept(9));
  while (const auto t = q.next({})) q.note_swept(*t);
  const std::vector<tablet_move> rest = q.take_swept();
  CHECK(numbers(rest) == std::vector<std::uint32_t>{3, 4});
  CHECK(rest[1].to == 1);
  CHECK_FALSE(q.next(3).has_value());
}
