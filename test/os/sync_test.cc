// Futex waits end by a wake, a change or the deadline; the asymmetric fence forbids the outcome that it exists for.
#include "os/os.h"
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using fm::os::futex_wait;
using fm::os::futex_wake;

namespace {
// Far enough that no test gets there; a wait that does is reported by the test's own time limit.
fm::time_point far_away() { return fm::clock::now() + 600s; }
}  // namespace

TEST_CASE("a futex wait on a word that has already changed returns at once") {
  std::atomic<std::uint32_t> word{1};
  CHECK(futex_wait(word, 0, far_away()));
  CHECK(futex_wait(word, 0, fm::time_point::max()));
}

TEST_CASE("a futex wait that nobody ends returns false, and not before its deadline") {
  std::atomic<std::uint32_t> word{0};
  const fm::time_point deadline = fm::clock::now() + 20ms;
  bool in_time = true;
  while (in_time) in_time = futex_wait(word, 0, deadline);  // a signal may end a wait early
  CHECK(fm::clock::now() >= deadline);
}

TEST_CASE("a futex wait whose deadline has passed returns false at once") {
  std::atomic<std::uint32_t> word{0};
  CHECK_FALSE(futex_wait(word, 0, fm::clock::now() - 1s));
  CHECK_FALSE(futex_wait(word, 0, fm::time_point{}));
}

TEST_CASE("a wake reaches every waiter") {
  constexpr int waiters = 4;
  std::atomic<std::uint32_t> word{0};
  std::atomic<int> started{0}, woken{0};
  std::vector<std::thread> threads;
  const fm::time_point deadline = far_away();
  for (int i = 0; i < waiters; ++i)
    threads.emplace_back([&] {
      started.fetch_add(1);
      while (word.load() == 0)
        if (!futex_wait(word, 0, deadline)) return;
      woken.fetch_add(1);
    });
  while (started.load() < waiters) std::this_thread::yield();
  word.store(1);
  futex_wake(word, waiters);
  for (auto& t : threads) t.join();
  CHECK(woken.load() == waiters);
}

TEST_CASE("two threads hand a word back and forth without losing a wake") {
  constexpr std::uint32_t rounds = 2'000;
  std::atomic<std::uint32_t> turn{0};
  const fm::time_point deadline = far_away();
  // Waits until it is `mine`'s turn, counts one, passes the turn on; false when the deadline passed.
  const auto take_turns = [&](std::uint32_t mine) {
    for (std::uint32_t next = mine; next < rounds; next += 2) {
      for (std::uint32_t seen = turn.load(); seen != next; seen = turn.load())
        if (!futex_wait(turn, seen, deadline)) return;
      turn.store(next + 1);
      futex_wake(turn, 1);
    }
  };
  std::thread other(take_turns, 1);
  take_turns(0);
  other.join();
  CHECK(turn.load() == rounds);
}

// Store buffering: each side stores to its own word and then loads the other's. Without fences both may read zero, and
// do so often on any processor with store buffers; with a light fence on one side and a heavy one on the other, at
// least one of the two must see the other's store.
TEST_CASE("of a light and a heavy fence at least one side sees the other's store") {
  constexpr std::uint32_t rounds = FM_TSAN ? 10'000 : 50'000;
  struct alignas(64) word {
    std::atomic<std::uint32_t> value{0};
  };
  word x, y, light_at, heavy_at;
  std::vector<std::uint32_t> light_saw(rounds), heavy_saw(rounds);
  const fm::time_point deadline = far_away();
  // Each side announces its round, then waits for the other's, so that the two race in every round.
  const auto meet = [&](word& mine, word& theirs, std::uint32_t round) {
    mine.value.store(round + 1);
    for (std::uint32_t spins = 0; theirs.value.load() < round + 1; ++spins) {
      fm::detail::cpu_relax();
      if (spins % 1024 == 1023) std::this_thread::yield();
      if (spins % 65'536 == 65'535 && fm::clock::now() > deadline) return false;
    }
    return true;
  };
  std::thread light([&] {
    for (std::uint32_t r = 0; r < rounds && meet(light_at, heavy_at, r); ++r) {
      x.value.store(r + 1, std::memory_order_relaxed);
      fm::os::light_fence();
      light_saw[r] = y.value.load(std::memory_order_relaxed);
    }
  });
  for (std::uint32_t r = 0; r < rounds && meet(heavy_at, light_at, r); ++r) {
    y.value.store(r + 1, std::memory_order_relaxed);
    fm::os::heavy_fence();
    heavy_saw[r] = x.value.load(std::memory_order_relaxed);
  }
  light.join();
  REQUIRE(light_at.value.load() == rounds);
  REQUIRE(heavy_at.value.load() == rounds);
  std::uint32_t both_missed = 0;
  for (std::uint32_t r = 0; r < rounds; ++r) both_missed += light_saw[r] < r + 1 && heavy_saw[r] < r + 1;
  CHECK(both_missed == 0);
}

TEST_CASE("a thread carries the name that it was given, cut to fifteen characters") {
  std::string name;
  std::thread t([&] {
    fm::os::name_thread("farmem-evictor-7");
    std::getline(std::ifstream("/proc/thread-self/comm"), name);
  });
  t.join();
  CHECK(name == "farmem-evictor-");
}
