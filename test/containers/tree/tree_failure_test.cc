// Operations of trees that fail: each fetch in turn, for want of memory on the agent, or in the cache. The table of
// docs/how-to/containers.md says what each leaves.
#include "containers/hash/table_failure.h"

using namespace fm::test;

namespace {

using tree = fm::map<std::uint64_t, std::uint64_t>;

std::vector<table_operation<fm::map>> operations() {
  using both = both_maps<fm::map>;
  auto all = table_operations<fm::map>();
  all.push_back({"first and last", true, [](const both& b) { (void)b.m.first(), (void)b.t.last(); }, [](auto&) {}});
  all.push_back({"bounds", true, [](const both& b) { (void)b.m.lower_bound(500), (void)b.t.upper_bound(text_of(500)); },
                 [](auto&) {}});
  all.push_back({"bulk_load", true,
                 [](const both& b) {
                   b.m.bulk_load(std::vector<std::pair<int, int>>{{1, 2}, {3, 4}});
                 },
                 [](table_numbers& n) {
                   n = {{1, 2}, {3, 4}};
                 }});
  return all;
}

}  // namespace

TEST_CASE("a tree keeps what the table says when any fetch fails") { fail_each_fetch_of<fm::map>(operations(), 1'100); }
TEST_CASE("a tree keeps what the table says when the cache is full") {
  fail_without_room<fm::map>(operations(), 1'100);
}

TEST_CASE("an increment of a tree's iterator that throws may be made again") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const tree m(h);
  m.bulk_load(std::views::iota(0, 2'000) | std::views::transform([](int i) { return std::pair(i, i); }));
  std::uint64_t next = 0, failed = 0;
  for (auto i = m.begin(); i != m.end();) {
    REQUIRE(i->first == next++);
    REQUIRE((next % 100 != 0 || h.evict_all() == fm::errc::ok));
    agent.gives = next % 3;
    if (code_of([&] { ++i; }) != fm::errc::ok) {
      ++failed;
      agent.gives = agent.unlimited;
      ++i;
    }
    agent.gives = agent.unlimited;
  }
  REQUIRE((next == 2'000 && failed > 0));
  require_sound(h);
}

TEST_CASE("an operation that finds the agent full leaves its tree as it was") { fill_the_agent<fm::map, fm::set>(); }
TEST_CASE("an operation that finds the cache full leaves its tree as it was") { fill_the_cache<fm::map, fm::set>(); }

TEST_CASE("an erasure after which a tree cannot shrink has erased its key") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const tree m(h);
  constexpr std::uint64_t n = 2'000;
  m.bulk_load(std::views::iota(std::uint64_t{0}, n) | std::views::transform([](auto i) { return std::pair(i, i); }));
  std::uint64_t erased = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i % 10 == 0) continue;
    (void)m.contains(i);  // the path is resident, ...
    agent.gives = 0;      // ... and a neighbour of the leaf is not
    if (code_of([&] { REQUIRE(m.erase(i)); }) == fm::errc::ok) ++erased;
    agent.gives = agent.unlimited;
    if (i % 200 == 199) REQUIRE(h.evict_all() == fm::errc::ok);
  }
  REQUIRE(erased > n / 2);
  REQUIRE(m.size() == n - erased);
  require_sound(h);
}
