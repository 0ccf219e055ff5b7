// How long a wait goes on beside what moves, what has stopped, and what moves for ever; by a clock that the test turns.
#include "base/base.h"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using fm::detail::patience;

namespace {
const fm::time_point zero{std::chrono::hours(1)};
}  // namespace

TEST_CASE("a wait fails when nothing has moved for its deadline") {
  patience p(5s, zero, 7);
  CHECK_FALSE(p.over(zero + 4999ms, 7));
  CHECK(p.over(zero + 5s, 7));
}

TEST_CASE(
    "a wait beside something that moves goes on past its deadline, and fails one deadline after the last movement") {
  patience p(5s, zero, 0);
  std::uint64_t moved = 0;
  for (auto at = 0s; at <= 20s; at += 4s) CHECK_FALSE(p.over(zero + at, ++moved));
  CHECK(p.until() == zero + 25s);
  CHECK_FALSE(p.over(zero + 24999ms, moved));
  CHECK(p.over(zero + 25s, moved));
}

TEST_CASE("a wait beside something that moves for ever fails after six times its deadline") {
  patience p(5s, zero, 0);
  std::uint64_t looks = 0;
  fm::time_point now = zero;
  for (; !p.over(now, ++looks); now += 1s) REQUIRE(looks < 100);
  CHECK(now == zero + 30s);
}

TEST_CASE("a movement that happened just before the deadline is not missed by looks that are rare") {
  patience p(8s, zero, 0);
  CHECK(p.look_again(zero) == zero + 1s);
  CHECK(p.look_again(zero + 7500ms) == zero + 8s);
  CHECK_FALSE(p.over(zero + 8s, 1));  // it moved since the last look
  CHECK(p.over(zero + 16s, 1));
}

TEST_CASE("a wait for what is still to come goes on for a deadline more, and ends after six of them") {
  patience p(5s, zero, 0);
  CHECK(p.over(zero + 5s, 0));
  CHECK(p.goes_on(zero + 5s));
  CHECK_FALSE(p.over(zero + 9s, 0));
  CHECK(p.over(zero + 10s, 0));
  CHECK_FALSE(p.goes_on(zero + 30s));
}
