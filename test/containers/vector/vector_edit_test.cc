// Editing managed vectors: insert, erase, append, assign, compare and copy, against std::vector, with evictions and
// collections in between.
#include <algorithm>
#include <iterator>
#include <list>
#include <numeric>
#include <random>
#include <ranges>
#include <sstream>

#include "containers/transports.h"

using namespace fm::test;

namespace {

struct place_of_word {
  std::uint32_t file = 0;
  std::uint32_t line = 0;
  friend bool operator==(const place_of_word&, const place_of_word&) = default;
};
struct wide_page {
  std::array<std::uint64_t, 300> words{};  // three to a chunk
  friend bool operator==(const wide_page&, const wide_page&) = default;
};
struct numbered {
  std::uint64_t id = 0;
};

/// Elements of one type, made of numbers, and what they are compared by.
template <class T>
struct maker {
  static T make(fm::heap&, std::uint64_t n) { return static_cast<T>(n); }
};
template <>
struct maker<place_of_word> {
  static place_of_word make(fm::heap&, std::uint64_t n) { return {std::uint32_t(n), std::uint32_t(n >> 32)}; }
};
template <>
struct maker<wide_page> {
  static wide_page make(fm::heap&, std::uint64_t n) {
    wide_page p;
    p.words.fill(n);
    return p;
  }
};
template <>
struct maker<fm::ref<numbered>> {
  static fm::ptr<numbered> make(fm::heap& h, std::uint64_t n) { return h.make<numbered>({.id = n}); }
};

/// A managed vector and what it should hold. Handles are equal if they name one object, so an element that is lost, or
/// in another place, is told from its equal.
template <class T>
class pair_of_vectors {
 public:
  using value = typename fm::vector<T>::value_type;
  using argument = typename fm::vector<T>::argument;

  pair_of_vectors(fm::heap& h, std::uint64_t seed, std::size_t most) : h_(h), v_(h), rng_(seed), most_(most) {}

  void step() {
    if (oracle_.size() > most_) erase(rng_() % 4 == 0 ? 0 : oracle_.size() / 3, oracle_.size() / 2);
    const std::size_t n = oracle_.size(), at = rng_() % (n + 1);
    switch (rng_() % 16) {
      case 0:
      case 1: insert_one(at); break;
      case 2: insert_value(at, rng_() % 4 == 0 ? rng_() % most_ / 4 : rng_() % 5); break;
      case 3: insert_values(at, rng_() % 4 == 0 ? rng_() % most_ / 4 : rng_() % 5); break;
      case 4: insert_vector(at, rng_() % 4 == 0 ? rng_() % most_ / 4 : rng_() % 5); break;
      case 5: insert_itself(at); break;
      case 6:
      case 7:
        if (n != 0) erase(at % n, at % n + 1);
        break;
      case 8: erase(at, at + rng_() % (n - at + 1) / (rng_() % 8 + 1)); break;
      case 9: append(rng_() % 40); break;
      case 10: append_itself(); break;
      case 11: erase_some(); break;
      case 12: assign(rng_() % 64 == 0); break;
      case 13: resize(rng_() % 2 == 0 ? n + rng_() % 20 : n - std::min(n, rng_() % 20)); break;
      case 14: exchange(); break;
      default: emplace(at); break;
    }
    REQUIRE(v_.size() == oracle_.size());
  }
  void check() {
    REQUIRE(v_.size() == oracle_.size());
    REQUIRE(std::ranges::equal(v_, oracle_));
    const std::size_t n = oracle_.size();
    // What is beyond the size must not come back.
    v_.reserve(n + 3);
    v_.resize(n + 3);
    for (std::size_t i = 0; i < 3; ++i) REQUIRE(v_[n + i] == value{});
    v_.resize(n);
  }

 private:
  using iterator = typename fm::vector<T>::iterator;
  iterator at(std::size_t i) { return v_.begin() + std::ptrdiff_t(i); }
  auto in_oracle(std::size_t i) { return oracle_.begin() + std::ptrdiff_t(i); }
  argument fresh() { return maker<T>::make(h_, rng_()); }
  std::vector<argument> several(std::size_t n) {
    std::vector<argument> all;
    for (std::size_t i = 0; i < n; ++i) all.push_back(fresh());
    return all;
  }
  void require_at(const iterator& it, std::size_t i) { REQUIRE(it == at(i)); }

