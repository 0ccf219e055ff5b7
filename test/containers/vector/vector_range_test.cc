// Changing the elements of managed vectors through iterators: what standard algorithms need, over vectors that do not fit.
#include "containers/fixture.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>

using namespace fm::test;

namespace {

struct record {
  std::uint64_t key = 0;
  std::array<std::uint64_t, 7> more{};
};
struct item {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> weight{};
};

template <class T>
using iterator_of = typename fm::mutable_range<T>::iterator;
static_assert(std::random_access_iterator<iterator_of<record>>);
static_assert(std::sortable<iterator_of<std::uint64_t>>);
static_assert(std::ranges::random_access_range<fm::mutable_range<record>>);
static_assert(std::random_access_iterator<iterator_of<fm::ref<item>>>);
static_assert(std::permutable<iterator_of<fm::ref<item>>>);
static_assert(std::permutable<iterator_of<fm::ref<fm::vector<int>>>>);
static_assert(std::random_access_iterator<fm::vector<record>::iterator>);
static_assert(std::random_access_iterator<fm::vector<fm::ref<item>>::iterator>);

std::vector<std::uint64_t> random_numbers(std::size_t n, std::uint64_t seed, std::uint64_t below) {
  std::mt19937_64 rng(seed);
  std::vector<std::uint64_t> all(n);
  for (auto& x : all) x = rng() % below;
  return all;
}

/// How many pins hold the chunk that a reference leads into.
template <class T>
std::uint32_t pins_of(T& first_of_chunk) {
  return fm::detail::frame::prefix(reinterpret_cast<char*>(&first_of_chunk) - sizeof(fm::array_object<T>)).pins.load();
}

}  // namespace

TEST_CASE("algorithms that change a managed vector do what they do to a std::vector") {
  fm::heap h(tiny());
  const std::size_t n = 20'011;
  std::vector<std::uint64_t> oracle = random_numbers(n, 1, 5000);
  fm::vector<std::uint64_t> v(h);
  std::copy(oracle.begin(), oracle.end(), std::back_inserter(v));
  const auto both = [&](auto&& change) {
    auto m = v.mutate();
    change(oracle.begin(), oracle.end());
    change(m.begin(), m.end());
    REQUIRE(std::equal(v.begin(), v.end(), oracle.begin(), oracle.end()));
  };
  both([](auto first, auto last) { std::sort(first, last); });
  both([](auto first, auto last) { std::reverse(first, last); });
  both([](auto first, auto last) { std::rotate(first, first + 7001, last); });
  both([](auto first, auto last) {
    std::transform(first, last, first, [](std::uint64_t x) { return x * 2654435761 % 9973; });
  });
  both([](auto first, auto last) { std::nth_element(first, first + 10'000, last); });
  both([](auto first, auto last) { std::stable_sort(first, last, [](auto a, auto b) { return a / 16 < b / 16; }); });
  both([](auto first, auto last) { std::make_heap(first, last); });
  both([](auto first, auto last) { std::sort_heap(first, last); });
  both([](auto first, auto last) { std::partition(first, last, [](auto x) { return x % 3 == 0; }); });
  both([](auto first, auto last) { std::fill(std::unique(first, last), last, 77); });
  both([](auto first, auto last) { std::inplace_merge(first, first + (last - first) / 2, last); });
  both(
      [](auto first, auto last) { std::iota(std::make_reverse_iterator(last), std::make_reverse_iterator(first), 5); });
  both([](auto first, auto last) { std::ranges::sort(first, last, std::greater<>()); });
  both([](auto first, auto last) { std::shuffle(first, last, std::mt19937(4)); });
  both([](auto first, auto last) { std::partial_sum(first, last, first); });

  const std::vector<std::uint64_t> other = random_numbers(n, 2, ~0ull);
  auto m = v.mutate();
  REQUIRE(std::copy(other.begin(), other.end(), m.begin()) == m.end());
  REQUIRE(std::equal(m.begin(), m.end(), other.begin(), other.end()));
  for (std::uint64_t& x : v.mutate()) x ^= 1;
  REQUIRE(v[12'345] == (other[12'345] ^ 1));
  REQUIRE(m[12'345] == (other[12'345] ^ 1));
}

TEST_CASE("a vector four times as large as the cache is sorted where it is") {
  fm::heap h(tiny());
  const std::size_t n = 130'000;  // 8 MiB
  fm::vector<record> v(h);
  std::mt19937_64 rng(7);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t key = rng();
    v.push_back({key, {~key, key * 3}});
    sum += key;
  }
  const auto misses = h.stats().misses;
  {
    auto m = v.mutate();
    std::sort(m.begin(), m.end(), [](const record& a, const record& b) { return a.key < b.key; });
  }
  REQUIRE(h.stats().misses > misses + 2000);
  std::uint64_t before = 0, wrong = 0;
  for (const record& r : v) {
    wrong += r.key < before || r.more[0] != ~r.key || r.more[1] != r.key * 3;
    before = r.key;
    sum -= r.key;
  }
  REQUIRE(wrong == 0);
  REQUIRE(sum == 0);
  require_sound(h);
}

