// When an agent counts as overloaded, and what is moved because of it, by loads that the test gives.
#include "cache/replicas/agent_loads.h"

#include <catch2/catch.hpp>

#include "cache/tablets/placement.h"

using fm::detail::agent_loads;
using fm::detail::placement;
namespace limits = fm::detail::limits;

namespace {

/// Agents with these loads; less than 0: one that does not tell.
std::vector<agent_loads::report> with(std::initializer_list<double> loads) {
  std::vector<agent_loads::report> all;
  for (const double l : loads) all.push_back({true, l < 0 ? std::nullopt : std::optional(l)});
  return all;
}
void look(agent_loads& loads, const std::vector<agent_loads::report>& all, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) loads.look(all);
}

}  // namespace

TEST_CASE("an agent is overloaded after several looks in a row, and until it is well below that") {
  agent_loads loads;
  look(loads, with({0.9, 0.1}), limits::overloaded_looks - 1);
  CHECK_FALSE(loads.is_overloaded(0));
  loads.look(with({0.7, 0.1}));  // a burst
  look(loads, with({0.9, 0.1}), limits::overloaded_looks - 1);
  CHECK_FALSE(loads.is_overloaded(0));
  CHECK_FALSE(loads.wanted());
  loads.look(with({0.9, 0.1}));
  CHECK(loads.is_overloaded(0));
  CHECK_FALSE(loads.is_overloaded(1));
  CHECK_FALSE(loads.is_overloaded(2));  // there is none
  look(loads, with({limits::relaxed_below + 0.01, 0.1}), 10);
  CHECK(loads.is_overloaded(0));
  loads.look(with({limits::relaxed_below - 0.01, 0.1}));
  CHECK_FALSE(loads.is_overloaded(0));
}

TEST_CASE("tablets move from the busiest agent to the least busy one, and no more than what makes them equal") {
  agent_loads loads;
  look(loads, with({0.9, 2.0, 0.2, 0.4}), limits::overloaded_looks);
  const auto s = loads.wanted();
  REQUIRE(s);
  CHECK(s->from == 1);
  CHECK(s->to == 2);
  CHECK(s->share == limits::load_share_most);

  look(loads, with({0.1, 1.0, 0.9, 0.9}), limits::overloaded_looks);
  REQUIRE(loads.wanted());
  look(loads, with({0.8, 1.0, 0.9, 0.9}), limits::overloaded_looks);
  CHECK_FALSE(loads.wanted());  // all are
  look(loads, with({2.0, 1.6}), limits::overloaded_looks);
  const auto little = loads.wanted();
  REQUIRE(little);
  CHECK(little->share < limits::load_share_most);
  CHECK(little->share == Approx(0.1));
}

TEST_CASE("a shift is followed by another one only if the agent is overloaded again, each time later") {
  agent_loads loads;
  std::uint32_t needed = limits::overloaded_looks;
  for (int round = 0; round < 10; ++round) {
    look(loads, with({1.5, 0.1}), needed - 1);
    CHECK_FALSE(loads.wanted());
    loads.look(with({1.5, 0.1}));
    const auto s = loads.wanted();
    REQUIRE(s);
    CHECK(loads.is_wanted_still(*s));
    loads.ended(*s);
    CHECK_FALSE(loads.wanted());
    needed = std::min(2 * needed, limits::overloaded_looks_most);
  }
  loads.look(with({0.1, 0.1}));
  look(loads, with({1.5, 0.1}), limits::overloaded_looks);
  CHECK(loads.wanted());
}

TEST_CASE("a shift ends when it has led to what it is for, or when an agent does not tell any more") {
  agent_loads loads;
  look(loads, with({1.5, 0.1}), limits::overloaded_looks);
  const auto s = loads.wanted();
  REQUIRE(s);
  loads.look(with({0.9, 0.8}));
  CHECK(loads.is_wanted_still(*s));
  loads.look(with({0.8, 0.9}));
  CHECK_FALSE(loads.is_wanted_still(*s));
  loads.look(with({limits::relaxed_below - 0.1, 0.1}));
  CHECK_FALSE(loads.is_wanted_still(*s));
  loads.look(with({1.5, -1}));
  CHECK_FALSE(loads.is_wanted_still(*s));
  loads.look(with({-1, 0.1}));
  CHECK_FALSE(loads.is_wanted_still(*s));
}

TEST_CASE("an agent that does not tell, or that may not be moved from, is neither relieved nor burdened") {
  agent_loads loads;
  look(loads, with({1.5, -1}), 10);
  CHECK(loads.is_overloaded(0));
  CHECK_FALSE(loads.wanted());
  auto all = with({1.5, 0.1, 0.2});
  all[1].may_move = false;
  look(loads, all, limits::overloaded_looks);
  const auto s = loads.wanted();
  REQUIRE(s);
  CHECK(s->to == 2);
  all[0].may_move = false;
  loads.look(all);
  CHECK_FALSE(loads.is_overloaded(0));
  CHECK_FALSE(loads.wanted());
}

TEST_CASE("an overloaded agent gets a quarter of what its room is worth, and all if nobody else has room") {
  constexpr std::uint64_t mib = 1 << 20;
  placement where;
  where.open(2);
  std::vector<std::uint64_t> left{1024 * mib, 1024 * mib};
  const auto placed = [&](std::uint32_t n) {
    std::vector<std::uint32_t> got(2);
    for (std::uint32_t i = 0; i < n; ++i) ++got[*where.next([&](std::uint32_t k) { return left[k]; }, 0, mib, mib)];
    return got;
  };
  CHECK(placed(100) == std::vector<std::uint32_t>{50, 50});
  where.set_overloaded(1, true);
  CHECK(placed(100) == std::vector<std::uint32_t>{80, 20});
  left[0] = 0;
  CHECK(placed(100) == std::vector<std::uint32_t>{0, 100});
  left[0] = 1024 * mib;
  where.set_overloaded(1, false);
  const auto again = placed(100);
  CHECK(again[0] == 50);
}
