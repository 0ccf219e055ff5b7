// A heap of many threads: what they have of their own is bounded, and comes back when they do nothing.
#include "cache/object_cache.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <farmem/farmem.h>
#include <fmt/format.h>
#include <functional>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <random>
#include <set>
#include <thread>

using namespace fm::literals;

namespace {

struct entry {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 29> words{};
};
entry numbered(std::uint64_t id) {
  entry e{.id = id};
  for (std::size_t i = 0; i < e.words.size(); ++i) e.words[i] = id * 31 + i;
  return e;
}
bool is(const fm::ptr<entry>& p, std::uint64_t id) {
  fm::scope s;
  const entry& e = *p.get(s);
  return e.id == id && e.words[0] == id * 31 && e.words[28] == id * 31 + 28;
}

fm::heap_options with_cache(std::uint64_t cache) {
  return {.cache = cache, .local_memory = 512_MiB, .local_region = 4_MiB};
}

fm::detail::object_cache& cache_of(const fm::ptr<entry>& p) {
  return *fm::detail::tablet_info_of(p.slot()).heap.load();
}

// Threads of small stacks that do one thing, sleep, and do another one when they are told to go on. A few of them are
// at work at a time: the rest sleeps, or is not there yet.
class sleepers {
 public:
  using work = std::function<void(std::size_t)>;
  sleepers(std::size_t n, work before, work after) : before_(std::move(before)), after_(std::move(after)) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, FM_TSAN || FM_ASAN ? 1 << 20 : 128 << 10);
    for (std::size_t i = 0; i < n; ++i) starts_.emplace_back(this, i);
    for (std::size_t i = 0; i < n; ++i) {
      pthread_t t{};
      if (pthread_create(&t, &small, run, &starts_[i]) != 0) break;
      threads_.push_back(t);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return asleep_ + at_work_max > threads_.size(); });
    }
    pthread_attr_destroy(&small);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asleep_ == threads_.size(); });
  }
  ~sleepers() { wake(); }
  [[nodiscard]] std::size_t count() const { return threads_.size(); }
  void wake() {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      {
        const std::lock_guard lock(mutex_);
        starts_[i].awake = true;
      }
      starts_[i].told.notify_one();
      if (i >= at_work_max) pthread_join(threads_[i - at_work_max], nullptr);
    }
    for (std::size_t i = threads_.size() - std::min(threads_.size(), at_work_max); i < threads_.size(); ++i)
      pthread_join(threads_[i], nullptr);
    threads_.clear();
  }

 private:
  static constexpr std::size_t at_work_max = 16;
  struct start {
    start(sleepers* s, std::size_t n) : self(s), number(n) {}
    sleepers* self;
    std::size_t number;
    bool awake = false;
    std::condition_variable told;
  };
  static void* run(void* s) {
    start& here = *static_cast<start*>(s);
    here.self->before_(here.number);
    {
      std::unique_lock lock(here.self->mutex_);
      ++here.self->asleep_;
      here.self->changed_.notify_all();
      here.told.wait(lock, [&] { return here.awake; });
    }
    here.self->after_(here.number);
    return nullptr;
  }
  const work before_, after_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t asleep_ = 0;
  std::deque<start> starts_;
  std::vector<pthread_t> threads_;
};

}  // namespace

