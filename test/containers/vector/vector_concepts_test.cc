// The iterators of managed vectors as the concepts of the standard library see them, and the algorithms of std::ranges
// over both of them: the reading ones, and those of the mutable range.
#include "containers/fixture.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <ranges>

using namespace fm::test;

namespace {

struct keyed {
  std::uint64_t key = 0;
  std::uint64_t number = 0;
};
struct named_item {
  std::uint64_t id = 0;
};

template <class T>
using reading = typename fm::vector<T>::iterator;
template <class T>
using writing = typename fm::mutable_range<T>::iterator;
template <class T>
using value_of = typename fm::vector<T>::value_type;

/// The reading side: elements by value, which nothing is written to.
template <class T>
constexpr bool reads =
    std::random_access_iterator<reading<T>>&& std::ranges::random_access_range<fm::vector<T>>&&
        std::ranges::random_access_range<const fm::vector<T>&>&& std::ranges::sized_range<fm::vector<T>>&&
            std::ranges::common_range<fm::vector<T>>&& std::sized_sentinel_for<reading<T>, reading<T>>&&
                std::same_as<std::iter_value_t<reading<T>>, value_of<T>> &&
    !std::contiguous_iterator<reading<T>> && !std::indirectly_writable<reading<T>, value_of<T>> &&
    !std::permutable<reading<T>>;

/// The writing side: elements in place, or proxies for references.
template <class T>
constexpr bool writes =
    std::random_access_iterator<writing<T>>&& std::ranges::random_access_range<fm::mutable_range<T>>&&
        std::ranges::sized_range<fm::mutable_range<T>>&& std::same_as<std::iter_value_t<writing<T>>, value_of<T>>&&
            std::indirectly_writable<writing<T>, value_of<T>>&& std::indirectly_copyable<reading<T>, writing<T>>&&
                std::indirectly_movable_storable<writing<T>, writing<T>>&& std::indirectly_swappable<writing<T>>&&
                    std::permutable<writing<T>>;

static_assert(reads<int> && writes<int>);
static_assert(reads<bool> && writes<bool>);
static_assert(reads<keyed> && writes<keyed>);
static_assert(reads<fm::ref<named_item>> && writes<fm::ref<named_item>>);
static_assert(reads<fm::ref<fm::string>> && writes<fm::ref<fm::string>>);
static_assert(reads<fm::ref<fm::vector<int>>> && writes<fm::ref<fm::vector<int>>>);
static_assert(std::sortable<writing<int>> && std::sortable<writing<bool>>);
static_assert(std::sortable<writing<keyed>, std::ranges::less, std::uint64_t keyed::*>);
static_assert(std::sortable<writing<fm::ref<fm::string>>>);  // by text

std::uint64_t id_of(const fm::ptr<named_item>& p) { return p->id; }

}  // namespace

TEST_CASE("std::ranges reads a managed vector and a mutable range alike") {
  fm::heap h(tiny());
  const std::uint64_t n = 5000;
  const fm::vector<std::uint64_t> v(
      h, std::views::iota(std::uint64_t{0}, n) | std::views::transform([](std::uint64_t i) { return i * 3; }));
  const auto look = [&](auto&& range) {
    REQUIRE(std::ranges::size(range) == n);
    REQUIRE(std::ranges::find(range, 3 * 1234u) - std::ranges::begin(range) == 1234);
    REQUIRE(std::ranges::find(range, 1u) == std::ranges::end(range));
    REQUIRE(std::ranges::lower_bound(range, 3001u) - std::ranges::begin(range) == 1001);
    REQUIRE(std::ranges::binary_search(range, 3 * 4999u));
    REQUIRE(std::ranges::is_sorted(range));
    REQUIRE(std::ranges::count_if(range, [](std::uint64_t x) { return x % 2 == 0; }) == n / 2);
    REQUIRE(std::ranges::max(range) == 3 * (n - 1));
    std::vector<std::uint64_t> copy(n), halves(n);
    REQUIRE(std::ranges::copy(range, copy.begin()).out == copy.end());
    REQUIRE(std::ranges::equal(range, copy));
    std::ranges::transform(range, halves.begin(), [](std::uint64_t x) { return x / 3; });
    REQUIRE(halves[4321] == 4321);
  };
  look(v);
  auto m = v.mutate();
  look(m);
  std::uint64_t at = n;
  for (const std::uint64_t x : v | std::views::reverse | std::views::filter([](std::uint64_t x) { return x % 2 == 0; }))
    REQUIRE((at -= at == n ? 2 : 2, x == 3 * at));
}

