#include "base/base.h"

#include <catch2/catch.hpp>
#include <random>

namespace {

using namespace std::chrono_literals;

const fm::time_point zero{std::chrono::hours(1)};

fm::pause_record pause_at(fm::duration begin, fm::duration length) {
  return {zero + begin, static_cast<std::uint64_t>(std::chrono::nanoseconds(length).count()), false};
}

double utilisation(const std::vector<fm::pause_record>& p, fm::duration observed, fm::duration window) {
  return fm::bounded_utilisation(p, zero, zero + observed, window);
}

// Every window from every nanosecond on, of every length from `window` on.
double by_trying(const std::vector<fm::pause_record>& p, int observed, int window) {
  std::vector<int> paused(static_cast<std::size_t>(observed) + 1);
  for (int t = 0; t < observed; ++t) {
    bool in = false;
    for (const auto& r : p) {
      const auto begin = std::chrono::nanoseconds(r.begin - zero).count();
      in |= t >= begin && t < begin + static_cast<std::int64_t>(r.ns);
    }
    paused[static_cast<std::size_t>(t) + 1] = paused[static_cast<std::size_t>(t)] + in;
  }
  double least = 1;
  for (int a = 0; a < observed; ++a)
    for (int b = a + window; b <= observed; ++b)
      least = std::min(least,
                       1 - double(paused[static_cast<std::size_t>(b)] - paused[static_cast<std::size_t>(a)]) / (b - a));
  return least;
}

}  // namespace

TEST_CASE("utilisation is all of the time without pauses, and nothing in windows that a pause fills") {
  REQUIRE(utilisation({}, 1s, 10ms) == 1.0);
  const std::vector<fm::pause_record> one{pause_at(100ms, 10ms)};
  REQUIRE(utilisation(one, 1s, 5ms) == 0.0);
  REQUIRE(utilisation(one, 1s, 10ms) == 0.0);
  REQUIRE(utilisation(one, 1s, 20ms) == Approx(0.5));
  REQUIRE(utilisation(one, 1s, 100ms) == Approx(0.9));
  REQUIRE(utilisation(one, 1s, 5s) == Approx(0.99));  // longer than what was observed: all of it
}

TEST_CASE("a longer window is never worse, also where pauses come in pairs") {
  // Two of 1 ms, 9 ms apart: a window of 10 ms holds one of them and more, one of 11 ms both.
  const std::vector<fm::pause_record> pair{pause_at(50ms, 1ms), pause_at(60ms, 1ms)};
  REQUIRE(utilisation(pair, 1s, 11ms) == Approx(1 - 2.0 / 11));
  REQUIRE(utilisation(pair, 1s, 10ms) == Approx(1 - 2.0 / 11));  // bounded: the stretch of 11 ms counts, too
  double before = 0;
  for (int ms = 1; ms < 100; ++ms) {
    const double now = utilisation(pair, 1s, ms * 1ms);
    REQUIRE(now >= before);
    before = now;
  }
}

TEST_CASE("utilisation is what trying every window gives") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const int observed = 60 + static_cast<int>(random() % 60);
    std::vector<fm::pause_record> pauses;
    for (int at = static_cast<int>(random() % 20); at < observed; at += static_cast<int>(random() % 25)) {
      const int length = 1 + static_cast<int>(random() % 8);
      pauses.push_back(pause_at(std::chrono::nanoseconds(at), std::chrono::nanoseconds(length)));
      at += length;
    }
    for (const int window : {1, 3, 10, 25, observed - 1}) {
      CAPTURE(round, observed, window);
      REQUIRE(fm::bounded_utilisation(pauses, zero, zero + std::chrono::nanoseconds(observed),
                                      std::chrono::nanoseconds(window)) ==
              Approx(by_trying(pauses, observed, window)).margin(1e-9));
    }
  }
}

TEST_CASE("the log keeps the last pauses, and says when there were others") {
  const auto log = std::make_unique<fm::detail::pause_log>();
  bool complete = false;
  REQUIRE(log->since(zero, complete).empty());
  REQUIRE(complete);
  for (std::size_t i = 0; i < fm::detail::pause_log::kept + 10; ++i) log->add(pause_at(i * 1ms, 1us));
  const auto all = log->since(zero, complete);
  REQUIRE_FALSE(complete);
  REQUIRE(all.size() == fm::detail::pause_log::kept);
  REQUIRE(all.front().begin == zero + 10ms);
  const auto some = log->since(zero + 4000ms, complete);
  REQUIRE(complete);
  REQUIRE(some.size() == 106);
}
