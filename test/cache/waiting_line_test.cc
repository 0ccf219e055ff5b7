// The order in which threads get memory.
#include "cache/memory/waiting_line.h"

#include <catch2/catch.hpp>
#include <deque>
#include <optional>
#include <thread>

using fm::detail::bump;
using fm::detail::waiting_line;

namespace {
fm::time_point far_away() { return fm::clock::now() + std::chrono::minutes(10); }

// The lines know threads by where they bump-allocate, which does not move.
class bumps {
 public:
  explicit bumps(int n) {
    for (int i = 0; i < n; ++i) all_.emplace_back(fm::detail::fill_kind::made, nullptr);
  }
  const bump& operator[](int i) const { return all_[static_cast<std::size_t>(i)]; }

 private:
  std::deque<bump> all_;
};
}  // namespace

TEST_CASE("the first that came is first, whoever leaves in between") {
  waiting_line line;
  CHECK(line.empty());
  const bumps of(4);
  std::optional<waiting_line::place> places[4];
  for (int i = 0; i < 4; ++i) places[i].emplace(line, of[i]);
  CHECK(places[0]->is_first());
  CHECK_FALSE(places[1]->is_first());
  places[1].reset();  // its patience is over
  CHECK_FALSE(places[2]->is_first());
  places[0].reset();
  CHECK(places[2]->is_first());
  CHECK_FALSE(places[3]->is_first());
  places[2].reset();
  CHECK(places[3]->is_first());
  places[3].reset();
  CHECK(line.empty());
}

TEST_CASE("whoever does not wait comes after those who do, and the first before nobody") {
  waiting_line line;
  const bumps of(3);
  const bump &first = of[0], &second = of[1], &newcomer = of[2];
  CHECK_FALSE(line.is_before(newcomer));
  std::optional<waiting_line::place> a(std::in_place, line, first), b(std::in_place, line, second);
  CHECK_FALSE(line.is_before(first));
  CHECK(line.is_before(second));
  CHECK(line.is_before(newcomer));
  a.reset();
  CHECK_FALSE(line.is_before(second));
  CHECK(line.is_before(newcomer));
  b.reset();
  CHECK_FALSE(line.is_before(newcomer));
}

TEST_CASE("threads are served in the order of their arrival, and each is woken for its turn") {
  constexpr int threads_count = 16;
  waiting_line line;
  const bumps of(threads_count + 1);
  std::optional<waiting_line::place> held(std::in_place, line, of[threads_count]);
  std::vector<int> served;
  std::atomic<std::uint32_t> joined[threads_count] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < threads_count; ++i) {
    threads.emplace_back([&, i] {
      waiting_line::place p(line, of[i]);
      joined[i].store(1);
      fm::os::futex_wake(joined[i], 1);
      while (!p.is_first()) p.wait_until(far_away());
      served.push_back(i);  // nobody else is first
    });
    while (joined[i].load() == 0) fm::os::futex_wait(joined[i], 0, far_away());
  }
  held.reset();
  for (std::thread& t : threads) t.join();
  REQUIRE(served.size() == threads_count);
  CHECK(std::is_sorted(served.begin(), served.end()));
}