  void insert_one(std::size_t i) {
    const argument a = fresh();
    oracle_.insert(in_oracle(i), value(a));
    require_at(v_.insert(at(i), a), i);
  }
  void insert_value(std::size_t i, std::size_t n) {
    const argument a = fresh();
    oracle_.insert(in_oracle(i), n, value(a));
    require_at(v_.insert(at(i), n, a), i);
  }
  void insert_values(std::size_t i, std::size_t n) {
    const std::vector<argument> all = several(n);
    const std::list<argument> list(all.begin(), all.end());
    oracle_.insert(in_oracle(i), all.begin(), all.end());
    if (rng_() % 2)
      require_at(v_.insert(at(i), all.begin(), all.end()), i);
    else
      require_at(v_.insert_range(at(i), list), i);
  }
  void insert_vector(std::size_t i, std::size_t n) {
    const fm::vector<T> other(h_, several(n));
    oracle_.insert(in_oracle(i), other.begin(), other.end());
    require_at(v_.insert_range(at(i), other), i);
  }
  void insert_itself(std::size_t i) {
    const std::vector<value> same = oracle_;
    oracle_.insert(in_oracle(i), same.begin(), same.end());
    if (rng_() % 2)
      require_at(v_.insert_range(at(i), v_), i);
    else
      require_at(v_.insert(at(i), v_.begin(), v_.end()), i);
  }
  void erase(std::size_t from, std::size_t to) {
    oracle_.erase(in_oracle(from), in_oracle(to));
    require_at(to - from == 1 ? v_.erase(at(from)) : v_.erase(at(from), at(to)), from);
  }
  void append(std::size_t n) {
    const std::vector<argument> all = several(n);
    oracle_.insert(oracle_.end(), all.begin(), all.end());
    if (rng_() % 2)
      v_.append(all);
    else
      v_.append(std::list<argument>(all.begin(), all.end()));
  }
  void append_itself() {
    const std::vector<value> same = oracle_;
    oracle_.insert(oracle_.end(), same.begin(), same.end());
    switch (rng_() % 3) {
      case 0: v_.append(v_); break;
      case 1: v_.append(v_.begin(), v_.end()); break;
      default: v_.append(v_.clone());
    }
  }
  void erase_some() {
    // By place, which a predicate that is asked in order can count.
    const std::uint64_t salt = rng_(), one_in = rng_() % 5 + 1;
    const auto goes = [=](std::uint64_t k) { return (k * 2654435761 ^ salt) % 7 % one_in == 0 && one_in > 1; };
    std::uint64_t k = 0, j = 0;
    const auto mine = std::erase_if(oracle_, [&](const auto&) { return goes(k++); });
    REQUIRE(erase_if(v_, [&](const auto&) { return goes(j++); }) == mine);
    REQUIRE(j == k);
    if (oracle_.empty()) return;
    const value v = oracle_[rng_() % oracle_.size()];
    const auto same = std::erase(oracle_, v);
    REQUIRE(fm::erase(v_, v) == same);
  }
  void assign(bool all) {
    if (all) {
      const std::vector<argument> other = several(rng_() % 50);
      oracle_.assign(other.begin(), other.end());
      v_.assign(other);
    } else if (oracle_.size() > 2) {  // a part of its own
      const std::vector<value> part(oracle_.begin() + 1, oracle_.end());
      oracle_ = part;
      v_.assign(v_.begin() + 1, v_.end());
    } else {
      const argument a = fresh();
      oracle_.assign(7, value(a));
      v_.assign(7, a);
    }
  }
  void resize(std::size_t n) {
    const argument a = fresh();
    oracle_.resize(n, value(a));
    v_.resize(n, a);
    if (rng_() % 4 == 0) v_.shrink_to_fit();
  }
  void exchange() {
    const fm::vector<T> copy = v_.clone(), other(h_, several(rng_() % 9));
    const std::vector<value> others(other.begin(), other.end());
    REQUIRE(copy.equal_elements(v_));
    v_.swap(other);
    REQUIRE(copy.equal_elements(other));
    REQUIRE(std::ranges::equal(v_, others));
    if (rng_() % 8 == 0)
      oracle_ = others;
    else
      v_.swap(copy);
  }
  void emplace(std::size_t i) {
    const argument a = fresh();
    oracle_.insert(in_oracle(i), value(a));
    oracle_.push_back(value(a));
    require_at(v_.emplace(at(i), a), i);
    v_.emplace_back(a);
  }

  fm::heap& h_;
  fm::vector<T> v_;
  std::vector<value> oracle_;
  std::mt19937_64 rng_;
  std::size_t most_;
};

/// As many elements as two chunks and a half hold.
template <class T>
constexpr std::size_t some_chunks = 5 * 8192 / sizeof(T) / 2;

}  // namespace

