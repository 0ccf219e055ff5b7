// Threads that do one operation after the other beside what is measured: how many they have done, how long each took, which
// failed, and which saw something else than what was written last. Benchmarks of agents that die or are left use it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <farmem/farmem.h>
#include <thread>
#include <vector>

#include "program.h"

namespace fm::bench {

class threads_at_work {
 public:
  /// Each thread makes its operation with `make(thread)`, and does it until this is destroyed. An operation gives whether it
  /// saw what was written last.
  template <class Make>
  threads_at_work(int threads, Make make) : counters_(std::size_t(threads)) {
    for (int t = 0; t < threads; ++t) all_.emplace_back([this, make, t] { work(counters_[std::size_t(t)], make(t)); });
  }
  ~threads_at_work() {
    stop_.store(true);
    for (std::thread& t : all_) t.join();
  }
  threads_at_work(const threads_at_work&) = delete;
  threads_at_work& operator=(const threads_at_work&) = delete;

  [[nodiscard]] std::uint64_t done() const noexcept {
    std::uint64_t sum = 0;
    for (const counter& c : counters_) sum += c.n.load(std::memory_order_relaxed);
    return sum;
  }
  /// Operations a second in the next `window`.
  [[nodiscard]] double rate(std::chrono::milliseconds window) const {
    const std::uint64_t from = done(), begin = now_ns();
    std::this_thread::sleep_for(window);  // the window that is measured
    return double(done() - from) / (double(now_ns() - begin) * 1e-9);
  }
  /// p99.9 of all operations so far.
  [[nodiscard]] double p999_ms() const { return double(times_.snapshot().quantile_ns(0.999)) * 1e-6; }
  /// Of a thread, since the last call.
  double longest_ms() {
    double most = 0;
    for (counter& c : counters_) most = std::max(most, double(c.longest.exchange(0)) * 1e-6);
    return most;
  }
  [[nodiscard]] double failed() const noexcept { return double(failed_.load()); }
  [[nodiscard]] double wrong() const noexcept { return double(wrong_.load()); }

 private:
  struct alignas(128) counter {
    std::atomic<std::uint64_t> n{0}, longest{0};
  };
  template <class Operation>
  void work(counter& mine, Operation operation) {
    for (std::uint64_t last = now_ns(); !stop_.load(std::memory_order_relaxed);) {
      try {
        if (!operation()) wrong_.fetch_add(1);
        mine.n.fetch_add(1, std::memory_order_relaxed);
      } catch (const fm::error& e) {
        if (failed_.fetch_add(1) == 0) std::fprintf(stderr, "an operation: %s\n", e.what());
      }
      const std::uint64_t now = now_ns();
      times_.add(now - last);
      if (now - last > mine.longest.load(std::memory_order_relaxed)) mine.longest.store(now - last);
      last = now;
    }
  }

  std::vector<counter> counters_;
  fm::detail::histogram times_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> failed_{0}, wrong_{0};
  std::vector<std::thread> all_;
};

}  // namespace fm::bench
