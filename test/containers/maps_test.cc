// What hashed and ordered maps have in common: one word means one thing in both.
#include "containers/fixture.h"

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

using namespace fm::test;

namespace {

struct hashed {
  template <class K, class V>
  using map = fm::hash_map<K, V>;
};
struct ordered {
  template <class K, class V>
  using map = fm::map<K, V>;
};

}  // namespace

TEMPLATE_TEST_CASE("what a lookup found stays as long as the loop over it", "", hashed, ordered) {
  fm::heap h(tiny());
  const typename TestType::template map<int, fm::ref<fm::vector<int>>> lists(h);
  fm::vector<int> one(h);
  for (int i = 0; i < 100; ++i) one.push_back(i);
  lists.insert(1, one);
  static_assert(!std::is_reference_v<decltype(*lists.find(1))>);
  static_assert(!std::is_reference_v<decltype(lists.find(1).value())>);
  int sum = 0;
  for (const int x : *lists.find(1)) sum += x;
  for (const int x : lists.find(1).value()) sum += x;
  CHECK(sum == 2 * 99 * 50);
  const auto found = lists.find(1);
  CHECK(&*found == &found.value());
  REQUIRE(code_of([&] { (void)lists.find(2).value(); }) == fm::errc::not_found);
}

TEMPLATE_TEST_CASE("extract removes an entry and gives its value to one of those who ask", "", hashed, ordered) {
  fm::heap h(tiny());
  const typename TestType::template map<std::uint64_t, std::uint64_t> numbers(h);
  const typename TestType::template map<fm::string, fm::ref<fm::string>> texts(h);
  constexpr std::uint64_t n = 2'000;
  for (std::uint64_t i = 0; i < n; ++i) {
    numbers.insert(i, i * i);
    texts.insert(std::to_string(i), h.str(std::to_string(i * i)));
  }
  require_sound(h);
  std::array<std::atomic<std::uint64_t>, 3> sums{};
  std::vector<std::thread> all;
  for (auto& sum : sums)
    all.emplace_back([&] {
      for (std::uint64_t i = 0; i < n; ++i)
        if (const auto taken = numbers.extract(i)) sum += *taken;
    });
  for (auto& t : all) t.join();
  REQUIRE(numbers.empty());
  REQUIRE(sums[0] + sums[1] + sums[2] == (n - 1) * n * (2 * n - 1) / 6);
  REQUIRE_FALSE(numbers.extract(5));

  const fm::string taken = texts.extract("30");
  REQUIRE(taken == "900");
  REQUIRE_FALSE(texts.contains("30"));
  REQUIRE_FALSE(texts.extract("30").has_value());
  REQUIRE(texts.size() == n - 1);
  REQUIRE(h.collect("test").ok());
  REQUIRE(taken == "900");
  require_sound(h);
}
