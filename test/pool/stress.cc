// The threads and what they judge; see stress.h.
#include "pool/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "pool/checked.h"

namespace pool_test {

using namespace fm;
using namespace fm::literals;

namespace {

/// What happens however busy the machine is, before a run ends; but no longer than this.
constexpr auto patience = std::chrono::seconds(60);

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
stress_report run(const pool_options& o, duration run_for) {
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
  // Objects come and go beside those, so that there is always something to merge. And whoever does that ends it all.
  const time_point until = clock::now() + run_for;
  const auto enough = [&] {
    return f.errors.load() != 0 || (f.reads.load() > 100 && f.writes.load() > 20 && f.rounds.load() > 2);
  };
  const auto churner = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<pool_ptr<value>> mine;
    try {
      while (clock::now() < until || (!enough() && clock::now() < until + patience)) {
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
    stop.store(true);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 2; ++i) threads.emplace_back(reader, i);
  for (std::size_t i = 0; i < 2; ++i) threads.emplace_back(writer, i, 2);
  threads.emplace_back(churner, 77);
  for (auto& t : threads) t.join();

  stress_report r;
  const auto fault = [&](std::uint64_t n, const std::string& what) {
    if (n != 0) r.faults += fmt::format("{} {}\n", n, what);
  };
  fault(f.errors.load(), fmt::format("errors, the first one {}", to_string(errc(f.first_error.load()))));
  fault(f.torn_values.load(), "values that are not whole");
  fault(f.strangers.load(), "values of other objects");
  fault(f.older.load(), "values older than what had been written");
  for (std::size_t i = 0; i < objects; ++i) {
    const auto v = reading.try_read(all[i].ptr);
    if (!v || v->id != i || !v->whole() || v->version != all[i].version.load()) fault(1, fmt::format("object {}", i));
  }
  const pool_report sound = writing.verify();
  if (!sound.ok()) r.faults += sound.text;
  r.reads = f.reads.load();
  r.writes = f.writes.load();
  r.compactions = f.rounds.load();
  const pool_stats s = reading.stats();
  for (const auto& c : s.agents.at(0).classes) {
    r.merges += c.merges_made;
    r.objects_moved += c.objects_moved;
  }
  r.torn = s.torn;
  r.corrected = s.corrected_reads;
  r.rpc_reads = s.rpc_reads;
  if (!enough() || r.merges == 0) r.faults += "too little happened\n";
  return r;
}

}  // namespace

const char* name_of(stress_mode m) noexcept {
  constexpr std::array names{"checksums",           "versions",       "checksums over lines",
                             "versions over lines", "large versions", "random ids"};
  return names[static_cast<std::size_t>(m)];
}

std::string stress_report::text() const {
  return fmt::format(
      "{} reads ({} corrected, {} by the agent, {} repeated), {} writes, {} compactions, {} merges, {} objects "
      "moved{}{}",
      reads, corrected, rpc_reads, torn, writes, compactions, merges, objects_moved, faults.empty() ? "" : "\n",
      faults);
}

stress_report stress(pool_options o, stress_mode mode, duration run_for) {
  o.block = mode == stress_mode::versions_large ? 64_KiB : 4_KiB;
  const bool versions =
      mode == stress_mode::versions || mode == stress_mode::versions_over_lines || mode == stress_mode::versions_large;
  o.versions_upto = versions ? ~0u : 0;
  o.identity = mode == stress_mode::random_ids ? pool_identity::random_16 : pool_identity::birth;
  switch (mode) {
    case stress_mode::checksums_over_lines:
    case stress_mode::versions_over_lines: return run<60>(o, run_for);
    case stress_mode::versions_large: return run<700>(o, run_for);
    default: return run<6>(o, run_for);
  }
}

}  // namespace pool_test
