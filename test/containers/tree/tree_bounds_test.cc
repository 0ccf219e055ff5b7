// Bounds of trees that are not keys: lower_bound, upper_bound and range with whatever a transparent Compare takes, which may
// be equivalent to keys of several leaves. Each answer is compared with that of a std::map of the same entries.
#include "containers/fixture.h"
#include "containers/names.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>

using namespace fm::test;

namespace {

struct place {
  std::uint32_t group = 0, number = 0;
  friend constexpr auto operator<=>(const place&, const place&) = default;
};
/// All places of a group.
struct group {
  std::uint32_t number = 0;
};
/// By group, then number. `Constant`: as a constant expression, so that keys are compared in place.
template <bool Constant>
struct by_group {
  using is_transparent = void;
  static constexpr void say() {
    if (!Constant) ++asked;
  }
  constexpr bool operator()(const place& a, const place& b) const { return say(), a < b; }
  constexpr bool operator()(const place& a, const group& b) const { return say(), a.group < b.number; }
  constexpr bool operator()(const group& a, const place& b) const { return say(), a.number < b.group; }
  static inline std::atomic<std::uint64_t> asked{0};
};
static_assert(!fm::detail::order_of_program<place, by_group<true>>);
static_assert(fm::detail::order_of_program<place, by_group<false>>);

/// Names in the order of their text.
struct by_text {
  using is_transparent = void;
  constexpr bool operator()(const name& a, const name& b) const { return a.view() < b.view(); }
  constexpr bool operator()(const name& a, std::string_view b) const { return a.view() < b; }
  constexpr bool operator()(std::string_view a, const name& b) const { return a < b.view(); }
};

/// Entries of groups 0, 3, 6 … with 0 to 1,500 places each, so that some fill several leaves.
constexpr std::uint32_t groups = 40;
std::uint32_t size_of(std::uint32_t g) { return g % 3 != 0 ? 0 : g % 2 == 0 ? g : (g * g) % 1'501; }

template <class Compare>
struct both {
  fm::map<place, std::uint64_t, Compare> far;
  fm::set<place, Compare> keys;
  std::map<place, std::uint64_t, Compare> oracle;

  explicit both(fm::heap& h) : far(h), keys(h) {
    for (std::uint32_t g = 0; g < groups; ++g)
      for (std::uint32_t i = 0; i < size_of(g); ++i) add({g, i * 7 % size_of(g)});
  }
  void add(const place& p) {
    far.insert(p, p.number), keys.insert(p);
    oracle.emplace(p, p.number);
  }
  template <class First, class Last>
  void require_same(const First& first, const Last& last) {
    auto expected = oracle.lower_bound(first);
    const auto end = oracle.lower_bound(last);
    const bool ascends =
        expected == oracle.end() ? end == oracle.end() : end == oracle.end() || !(end->first < expected->first);
    if (!ascends) expected = end;  // a range that begins after its end is empty
    for (const auto& [k, v] : far.range(first, last)) {
      REQUIRE((expected != end && k == expected->first && v == expected->second));
      ++expected;
    }
    REQUIRE(expected == end);
    const auto shown = keys.range(first, last);
    REQUIRE(std::ranges::distance(shown) == (ascends ? std::distance(oracle.lower_bound(first), end) : 0));
  }
  void require_same_bounds(const group& g) {
    const auto low = far.lower_bound(g), high = far.upper_bound(g);
    const auto expected_low = oracle.lower_bound(g), expected_high = oracle.upper_bound(g);
    REQUIRE((low == far.end()) == (expected_low == oracle.end()));
    REQUIRE((high == far.end()) == (expected_high == oracle.end()));
    if (low != far.end()) REQUIRE((low->first == expected_low->first && *keys.lower_bound(g) == low->first));
    if (high != far.end()) REQUIRE((high->first == expected_high->first && *keys.upper_bound(g) == high->first));
    REQUIRE(std::distance(low, far.end()) == std::distance(expected_low, oracle.end()));
    REQUIRE(std::distance(high, far.end()) == std::distance(expected_high, oracle.end()));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("bounds of a tree may be what its transparent Compare takes, equivalent to any number of keys", "",
                   by_group<true>, by_group<false>) {
  fm::heap h(tiny());
  both<TestType> t(h);
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (std::uint32_t g = 0; g <= groups; ++g) t.require_same_bounds({g});
  for (std::uint32_t from = 0; from <= groups; from += 3)
    for (std::uint32_t to = 0; to <= groups; to += 4) t.require_same(group{from}, group{to});
  for (std::uint32_t g = 0; g < groups; g += 5) {
    t.require_same(group{g}, place{g, size_of(g) / 2});
    t.require_same(place{g, size_of(g) / 2}, group{g + 1});
    t.require_same(place{g, 5}, place{g + 7, 9});
  }
  require_sound(h);
}

TEMPLATE_TEST_CASE("bounds of a tree pass leaves that erasures have emptied", "", by_group<true>, by_group<false>) {
  fm::heap h(tiny());
  both<TestType> t(h);
  const auto goes = [](const place& p) { return p.group == 27 || (p.group == 33 && p.number % 300 != 0); };
  for (auto i = t.oracle.begin(); i != t.oracle.end();) {
    if (!goes(i->first)) {
      ++i;
      continue;
    }
    REQUIRE((t.far.erase(i->first) && t.keys.erase(i->first)));
    i = t.oracle.erase(i);
  }
  for (std::uint32_t g = 24; g < groups; ++g) t.require_same_bounds({g});
  t.require_same(group{26}, group{28});
  t.require_same(group{33}, group{34});
  require_sound(h);
}

TEST_CASE("a range keeps the text that it was given") {
  fm::heap h(tiny());
  const fm::map<name, std::uint64_t, by_text> m(h);
  for (std::uint64_t i = 100; i < 999; ++i) m.insert(name::of("name " + std::to_string(i)), i);
  const auto range = [&] {
    const std::string first = "name 2, and more than a string has inside of itself", last = "name 300";
    return m.range(std::string_view(first), last.c_str());
  }();
  for (int again = 0; again < 2; ++again) {
    std::uint64_t next = 200;
    for (const auto& [k, v] : range) REQUIRE(v == next++);
    REQUIRE(next == 300);
  }
  REQUIRE(std::ranges::distance(m.range("name 2", "name 3")) == 100);
  REQUIRE(std::ranges::distance(m.range(name::of("name 250"), std::string("name 3"))) == 50);
  REQUIRE(m.lower_bound("name 5")->second == 500);
  REQUIRE(m.upper_bound("name 500")->second == 501);
  REQUIRE(m.upper_bound(std::string_view("name 998")) == m.end());
}

TEMPLATE_TEST_CASE("a range between bounds sees each key that stays once, beside a writer", "", by_group<true>,
                   by_group<false>) {
  fm::heap h(tiny());
  const fm::map<place, std::uint64_t, TestType> m(h);
  for (std::uint32_t g = 0; g < 3; ++g)
    for (std::uint32_t i = 0; i < 1'000; ++i) m.insert({g, 2 * i}, i);
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint32_t i = 0; !stop.stop_requested(); i = (i + 1) % 3'000) {
      const place p{i / 1'000, 2 * (i % 1'000) + 1};
      if (!m.insert(p, 0)) m.erase(p);
    }
  });
  for (int round = 0; round < 20; ++round) {
    std::uint32_t stayed = 0;
    place last{0, ~0u};
    for (const auto& [k, v] : m.range(group{1}, group{2})) {
      REQUIRE((k.group == 1 && k > last));
      last = k;
      stayed += k.number % 2 == 0;
    }
    REQUIRE(stayed == 1'000);
  }
  writer.request_stop();
  writer.join();
  require_sound(h);
}