TEST_CASE("references are sorted, rotated and swapped as handles") {
  fm::heap h(tiny());
  const std::uint64_t n = 20'000;  // objects of 2.5 MiB
  fm::vector<fm::ref<item>> v(h);
  std::vector<std::uint64_t> oracle = random_numbers(n, 3, 1'000'000);
  for (const std::uint64_t id : oracle) v.push_back(h.make<item>({.id = id, .weight = {id + 1}}));
  const auto require_same = [&] {
    std::uint64_t at = 0, wrong = 0;
    for (const fm::ptr<item>& i : v) wrong += i->id != oracle[at] || i->weight[0] != oracle[at] + 1, ++at;
    REQUIRE(at == n);
    REQUIRE(wrong == 0);
  };
  auto m = v.mutate();
  std::sort(m.begin(), m.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  std::sort(oracle.begin(), oracle.end());
  require_same();
  std::rotate(m.begin(), m.begin() + 5000, m.end());
  std::rotate(oracle.begin(), oracle.begin() + 5000, oracle.end());
  require_same();
  std::ranges::stable_sort(m, [](const fm::ptr<item>& a, const fm::ptr<item>& b) { return a->id % 100 < b->id % 100; });
  std::ranges::stable_sort(oracle, [](auto a, auto b) { return a % 100 < b % 100; });
  require_same();
  std::iter_swap(m.begin(), m.begin() + 9999);
  std::iter_swap(oracle.begin(), oracle.begin() + 9999);
  require_same();

  const fm::ptr<item> first = m[0];
  REQUIRE(m[0] == first);
  m[1] = m[0];
  REQUIRE((m[1] == m[0] && v[1] == first));
  REQUIRE(m.begin()->id == first->id);
  (*m.begin()).write()->weight[2] = 9;
  REQUIRE(first->weight[2] == 9);
  m[1] = nullptr;
  REQUIRE_FALSE(m[1]);
  REQUIRE_FALSE(v[1]);
  fm::vector<fm::ref<fm::vector<int>>> rows(h);
  for (int i = 0; i < 2000; ++i) {
    rows.push_back(fm::vector<int>(h));
    rows.back().push_back(i);
  }
  auto r = rows.mutate();
  std::reverse(r.begin(), r.end());
  const fm::vector<int> row = r[0];
  REQUIRE(row[0] == 1999);
}

TEST_CASE("references into three chunks are good together, and nothing stays pinned") {
  fm::heap h(tiny());
  fm::vector<std::uint64_t> v(h);
  v.resize(40 * 1024);
  std::mt19937_64 rng(17);
  {
    auto m = v.mutate();
    const auto touch = [&](std::uint64_t chunk) -> std::uint64_t& { return m[chunk * 1024]; };
    for (int round = 0; round < 2000; ++round) {
      for (std::uint64_t k = rng() % 6; k > 0; --k) (void)touch(rng() % 40);
      const std::uint64_t a = rng() % 40, b = (a + 1 + rng() % 39) % 40, c = (b + 1 + rng() % 39) % 40;
      std::uint64_t &x = touch(a), &y = touch(b), &z = touch(c);
      REQUIRE((pins_of(x) > 0 && pins_of(y) > 0 && pins_of(z) > 0));
      x += 1, y += 1, z += 1;
    }
    REQUIRE(std::accumulate(m.begin(), m.end(), std::uint64_t{0}) == 6000);
  }
  // The walk's own pin is the only one.
  v.for_each_chunk_write([](std::span<std::uint64_t> c) { REQUIRE(pins_of(c[0]) == 1); });
  require_sound(h);
  REQUIRE(std::accumulate(v.begin(), v.end(), std::uint64_t{0}) == 6000);
}

TEST_CASE("spans of chunks cover a vector once and in order") {
  fm::heap h(tiny());
  for (const std::uint64_t n : {0ul, 1ul, 3ul, 1023ul, 1024ul, 1025ul, 9000ul}) {
    fm::vector<std::uint64_t> v(h);
    v.resize(n);
    std::uint64_t at = 0;
    v.for_each_chunk_write([&](std::span<std::uint64_t> c) {
      REQUIRE_FALSE(c.empty());
      std::iota(c.begin(), c.end(), at);
      at += c.size();
    });
    REQUIRE(at == n);
    at = 0;
    v.for_each_chunk([&](std::span<const std::uint64_t> c) {
      REQUIRE(c.front() == at);
      at += c.size();
      REQUIRE(c.back() == at - 1);
    });
    REQUIRE(at == n);
  }
}

TEST_CASE("a scan in order waits for few of its chunks, and a search fetches nothing ahead") {
  fm::heap_options options = tiny(16_MiB);
  options.elastic = false;
  fm::heap h(options);
  fm::vector<std::uint64_t> v(h);
  constexpr std::uint64_t n = 512 * 1024;
  v.resize(n);
  v.for_each_chunk_write([at = std::uint64_t{0}](std::span<std::uint64_t> c) mutable {
    std::iota(c.begin(), c.end(), at);
    at += c.size();
  });
  const auto fetches_of = [&](auto&& use) {
    REQUIRE(h.evict_all() == fm::errc::ok);
    const fm::heap_stats before = h.stats();
    use();
    const fm::heap_stats after = h.stats();
    return std::pair(after.misses - before.misses, after.prefetches - before.prefetches);
  };
  const auto scanned = [&](auto&& sum) {
    const auto [misses, prefetches] = fetches_of([&] { REQUIRE(sum() == n * (n - 1) / 2); });
    CHECK(misses < 100);
    CHECK(prefetches > 412);
    CHECK(prefetches <= 512);
  };
  scanned([&] { return std::accumulate(v.begin(), v.end(), std::uint64_t{0}); });
  scanned([&] {
    std::uint64_t sum = 0;
    v.for_each([&](std::uint64_t x) { sum += x; });
    return sum;
  });
  scanned([&] {
    auto m = v.mutate();
    return std::accumulate(m.begin(), m.end(), std::uint64_t{0});
  });
  const auto searched = fetches_of([&] { REQUIRE(*std::lower_bound(v.begin(), v.end(), 77'777u) == 77'777u); });
  CHECK(searched.second == 0);
  require_sound(h);
}

TEST_CASE("a mutable range says what is wrong, and stays usable") {
  fm::heap h(tiny());
  fm::vector<int> v(h);
  v.push_back(1);
  auto m = v.mutate();
  REQUIRE(code_of([&] { (void)*m.end(); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { (void)m[1]; }) == fm::errc::out_of_range);
  m[0] = 5;
  REQUIRE(v[0] == 5);
  REQUIRE((m.size() == 1 && !m.empty()));
  // The chunk that is pinned now has room for more elements than the vector has.
  REQUIRE(code_of([&] { m[1] = 7; }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { (void)*m.end(); }) == fm::errc::out_of_range);
  auto it = v.begin();
  REQUIRE(*it == 5);
  REQUIRE(code_of([&] { (void)*++it; }) == fm::errc::out_of_range);
  v.resize(2);
  REQUIRE(v[1] == 0);
  v.resize(1);
  REQUIRE(fm::vector<int>(h).mutate().empty());
  REQUIRE(code_of([] { (void)fm::vector<int>().mutate(); }) == fm::errc::null_handle);
}