TEST_CASE("std::ranges changes a mutable range as it changes a std::vector") {
  fm::heap h(tiny());
  std::mt19937_64 rng(3);
  std::vector<keyed> oracle;
  for (std::uint64_t i = 0; i < 6000; ++i) oracle.push_back({rng() % 1000, i});
  fm::vector<keyed> v(h, oracle);
  auto m = v.mutate();
  const auto both = [&](auto&& change) {
    change(oracle);
    change(m);
    REQUIRE(std::ranges::equal(v, oracle, {}, &keyed::number, &keyed::number));
  };
  both([](auto&& r) { std::ranges::stable_sort(r, {}, &keyed::key); });
  both([](auto&& r) { std::ranges::sort(r, std::ranges::greater(), &keyed::number); });
  both([](auto&& r) { std::ranges::rotate(r, r.begin() + 1700); });
  both([](auto&& r) { std::ranges::reverse(r); });
  both([](auto&& r) { std::ranges::nth_element(r, r.begin() + 3000, {}, &keyed::number); });
  both([](auto&& r) { std::ranges::partition(r, [](const keyed& x) { return x.key % 3 == 0; }); });
  both([](auto&& r) {
    std::ranges::transform(r, r.begin(), [](const keyed& x) { return keyed{x.key, x.number ^ 5}; });
  });
  both([](auto&& r) { std::ranges::copy(r.begin(), r.begin() + 100, r.begin() + 4000); });
  both([](auto&& r) { std::ranges::shuffle(r, std::mt19937(5)); });
  both([](auto&& r) { std::ranges::swap_ranges(r.begin(), r.begin() + 50, r.begin() + 5000, r.begin() + 5050); });
  both([](auto&& r) { std::ranges::fill(std::ranges::remove(r, 7u, &keyed::key), keyed{1, 2}); });
  // A range that is a temporary lives as long as the algorithm runs.
  std::ranges::sort(v.mutate(), {}, &keyed::key);
  std::ranges::sort(oracle, {}, &keyed::key);
  REQUIRE(std::ranges::equal(v, oracle, {}, &keyed::key, &keyed::key));
}

TEST_CASE("std::ranges sorts, finds and copies references and truth values") {
  fm::heap h(tiny());
  std::mt19937_64 rng(9);
  std::vector<std::uint64_t> oracle(3000);
  for (auto& x : oracle) x = rng() % 100'000;
  fm::vector<fm::ref<named_item>> v(h);
  v.append(oracle | std::views::transform([&](std::uint64_t id) { return h.make<named_item>(id); }));
  auto m = v.mutate();
  std::ranges::sort(m, {}, id_of);
  std::ranges::sort(oracle);
  REQUIRE(std::ranges::equal(v, oracle, {}, id_of));
  REQUIRE(std::ranges::find(v, v[2000]) - v.begin() <= 2000);
  REQUIRE((*std::ranges::lower_bound(v, oracle[1500], {}, id_of))->id == oracle[1500]);
  const fm::vector<fm::ref<named_item>> copy(h, std::vector<fm::ptr<named_item>>(v.size()));
  std::ranges::copy(v, copy.mutate().begin());
  REQUIRE(copy.equal_elements(v));
  std::ranges::transform(v, m.begin(), [&](const fm::ptr<named_item>& p) { return h.make<named_item>(p->id + 1); });
  REQUIRE(v[70]->id == oracle[70] + 1);

  fm::vector<fm::ref<fm::string>> words(h, {h.str("c"), h.str("a"), h.str("b")});
  std::ranges::sort(words.mutate());
  REQUIRE((words[0] == "a" && words[1] == "b" && words[2] == "c"));

  fm::vector<bool> bits(h);
  for (int i = 0; i < 20'000; ++i) bits.push_back(rng() % 3 == 0);
  const auto ones = std::ranges::count(bits, true);
  std::ranges::sort(bits.mutate());
  REQUIRE(std::ranges::lower_bound(bits, true) - bits.begin() == 20'000 - ones);
}
