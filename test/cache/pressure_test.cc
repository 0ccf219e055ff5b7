// Waits for memory: who is served first, and beside which agents a wait goes on.
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "cache/object_cache.h"
#include "heap/heap_core.h"
#include "support/await.h"
#include "support/served_store.h"

using namespace fm::literals;

namespace {

struct numbered {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

/// An agent that takes its time for each batch, or answers none.
class slow_agent final : public fm::test::served_store {
 public:
  slow_agent() : served_store({.memory_bytes = 128_MiB, .region_bytes = 16_MiB}) { serve(); }
  ~slow_agent() override {
    takes(fm::duration{});
    stop();
  }
  slow_agent(const slow_agent&) = delete;
  slow_agent& operator=(const slow_agent&) = delete;

  void takes(fm::duration each) {
    const std::lock_guard lock(mutex_);
    each_ = each;
    changed_.notify_all();
  }
  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    if (type_of(payload) == fm::protocol::message_type::index) {
      std::unique_lock lock(mutex_);
      const fm::time_point begin = fm::clock::now();
      while (fm::clock::now() < begin + each_) changed_.wait_until(lock, begin + each_);
    }
    return served_store::message(p, payload, out);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  fm::duration each_{};
};

fm::heap_options in_front_of(const slow_agent& a, fm::duration memory_within) {
  return {.cache = 16_MiB,
          .agents = {a.url()},
          .segment = 32_KiB,
          .collect = false,
          .elastic = false,
          .memory_within = memory_within};
}

std::vector<fm::ptr<numbered>> fill(fm::heap& h) {
  std::vector<fm::ptr<numbered>> all;
  for (std::uint64_t i = 0; i < 50'000; ++i) all.push_back(h.make<numbered>({.id = i}));
  return all;
}

}  // namespace

TEST_CASE("a wait for memory beside a slow agent goes on past its deadline as long as objects are stored") {
  constexpr auto within = std::chrono::milliseconds(1000);
  slow_agent a;
  fm::heap h(in_front_of(a, within));
  const auto all = fill(h);
  for (std::uint64_t i = 10'000; i < all.size(); ++i) all[i].write()->words[0] = i;  // what is near is dirty
  a.takes(within / 40);
  // What makes room for each of them takes more batches than the deadline has room for.
  const fm::time_point begin = fm::clock::now();
  const auto first = h.array<char>(3'900'000), second = h.array<char>(3'900'000);
  CHECK(fm::clock::now() - begin > within);
  a.takes(fm::duration{});
  CHECK(first->size() + second->size() == 7'800'000);
  for (std::uint64_t i = 0; i < all.size(); i += 100) CHECK(all[i]->id == i);
}

TEST_CASE("a wait for memory beside an agent that stores nothing any more fails, and those after it are served again") {
  slow_agent a;
  fm::heap h(in_front_of(a, std::chrono::milliseconds(500)));
  auto all = fill(h);
  a.takes(std::chrono::hours(1));
  fm::errc why = fm::errc::ok;
  try {
    while (all.size() < 1'000'000) all.push_back(h.make<numbered>({.id = all.size()}));
  } catch (const fm::error& e) {
    INFO(e.what());
    why = e.code();
  }
  CHECK(why == fm::errc::cache_full);
  a.takes(fm::duration{});
  REQUIRE(fm::test::await([&] {
    try {
      all.push_back(h.make<numbered>({.id = all.size()}));
      return true;
    } catch (const fm::error&) {
      return false;
    }
  }));
  for (std::uint64_t i = 0; i < all.size(); i += 100) CHECK(all[i]->id == i);
}

TEST_CASE("an object of several segments that waits holds up nobody who needs one") {
  fm::heap h({.cache = 2_MiB,
              .local_memory = 64_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB,
              .collect = false,
              .elastic = false,
              .memory_within = std::chrono::minutes(10)});
  const auto one_segment = [&] { return h.array<char>(32'600); };
  // Too little is free for what takes 16 segments and leaves 18 in reserve, and nothing can leave. Those that take one
  // segment leave 4 more to readers.
  std::vector<fm::write_pin<char[]>> pinned;
  while (h.stats().segments_free > 29) pinned.push_back(one_segment().write());
  const std::uint64_t before = h.stats().stalls_for_memory;
  std::atomic<bool> made{false};
  std::thread large([&] {
    const auto object = h.array<char>(500'000);
    made = object->size() == 500'000;
  });
  REQUIRE(fm::test::await([&] { return h.stats().stalls_for_memory > before; }));
  for (int i = 0; i < 3; ++i) pinned.push_back(one_segment().write());
  CHECK_FALSE(made);
  pinned.clear();
  large.join();
  CHECK(made);
}

TEST_CASE("an object of several segments gets memory beside threads that take every segment that becomes free") {
  fm::heap h({.cache = 2_MiB,
              .local_memory = 64_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB,
              .collect = false,
              .elastic = false,
              .memory_within = std::chrono::minutes(10)});
  std::vector<fm::ptr<char[]>> all;
  for (int i = 0; i < 300; ++i) all.push_back(h.array<char>(32'600));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> read{0};
  std::vector<std::thread> readers;
  for (std::size_t t = 0; t < 3; ++t)
    readers.emplace_back([&, t] {
      for (std::size_t i = t; !stop; i += 7) read += all[i % all.size()]->size();
    });
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t seen = read;
    const auto object = h.array<char>(500'000);
    CHECK(object->size() == 500'000);
    while (read == seen) std::this_thread::yield();  // they go on, too
  }
  stop = true;
  for (auto& t : readers) t.join();
  CHECK(h.stats().waits_expired == 0);
}

TEST_CASE("threads that wait for memory get it in the order in which they came") {
  constexpr std::size_t waiters = 4;
  fm::heap h({.cache = 1_MiB,
              .local_memory = 64_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB,
              .collect = false,
              .elastic = false,
              .memory_within = std::chrono::minutes(10)});
  std::vector<std::size_t> served;
  std::mutex mutex;
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return served.size();
  };
  std::array<std::promise<void>, waiters> known, go;
  std::latch all_served(1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < waiters; ++i)
    threads.emplace_back([&, i] {
      // Each thread that the heap knows changes how much stays in reserve. Its first segment would leave unpinned.
      const auto pinned = h.make<numbered>().read();
      known[i].set_value();
      go[i].get_future().wait();
      // As would this one. When the thread ends the reserve shrinks: two would be served at once.
      const auto mine = h.array<char>(32'600).write();
      {
        const std::lock_guard lock(mutex);
        served.push_back(i);
      }
      all_served.wait();
    });
  for (auto& k : known) k.get_future().wait();
  const fm::detail::arena& memory = h.core().cache().memory();
  // A segment each, that cannot leave.
  std::vector<fm::write_pin<char[]>> pins;
  while (memory.available() > h.core().cache().frames().reserve_of_new()) pins.push_back(h.array<char>(32'600).write());
  for (std::size_t i = 0; i < waiters; ++i) {
    const std::uint64_t before = h.stats().stalls_for_memory;
    go[i].set_value();
    REQUIRE(fm::test::await([&] { return h.stats().stalls_for_memory != before; }));
  }
  CHECK(count() == 0);
  while (count() < waiters) {
    REQUIRE_FALSE(pins.empty());
    const std::size_t before = count();
    pins.erase(pins.begin());  // the newest is in a segment that is still being filled
    REQUIRE(fm::test::await([&] { return count() != before; }));
  }
  all_served.count_down();
  for (std::thread& t : threads) t.join();
  CHECK(served == std::vector<std::size_t>{0, 1, 2, 3});
}
