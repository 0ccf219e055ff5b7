#include "fixture.h"

#include <deque>
#include <random>
#include <thread>

using namespace fm::test;

namespace {
struct job {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 20> work{};
};
}  // namespace

TEST_CASE("a managed queue does what std::queue does") {
  fm::heap h(tiny());
  fm::queue<std::uint64_t> q(h);
  std::deque<std::uint64_t> oracle;
  std::mt19937_64 rng(31);
  for (int step = 0; step < 40'000; ++step) {
    // Waves: the queue fills for a while, then runs empty.
    if (rng() % 100 < (step / 2000 % 2 ? 30u : 70u)) {
      oracle.push_back(rng());
      q.push(oracle.back());
    } else if (oracle.empty()) {
      REQUIRE(code_of([&] { q.pop(); }) == fm::errc::out_of_range);
      REQUIRE(code_of([&] { (void)q.front(); }) == fm::errc::out_of_range);
    } else {
      REQUIRE(q.front() == oracle.front());
      REQUIRE(q.pop() == oracle.front());
      oracle.pop_front();
    }
    REQUIRE(q.size() == oracle.size());
    REQUIRE(q.empty() == oracle.empty());
  }
  require_sound(h);
  for (; !oracle.empty(); oracle.pop_front()) REQUIRE(q.pop() == oracle.front());
}

TEST_CASE("a queue longer than the cache keeps its order, and references come out as handles") {
  fm::heap h(tiny());
  fm::queue<fm::ref<job>> q(h);
  constexpr std::uint64_t n = 30'000;
  for (std::uint64_t i = 0; i < n; ++i) q.push(h.make<job>({.id = i}));
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const fm::ptr<job> j = q.pop();
    wrong += j->id != i;
  }
  REQUIRE(wrong == 0);
  REQUIRE(q.empty());
  fm::queue<std::array<std::uint64_t, 200>> wide(h);  // one element to a block
  for (std::uint64_t i = 0; i < 50; ++i) wide.push({i});
  for (std::uint64_t i = 0; i < 50; ++i) REQUIRE(wide.pop()[0] == i);
  REQUIRE(code_of([] { fm::queue<int>().push(1); }) == fm::errc::null_handle);
  require_sound(h);
}

TEST_CASE("several threads push to and pop from one queue, which keeps the order of each") {
  fm::heap h(tiny(4_MiB));
  fm::queue<fm::ref<job>> q(h);
  constexpr std::uint64_t each = 6'000;
  std::atomic<std::uint64_t> taken{0}, wrong{0}, sum{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; i <= each; ++i) q.push(h.make<job>({.id = i * 2 + t}));
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      std::array<std::uint64_t, 2> last{};
      while (taken.load() < 2 * each) {
        const auto j = q.try_pop();
        if (!j) continue;
        const std::uint64_t id = (*j)->id;
        wrong += id / 2 <= last[id % 2];
        last[id % 2] = id / 2;
        sum += id;
        ++taken;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(sum == each * (each + 1) * 2 + each);
  REQUIRE((q.empty() && q.size() == 0 && !q.try_pop()));
  REQUIRE(code_of([] { (void)fm::queue<int>().try_pop(); }) == fm::errc::null_handle);
  require_sound(h);
}
