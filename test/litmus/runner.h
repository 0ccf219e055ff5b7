// Two threads that run the two halves of a litmus program at the same moment, again and again, each time with other delays, and count
// the outcomes that memory order must forbid. A program is a type with left(), right(), is_forbidden() and reset().
//
// By default a program runs for a bounded number of rounds, and at most for half a second. FARMEM_LITMUS_SECONDS says how long each runs,
// and makes it tell what happened.
#pragma once

#include "os/os.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace fm::litmus {

struct outcome {
  std::uint64_t rounds = 0;
  std::uint64_t forbidden = 0;
};

/// On a line of its own, since only what is in different lines is reordered much.
struct alignas(2 * detail::cache_line_bytes) cell {
  std::atomic<std::uint64_t> value{0};
};

inline int seconds_by_hand() {
  const char* const s = std::getenv("FARMEM_LITMUS_SECONDS");
  return s != nullptr ? std::atoi(s) : 0;
}

class delays {
 public:
  explicit delays(std::uint64_t seed) : state_(seed) {}
  void wait() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    for (std::uint64_t n = state_ % 48; n != 0; --n) detail::cpu_relax();
  }

 private:
  std::uint64_t state_;
};

template <class Program>
outcome run(Program& p, bool until_seen = false) {
  constexpr std::uint64_t rounds_max = 30'000;
  const int by_hand = seconds_by_hand();
  const time_point end = clock::now() + std::chrono::milliseconds(by_hand != 0 ? by_hand * 1000 : 500);
  cell go, done;
  constexpr std::uint64_t stop = ~std::uint64_t{0};
  const auto until = [](const cell& c, std::uint64_t not_this) {
    for (int spins = 0;; ++spins) {
      if (const std::uint64_t v = c.value.load(std::memory_order_acquire); v != not_this) return v;
      if (spins % 2000 == 1999) std::this_thread::yield();  // there may be one core only
    }
  };
  std::thread left([&] {
    delays d(0x9e3779b97f4a7c15);
    for (std::uint64_t last = 0;;) {
      last = until(go, last);
      if (last == stop) return;
      d.wait();
      p.left();
      done.value.store(last, std::memory_order_release);
    }
  });
  delays d(0xd1b54a32d192ed03);
  outcome o;
  while ((by_hand != 0 || o.rounds < rounds_max) && !(until_seen && o.forbidden != 0)) {
    if (o.rounds % 64 == 0 && clock::now() >= end) break;
    p.reset();
    go.value.store(o.rounds + 1, std::memory_order_release);
    d.wait();
    p.right();
    (void)until(done, o.rounds);
    o.forbidden += p.is_forbidden();
    ++o.rounds;
  }
  go.value.store(stop, std::memory_order_release);
  left.join();
  return o;
}

/// With its fences the program never has the forbidden outcome. Without them it may, and how often it did is told: where it never
/// does, this machine, or its load, cannot tell the two apart.
template <template <bool> class Program>
void require_ordered(const char* name) {
  Program<true> fenced;
  const outcome with = run(fenced);
  Program<false> bare;
  const outcome without = run(bare, seconds_by_hand() == 0);
  if (seconds_by_hand() != 0 || without.forbidden == 0)
    std::printf("litmus %s: %llu of %llu with fences, %llu of %llu without\n", name,
                static_cast<unsigned long long>(with.forbidden), static_cast<unsigned long long>(with.rounds),
                static_cast<unsigned long long>(without.forbidden), static_cast<unsigned long long>(without.rounds));
  CHECK(with.rounds != 0);
  CHECK(with.forbidden == 0);
}

}  // namespace fm::litmus