TEMPLATE_TEST_CASE("an edited vector holds what std::vector does", "", std::uint64_t, bool, place_of_word, wide_page,
                   fm::ref<numbered>) {
  fm::heap h(tiny());
  pair_of_vectors<TestType> both(h, 21, some_chunks<TestType>);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 12; ++i) both.step();
    both.check();
    REQUIRE(h.evict_all() == fm::errc::ok);
    for (int i = 0; i < 4; ++i) both.step();
    if (round % 4 == 0) REQUIRE(h.collect("test").ok());
    both.check();
  }
  require_sound(h);
}

TEMPLATE_TEST_CASE("an edited vector holds what std::vector does over every transport, under collections without end",
                   "", place_of_word, fm::ref<numbered>) {
  heap_over over(GENERATE("local", "tcp", "shm"));
  pair_of_vectors<TestType> both(over.heap, 22, some_chunks<TestType>);
  beside_collections(over.heap, effort(600), [&](std::uint64_t step) {
    both.step();
    if (step % 16 == 0) REQUIRE(over.heap.evict_all() == fm::errc::ok);
    if (step % 40 == 0) both.check();
  });
  both.check();
  require_sound(over.heap);
}

TEST_CASE("a vector larger than the cache is edited in the middle") {
  fm::heap h(tiny());
  const std::uint64_t n = 600'000;  // 4.6 MiB
  std::vector<std::uint64_t> oracle(n);
  std::iota(oracle.begin(), oracle.end(), 0);
  fm::vector<std::uint64_t> v(h, oracle);
  v.insert(v.begin() + 1000, 5000, 77);
  oracle.insert(oracle.begin() + 1000, 5000, 77);
  v.erase(v.begin() + 3, v.begin() + 3000);
  oracle.erase(oracle.begin() + 3, oracle.begin() + 3000);
  REQUIRE(erase_if(v, [](std::uint64_t x) { return x % 3 == 0; }) ==
          std::erase_if(oracle, [](auto x) { return x % 3 == 0; }));
  REQUIRE(std::ranges::equal(v, oracle));
  const fm::vector<std::uint64_t> copy = v.clone();
  REQUIRE(copy.equal_elements(v));
  REQUIRE(h.stats().misses > 100);
  require_sound(h);
}

TEST_CASE("what is inserted may be an element of the vector") {
  fm::heap h(tiny());
  fm::vector<std::uint64_t> v(h);
  for (std::uint64_t i = 0; i < 2500; ++i) v.push_back(i);
  {
    auto m = v.mutate();
    v.insert(v.begin(), m[1]);
  }
  {
    auto m = v.mutate();
    v.insert(v.begin() + 1, 2000, m[2]);
  }
  REQUIRE((v.size() == 4501 && v[0] == 1 && v[2001] == 0 && v[2002] == 1 && v[4500] == 2499));
  REQUIRE(std::all_of(v.begin() + 1, v.begin() + 2001, [](auto x) { return x == 1; }));
  v.resize(3);
  v.shrink_to_fit();
  auto m = v.mutate();
  m[1] = 8;
  v.resize(3000, m[1]);
  REQUIRE(std::all_of(v.begin() + 3, v.end(), [](auto x) { return x == 8; }));
}

TEST_CASE("a copy of a handle names the same vector, and a clone does not") {
  fm::heap h(tiny());
  const fm::vector<int> a(h, {1, 2, 3});
  const fm::vector<int> same = a, clone = a.clone(), other(h, a);
  REQUIRE(same == a);
  REQUIRE_FALSE(clone == a);
  REQUIRE(clone.equal_elements(a));
  REQUIRE(other.equal_elements(a));
  a.set(0, 9);
  REQUIRE(same[0] == 9);
  REQUIRE((clone[0] == 1 && other[0] == 1));
  REQUIRE_FALSE(clone.equal_elements(a));
  REQUIRE((clone.compare_elements(a) < 0));
  REQUIRE((a.compare_elements(clone) > 0));
  REQUIRE((clone.compare_elements(other) == 0));
  other.pop_back();
  REQUIRE((other.compare_elements(clone) < 0));
  const bool ordered = fm::vector<double>(h, {0.5}).compare_elements(fm::vector<double>(h, {0.0 / 0.0})) !=
                       std::partial_ordering::unordered;
  REQUIRE_FALSE(ordered);

  fm::vector<int> x = a, y = clone;
  std::swap(x, y);  // handles: what a and clone name is as before
  REQUIRE((y == a && x == clone && a[0] == 9));
  a.swap(clone);  // elements: all handles see it
  REQUIRE((a[0] == 1 && same[0] == 1 && clone[0] == 9 && y[0] == 1));
  a.swap(a);
  REQUIRE((a.size() == 3 && a[2] == 3));

  // The objects behind references are shared, and strings compare by their text.
  const fm::vector<fm::ref<numbered>> items(h, {h.make<numbered>(1u), h.make<numbered>(2u)});
  const fm::vector<fm::ref<numbered>> copied = items.clone();
  copied[1].write()->id = 7;
  REQUIRE(items[1]->id == 7);
  REQUIRE(copied.equal_elements(items));
  const fm::vector<fm::ref<fm::string>> words(h, {h.str("a"), h.str("b")}), same_words(h, {h.str("a"), h.str("b")});
  REQUIRE(words.equal_elements(same_words));
  REQUIRE((words.compare_elements(fm::vector<fm::ref<fm::string>>(h, {h.str("aa")})) < 0));
  REQUIRE(fm::erase(words, "a") == 1);
  REQUIRE(words.front() == "b");
}

