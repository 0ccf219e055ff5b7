// Readers and writers of self-checking values against compaction that never ends, over every transport and in every mode.
// FARMEM_STRESS_SECONDS says how long each takes; half a second by default.
#include <cstdlib>
#include <random>
#include <thread>

#include "pool/fixture.h"

namespace {

using namespace pool_test;

duration stress_time() {
  const char* s = std::getenv("FARMEM_STRESS_SECONDS");
  return s == nullptr ? duration(std::chrono::milliseconds(500)) : duration(std::chrono::seconds(std::atoi(s)));
}

/// What the threads saw, to be judged by the main thread.
struct findings {
  std::atomic<std::uint64_t> reads{0}, writes{0}, rounds{0}, torn_values{0}, strangers{0}, older{0}, errors{0};
  std::atomic<int> first_error{0};
  void failed(errc e) {
    errors.fetch_add(1);
    int none = 0;
    first_error.compare_exchange_strong(none, int(e));
  }
};

template <std::size_t Words>
void stress(const pool_options& o) {
  using value = checked<Words>;
  constexpr std::size_t objects = 600;
  pool writing(o), reading(o);
  struct shared {
    pool_ptr<value> ptr;
    std::atomic<std::uint64_t> version{0};  ///< that is written for certain
  };
  std::vector<shared> all(objects);
  for (std::size_t i = 0; i < objects; ++i) all[i].ptr = writing.alloc(value::make(i, 0));

  findings f;
  std::atomic<bool> stop{false};
  const auto reader = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<pool_ptr<value>> mine;
    for (const shared& s : all) mine.push_back(s.ptr);
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t i = random() % objects;
      const std::uint64_t written = all[i].version.load(std::memory_order_acquire);
      value v;
      errc e = errc::ok;
      if (random() % 64 == 0)
        e = reading.rpc_read_into(mine[i].address(), std::as_writable_bytes(std::span(&v, 1)));
      else if (random() % 64 == 0) {
        if (reading.scan_read(mine[i], v) != pool_read::ok) continue;
      } else {
        e = reading.read_into(mine[i].address(), std::as_writable_bytes(std::span(&v, 1)));
      }
      if (e != errc::ok) {
        f.failed(e);
        continue;
      }
      f.reads.fetch_add(1, std::memory_order_relaxed);
      if (!v.whole()) f.torn_values.fetch_add(1);
      if (v.id != i) f.strangers.fetch_add(1);
      if (v.version < written) f.older.fetch_add(1);
    }
  };
  const auto writer = [&](std::size_t from, std::size_t step) {
    std::mt19937_64 random(from);
    std::vector<pool_ptr<value>> mine;
    for (const shared& s : all) mine.push_back(s.ptr);
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t i = from + random() % (objects / step) * step;
      if (i >= objects) continue;
      const std::uint64_t version = all[i].version.load(std::memory_order_relaxed) + 1;
      const value v = value::make(i, version);
      if (const auto r = writing.try_write_bytes(mine[i].address(), std::as_bytes(std::span(&v, 1))); !r) {
        f.failed(r.error().code());
        continue;
      }
      all[i].version.store(version, std::memory_order_release);
      f.writes.fetch_add(1, std::memory_order_relaxed);
    }
  };
  // Objects come and go beside those, so that there is always something to merge.
  const auto churner = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<pool_ptr<value>> mine;
    try {
      while (!stop.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 100; ++i) mine.push_back(writing.alloc(value::make(1'000'000 + random() % 1000, seed)));
        std::shuffle(mine.begin(), mine.end(), random);
        while (mine.size() > 10) {
          writing.free(mine.back());
          mine.pop_back();
        }
        (void)writing.compact();
        f.rounds.fetch_add(1);
        for (auto& p : mine) {
          if (random() % 4 == 0) writing.release(p);
          if (!writing.read(p).whole()) f.torn_values.fetch_add(1);
        }
      }
      for (auto& p : mine) writing.free(p);
    } catch (const error& e) {
      f.failed(e.code());
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 2; ++i) threads.emplace_back(reader, i);
  for (std::size_t i = 0; i < 2; ++i) threads.emplace_back(writer, i, 2);
  threads.emplace_back(churner, 77);
  const time_point until = clock::now() + stress_time();
  // On a machine that is busy with other things, until something has happened.
  const auto enough = [&] {
    return f.errors.load() != 0 || (f.reads.load() > 100 && f.writes.load() > 20 && f.rounds.load() > 2);
  };
  while (clock::now() < until || (!enough() && clock::now() < until + std::chrono::seconds(60)))
    std::this_thread::yield();
  stop.store(true);
  for (auto& t : threads) t.join();

  INFO("first error " << to_string(errc(f.first_error.load())));
  CHECK(f.errors.load() == 0);
  CHECK(f.torn_values.load() == 0);
  CHECK(f.strangers.load() == 0);
  CHECK(f.older.load() == 0);
  CHECK(f.reads.load() > 0);
  CHECK(f.writes.load() > 0);
  const pool_stats s = writing.stats();
  std::uint64_t merges = 0;
  for (const auto& c : s.agents.at(0).classes) merges += c.merges_made;
  CHECK(merges > 0);
  for (std::size_t i = 0; i < objects; ++i) {
    const value v = reading.read(all[i].ptr);
    CHECK((v.id == i && v.whole() && v.version == all[i].version.load()));
  }
  check_sound(writing);
}

}  // namespace

TEST_CASE("nobody ever reads a wrong byte while everything is written, freed and compacted") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  SECTION("small objects with checksums") { stress<6>(o); }
  SECTION("small objects with versions") {
    o.versions_upto = ~0u;
    stress<6>(o);
  }
  SECTION("objects of several lines with checksums") { stress<60>(o); }
  SECTION("objects of several lines with versions") {
    o.versions_upto = ~0u;
    stress<60>(o);
  }
  SECTION("objects over 4 KiB with versions") {
    o.versions_upto = ~0u;
    o.block = 64_KiB;
    stress<700>(o);
  }
  SECTION("random ids") {
    o.identity = pool_identity::random_16;
    stress<6>(o);
  }
}
