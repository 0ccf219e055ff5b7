// What the tests of containers over every transport share: a heap whose objects go home to an agent in the test's process,
// and collections without end beside what the test does.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

#include "containers/fixture.h"
#include "support/served_store.h"

namespace fm::test {

/// An agent at an address of its own.
class served_at final : public served_store {
 public:
  explicit served_at(const std::string& url) : served_store({.memory_bytes = 128_MiB, .region_bytes = 1_MiB}) {
    serve(url);
  }
  ~served_at() override { stop(); }
  served_at(const served_at&) = delete;
  served_at& operator=(const served_at&) = delete;
};

/// A heap much smaller than what is put into it, over "local", "tcp" or "shm".
class heap_over {
  std::optional<served_at> agent_;  // outlives the heap

 public:
  explicit heap_over(const std::string& transport) : heap(options_over(transport)) {}

  fm::heap heap;

 private:
  heap_options options_over(const std::string& transport) {
    auto o = tiny();
    if (transport == "local") return o;
    agent_.emplace(transport == "tcp" ? "tcp://127.0.0.1:0"
                                      : "shm:///tmp/farmem-containers-" + std::to_string(::getpid()));
    o.agents = {agent_->url()};
    return o;
  }
};

/// Collects until it is told to stop, once at least.
class endless_collections {
 public:
  explicit endless_collections(heap& h)
      : thread_([this, &h] {
          do failed_ += !h.collect("endless").ok();
          while (!stop_);
        }) {}
  ~endless_collections() { stop(); }
  endless_collections(const endless_collections&) = delete;
  endless_collections& operator=(const endless_collections&) = delete;
  /// Returns how many have failed.
  int stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return failed_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> failed_{0};
  std::thread thread_;
};

/// Calls step(0), step(1) and so on, `steps` times and until three collections have ended, beside collections without end.
template <class F>
void beside_collections(heap& h, std::uint64_t steps, F&& step) {
  const std::uint64_t before = h.stats().collections;
  endless_collections collecting(h);
  for (std::uint64_t i = 0; i < steps || h.stats().collections < before + 3; ++i) {
    if (i == 1'000 * steps) FAIL("collections do not end");
    step(i);
  }
  REQUIRE(collecting.stop() == 0);
}

}  // namespace fm::test