TEST_CASE("a program goes on beside any number of threads that made, read and fetched objects and sleep") {
  const std::size_t wanted = GENERATE(60, 200, 5000);
  const std::size_t n = FM_TSAN || FM_ASAN ? std::min<std::size_t>(wanted, 400) : wanted;
  constexpr std::uint64_t cache = 16_MiB;
  fm::heap h(with_cache(cache));
  std::vector<fm::ptr<entry>> all, made(n);
  for (std::uint64_t i = 0; i < 2 * cache / sizeof(entry); ++i) all.push_back(h.make<entry>(numbered(i)));
  std::atomic<std::size_t> wrong{0};
  sleepers threads(
      n,
      [&](std::size_t i) {
        made[i] = h.make<entry>(numbered(1'000'000 + i));
        wrong += !is(all[i * 7919 % all.size()], i * 7919 % all.size());
        fm::prefetch(std::span<const fm::ptr<entry>>(all.data() + i * 7907 % (all.size() - 8), 8));
      },
      [&](std::size_t i) {
        wrong += !is(made[i], 1'000'000 + i);
        made[i] = h.make<entry>(numbered(2'000'000 + i));
        wrong += !is(made[i], 2'000'000 + i);
      });
  REQUIRE(threads.count() == n);
  REQUIRE(wrong == 0);
  {
    const fm::heap_stats s = h.stats();
    INFO(s.text());
    REQUIRE(s.threads == n + 1);
    REQUIRE(s.thread_bytes <= cache / 8 + 1024 * s.threads);
  }
  for (std::uint64_t i = 0; i < all.size(); ++i) REQUIRE(is(all[i], i));
  for (std::uint64_t i = 0; i < 2 * cache / sizeof(entry); ++i) all[i % 1000] = h.make<entry>(numbered(i));
  {
    const fm::heap_stats s = h.stats();
    INFO(s.text());
    REQUIRE(s.thread_bytes <= cache / 8 + 1024 * s.threads);
  }
  threads.wake();
  REQUIRE(wrong == 0);
  for (std::size_t i = 0; i < n; ++i) REQUIRE(is(made[i], 2'000'000 + i));
  REQUIRE(h.evict_all() == fm::errc::ok);
  const fm::verify_report v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("a thread's first object takes a few slots of the table and not pages of it") {
  fm::heap h(with_cache(16_MiB));
  std::vector<fm::ptr<entry>> made(200);
  sleepers threads(
      made.size(), [&](std::size_t i) { made[i] = h.make<entry>(numbered(i)); }, [](std::size_t) {});
  REQUIRE(h.stats().hit_bytes <= 200 * fm::detail::limits::slots_of_first_run * 8 + 4 * fm::detail::page_bytes);
}

TEST_CASE("threads that use what is being taken back from them lose nothing") {
  const std::uint64_t cache = GENERATE(512_KiB, 2_MiB);
  fm::heap h({.cache = cache, .local_memory = 512_MiB, .local_region = 1_MiB, .segment = 16_KiB});
  constexpr std::size_t threads_max = 12;
  const int rounds = FM_TSAN || FM_ASAN ? 300 : 1500;
  std::atomic<std::size_t> wrong{0}, at_work{threads_max};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < threads_max; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<fm::ptr<entry>> mine(400);
      std::vector<std::uint64_t> ids(mine.size());
      for (int round = 0; round < rounds; ++round) {
        // Bursts of every length, and between them the thread sleeps for a moment or gives its core away.
        for (std::uint64_t burst = random() % 24; burst-- > 0;) {
          const std::size_t at = random() % mine.size();
          if (mine[at] && random() % 3 != 0) {
            wrong += !is(mine[at], ids[at]);
          } else {
            mine[at] = h.make<entry>(numbered(ids[at] = random()));
          }
        }
        if (random() % 8 == 0) {
          const std::size_t first = random() % (mine.size() - 16);
          fm::prefetch(std::span<const fm::ptr<entry>>(mine.data() + first, 16));
        }
        if (random() % 16 == 0) {
          auto big = h.array<std::uint64_t>(random() % 1024 + 1);
          wrong += big->size() == 0;
        }
        std::this_thread::yield();
      }
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (mine[i]) wrong += !is(mine[i], ids[i]);
      --at_work;
    });
  auto& c = *fm::detail::tablet_info_of(h.make<entry>(numbered(0)).slot()).heap.load();
  for (std::uint64_t i = 0; at_work != 0; ++i) {
    c.leases().take_back_all();
    if (i % 64 == 0) h.collect();
    std::this_thread::yield();
  }
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(h.stats().leases_taken_back > 0);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const fm::verify_report v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("threads that come and end take over nothing that is lost") {
  fm::heap h({.cache = 1_MiB, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 16_KiB});
  std::vector<fm::ptr<entry>> made(600);
  std::atomic<std::size_t> next{0};
  for (int wave = 0; wave < 100; ++wave) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&] {
        const std::size_t i = next++;
        made[i] = h.make<entry>(numbered(i));
      });
    for (auto& t : threads) t.join();
  }
  REQUIRE(h.stats().threads == 0);
  cache_of(made[0])
      .leases()
      .take_back_all();  // the end of a thread leaves its slots when another one is at their source
  REQUIRE(h.stats().thread_bytes == 0);
  std::set<fm::detail::slot_t> slots;
  for (std::size_t i = 0; i < made.size(); ++i) {
    REQUIRE(is(made[i], i));
    REQUIRE(slots.insert(made[i].slot()).second);
  }
  REQUIRE(h.verify().ok());
}

