// Places that learn whether polling before sleeping pays there; by counts of polls and a clock that the test turns.
#include "os/os.h"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;

namespace {

constexpr auto at_most = 20us;

/// A clock on which every look takes a microsecond.
struct counted_clock {
  static inline fm::time_point at{std::chrono::hours(1)};
  static fm::time_point now() noexcept { return at += 1us; }
};
using spin = fm::os::basic_spin<counted_clock>;

/// A wait for something that comes after so many polls, or only to a sleeper. How often it polled before it slept or found it.
int wait(fm::os::spin_place& place, int comes_after) {
  spin s(place, at_most);
  int polls = 0;
  while (polls != comes_after && s.again()) ++polls;
  return polls;
}
constexpr int never = -1;

}  // namespace

TEST_CASE("a place where nothing comes in time stops spinning, but for probes, which become rarer") {
  fm::os::spin_place place;
  for (int i = 0; i < 10; ++i) wait(place, never);
  const auto probes = [&](int waits) {
    int spun = 0;
    for (int i = 0; i < waits; ++i) spun += wait(place, never) != 0;
    return spun;
  };
  CHECK(probes(64) >= 1);
  probes(1024);
  const int late = probes(2560);
  CHECK(late >= 9);
  CHECK(late <= 11);
}

TEST_CASE("a place where most comes in time goes on spinning") {
  fm::os::spin_place place;
  int spun = 0;
  for (int i = 0; i < 4000; ++i) spun += wait(place, i % 4 == 0 ? never : 3) != 0;
  CHECK(spun == 4000);
}

TEST_CASE("a place that has stopped spinning starts again when probes pay") {
  fm::os::spin_place place;
  for (int i = 0; i < 100; ++i) wait(place, never);
  int waits = 0;
  while (wait(place, 3) == 0 || !place.lets_spin()) REQUIRE(++waits < 1000);
  int spun = 0;
  for (int i = 0; i < 100; ++i) spun += wait(place, 3) != 0;
  CHECK(spun == 100);
}

TEST_CASE("what comes while the thread has no core does not count as come in time") {
  fm::os::spin_place place;
  int spun = 0;
  for (int i = 0; i < 320; ++i) {
    spin s(place, at_most);
    bool polled = false;
    for (int polls = 0; polls < 8 && s.again(); ++polls) polled = true;
    spun += polled;
    counted_clock::at += 10ms;  // it lost its core, and finds what it waited for when it is back
  }
  CHECK(spun < 20);
}

TEST_CASE("a spin of no length never polls") {
  fm::os::spin_place place;
  spin s(place, 0us);
  CHECK_FALSE(s.again());
}

TEST_CASE("naps get longer up to their bound, and short again when something came") {
  fm::os::nap n(100us, 350us);
  CHECK(n.next() == 100us);
  CHECK(n.next() == 200us);
  CHECK(n.next() == 350us);
  CHECK(n.next() == 350us);
  n.reset();
  CHECK(n.next() == 100us);
}
