// Threads that use a heap at random until they are told to stop, beside what a test does to its agents.
#pragma once

#include "await.h"
#include "effort.h"
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <farmem/base/error.h>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fm::test {

class busy_threads {
 public:
  using step = std::function<void(std::size_t thread, std::uint64_t random)>;
  using judge = std::function<bool(const error&)>;

  /// Each thread does `what` again and again. An error that it throws is unexpected unless `may_be` says otherwise.
  busy_threads(std::size_t threads, step what, judge may_be) : what_(std::move(what)), may_be_(std::move(may_be)) {
    for (std::size_t t = 0; t < threads; ++t) threads_.emplace_back([this, t] { work(t); });
  }
  ~busy_threads() { stop(); }
  busy_threads(const busy_threads&) = delete;
  busy_threads& operator=(const busy_threads&) = delete;

  /// Waits until all together have made so many steps more, or this build's part of them.
  void pass(std::uint64_t steps) {
    const std::uint64_t from = steps_;
    CHECK(await([&] { return steps_ >= from + effort(steps); }));
  }
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  /// What was unexpected first; empty: nothing was. After stop.
  [[nodiscard]] const std::string& unexpected() const { return unexpected_; }

 private:
  void work(std::size_t thread) {
    for (std::uint64_t random = thread + 1; !stop_.load(std::memory_order_relaxed); ++steps_) {
      random = random * 6364136223846793005 + 1442695040888963407;
      try {
        what_(thread, random);
      } catch (const error& e) {
        if (may_be_(e)) continue;
        const std::lock_guard lock(mutex_);
        if (unexpected_.empty()) unexpected_ = e.what();
      }
    }
  }

  const step what_;
  const judge may_be_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::mutex mutex_;
  std::string unexpected_;
  std::vector<std::thread> threads_;
};

}  // namespace fm::test