TEST_CASE("ranges of any kind are appended and inserted") {
  fm::heap h(tiny());
  fm::vector<int> v(h);
  std::istringstream numbers("4 5 6");
  v.append(std::istream_iterator<int>(numbers), std::istream_iterator<int>());
  v.append(std::vector<bool>{true, false});
  v.append(std::views::iota(10, 12) | std::views::transform([](int x) { return x * 2; }));
  v.insert_range(v.begin(), std::array<short, 2>{-1, -2});
  v.insert(v.end(), {7, 8});
  v.append({9});
  const std::array<int, 1> last{3};
  v.append(std::span(last));
  REQUIRE(std::ranges::equal(v, std::vector{-1, -2, 4, 5, 6, 1, 0, 20, 22, 7, 8, 9, 3}));
  const fm::vector<long> wide(h, v);
  REQUIRE(std::ranges::equal(wide, v));
  v.assign(std::views::iota(0, 3));
  REQUIRE(std::ranges::equal(v, std::vector{0, 1, 2}));
  v.assign({});
  REQUIRE(v.empty());
  v.insert_range(v.begin(), v);
  REQUIRE(v.empty());
  fm::vector<place_of_word> p(h);
  p.emplace_back(1u, 2u);
  p.emplace(p.begin(), place_of_word{3, 4});
  REQUIRE((p.size() == 2 && p[0] == place_of_word{3, 4} && p[1] == place_of_word{1, 2}));
}

TEST_CASE("editing a vector at a wrong place is a typed error, and changes nothing") {
  fm::heap h(tiny());
  const fm::vector<int> v(h, {1, 2, 3}), other(h, {4, 5});
  const auto end = v.end();
  REQUIRE(code_of([&] { v.insert(end + 1, 4); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.insert(end + 1, 0, 4); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.insert(v.begin() - 1, 4); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.insert(other.begin(), 4); }) == fm::errc::invalid_argument);
  REQUIRE(code_of([&] { v.insert({}, 4); }) == fm::errc::invalid_argument);
  REQUIRE(code_of([&] { v.erase(end); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.erase(end, v.begin()); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.erase(v.begin(), end + 1); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { v.erase(v.begin(), other.end()); }) == fm::errc::invalid_argument);
  REQUIRE(v.erase(end, end) == end);
  constexpr std::uint64_t many = ~std::uint64_t{0};
  REQUIRE(code_of([&] { v.insert(v.begin(), many, 4); }) == fm::errc::too_large);
  REQUIRE(code_of([&] { v.insert(v.begin(), many - 2, 4); }) == fm::errc::too_large);
  REQUIRE(code_of([&] { v.resize(many); }) == fm::errc::too_large);
  REQUIRE(code_of([&] { v.resize(many, 1); }) == fm::errc::too_large);
  REQUIRE(code_of([&] { v.reserve(many); }) == fm::errc::too_large);
  REQUIRE(v.equal_elements(fm::vector<int>(h, {1, 2, 3})));
  const fm::vector<int> null;
  REQUIRE(code_of([&] { null.insert(null.begin(), 1); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { null.assign({1}); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { v.swap(null); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { (void)null.clone(); }) == fm::errc::null_handle);

  fm::heap second(tiny());
  const fm::vector<int> there(second, {8, 9});
  v.append(there);  // values may come from another heap
  REQUIRE(v.back() == 9);
  REQUIRE(code_of([&] { v.swap(there); }) == fm::errc::invalid_argument);
  REQUIRE((v.size() == 5 && there.size() == 2));
  const fm::vector<fm::ref<numbered>> here(h), items(second, {second.make<numbered>(1u)});
  REQUIRE(code_of([&] { here.append(items); }) == fm::errc::invalid_argument);
  REQUIRE(code_of([&] { here.insert_range(here.begin(), items); }) == fm::errc::invalid_argument);
  REQUIRE(here.empty());
}