TEST_CASE("room for a large object is reserved until the cache has turned over without one") {
  fm::heap h(with_cache(16_MiB));
  auto small = h.make<entry>(numbered(1));
  const auto& frames = cache_of(small).frames();
  const std::uint32_t before = frames.reserve();
  {
    auto large = h.array<std::uint64_t>(1_MiB / 8);
    REQUIRE(frames.reserve() >= before + 1_MiB / (256 << 10));
  }
  for (std::uint64_t i = 0; i < 4 * 16_MiB / sizeof(entry); ++i) small = h.make<entry>(numbered(i));
  REQUIRE(frames.reserve() == before);
}

TEST_CASE("the error of a full cache names who holds it, and the size that was asked for") {
  fm::heap h({.cache = 1_MiB,
              .local_memory = 128_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB,
              .memory_within = std::chrono::seconds(1)});
  std::vector<fm::read_pin<entry>> pins;
  auto far = h.make<entry>(numbered(7));
  std::optional<fm::scope> open;  // of the thread that sleeps
  sleepers reader(
      1,
      [&](std::size_t) {
        const auto mine = h.make<entry>(numbered(8));
        open.emplace("elsewhere.cc", 77);
        (void)far.get(*open);
      },
      [&](std::size_t) { open.reset(); });
  std::string text;
  try {
    for (std::uint64_t i = 0; i < 4 * 1_MiB / sizeof(entry); ++i) pins.push_back(h.make<entry>(numbered(i)).read());
    FAIL("more is pinned than the cache holds");
  } catch (const fm::error& e) {
    REQUIRE(e.code() == fm::errc::cache_full);
    text = e.what();
  }
  INFO(text);
  REQUIRE(text.find(fmt::format("no frame for {} bytes", sizeof(entry))) != std::string::npos);
  REQUIRE(text.find("threads that use it: 2, with") != std::string::npos);
  REQUIRE(text.find("elsewhere.cc:77") != std::string::npos);
  REQUIRE(text.find("pinned: ") != std::string::npos);
  REQUIRE(text.find("pinned: 0 ") == std::string::npos);
  REQUIRE(text.find("not written to local:") != std::string::npos);
}

TEST_CASE("the statistics name the memory of a heap, part by part") {
  fm::heap h(with_cache(4_MiB));
  const fm::heap_stats opened = h.stats();
  CHECK(opened.book_bytes > 0);
  std::vector<fm::ptr<entry>> kept;
  for (std::uint64_t i = 0; i < 100'000; ++i) kept.push_back(h.make<entry>(numbered(i)));  // six times the cache
  const fm::heap_stats s = h.stats();
  CHECK(s.cache_memory_bytes >= s.cache_used_bytes);
  CHECK(s.cache_memory_bytes > 3_MiB);
  CHECK(s.cache_memory_bytes <= s.cache_bytes);
  CHECK(s.hit_bytes >= 100'000 * sizeof(fm::detail::word_t));
  CHECK(s.hit_record_bytes >= 100'000 / 8);  // a bit a slot
  CHECK(s.hit_record_bytes < s.hit_bytes);
  CHECK(s.handle_bytes >= kept.size() * sizeof(std::uint64_t));
  CHECK(s.buffer_bytes > opened.buffer_bytes);
  CHECK(s.named_bytes() ==
        s.cache_memory_bytes + s.hit_bytes + s.hit_record_bytes + s.handle_bytes + s.book_bytes + s.buffer_bytes);
}
