// The threads and what they judge; see stress.h.
#include "pool/stress.h"

#include <farmem/pool/operation.h>
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

/// Somebody does something within this, on any machine.
constexpr auto patience = std::chrono::minutes(10);

/// What the threads saw, to be judged by the main thread.
struct findings {
  std::atomic<std::uint64_t> reads{0}, writes{0}, compactions{0};
  std::atomic<std::uint64_t> torn{0}, strangers{0}, older{0}, lost{0}, errors{0};
  std::atomic<int> first_error{0};
  void failed(errc e) {
    errors.fetch_add(1);
    int none = 0;
    first_error.compare_exchange_strong(none, int(e));
  }
};

/// One pool with two clients, and rounds in it. A round allocates objects that are watched among others; the others are freed piece
/// by piece, so that the watched ones are alone in their blocks and every compaction moves some of them, while they are read and written.
template <std::size_t Words>
class stressed {
 public:
  explicit stressed(const pool_options& o) : writing_(o), reading_(o), all_(objects) {}

  void round(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<pool_ptr<value>> others;
    for (std::size_t i = 0; i < objects; ++i) {
      all_[i].ptr = writing_.alloc(value::make(i, 0));
      all_[i].version.store(0);
      for (int k = 0; k < 3; ++k) others.push_back(writing_.alloc(value::make(objects + i, 0)));
    }
    std::shuffle(others.begin(), others.end(), random);
    stop_.store(false);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 2; ++i) threads.emplace_back([this, seed, i] { read(seed + i); });
    for (std::size_t i = 0; i < 2; ++i) threads.emplace_back([this, seed, i] { write(seed, i); });
    try {
      for (std::size_t piece = others.size() / pieces; !others.empty() && findings_.errors.load() == 0;) {
        for (std::size_t n = std::min(piece, others.size()); n != 0; --n, others.pop_back())
          writing_.free(others.back());
        (void)writing_.compact();
        findings_.compactions.fetch_add(1);
        for (std::size_t k = 0; k < others.size(); k += 7) {
          if (k % 2 == 0) writing_.release(others[k]);
          if (!writing_.read(others[k]).whole()) findings_.torn.fetch_add(1);
        }
        await_work();
      }
    } catch (const error& e) {
      findings_.failed(e.code());
    }
    stop_.store(true);
    for (auto& t : threads) t.join();
    for (std::size_t i = 0; i < objects && findings_.errors.load() == 0; ++i) {
      const auto v = reading_.try_read(all_[i].ptr);
      if (!v || v->id != i || !v->whole() || v->version != all_[i].version.load()) findings_.lost.fetch_add(1);
      writing_.free(all_[i].ptr);
    }
  }

  [[nodiscard]] stress_report report() const {
    stress_report r;
    const auto fault = [&](std::uint64_t n, const std::string& what) {
      if (n != 0) r.faults += fmt::format("{} {}\n", n, what);
    };
    fault(findings_.errors.load(),
          fmt::format("errors, the first one {}", to_string(errc(findings_.first_error.load()))));
    fault(findings_.torn.load(), "values that are not whole");
    fault(findings_.strangers.load(), "values of other objects");
    fault(findings_.older.load(), "values older than what had been written");
    fault(findings_.lost.load(), "values that are not the last ones written, at the end of a round");
    const pool_report sound = writing_.verify();
    if (!sound.ok()) r.faults += sound.text;
    r.reads = findings_.reads.load();
    r.writes = findings_.writes.load();
    r.compactions = findings_.compactions.load();
    const pool_stats s = reading_.stats();
    for (const auto& c : s.agents.at(0).classes) {
      r.merges += c.merges_made;
      r.objects_moved += c.objects_moved;
    }
    r.torn = s.torn;
    r.corrected = s.corrected_reads;
    r.rpc_reads = s.rpc_reads;
    if (r.merges == 0 || r.corrected + r.rpc_reads == 0) r.faults += "nothing that was read had been moved\n";
    return r;
  }
  [[nodiscard]] bool failed() const noexcept { return findings_.errors.load() != 0; }

 private:
  using value = checked<Words>;
  static constexpr std::size_t objects = 160, pieces = 6;
  struct watched {
    pool_ptr<value> ptr;
    std::atomic<std::uint64_t> version{0};  ///< that is written for certain
  };

  void read(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<pool_ptr<value>> mine;
    for (const watched& s : all_) mine.push_back(s.ptr);
    while (!stop_.load(std::memory_order_relaxed)) {
      const std::size_t i = random() % objects;
      const std::uint64_t written = all_[i].version.load(std::memory_order_acquire);
      value v;
      errc e = errc::ok;
      const auto bytes = std::as_writable_bytes(std::span(&v, 1));
      if (random() % 64 == 0)
        e = reading_.rpc_read_into(mine[i].address(), bytes);
      else if (random() % 64 == 0) {
        if (reading_.scan_read(mine[i], v) != pool_read::ok) continue;
      } else if (random() % 64 == 0) {
        read_several(mine, random);
        continue;
      } else if (random() % 64 == 0) {
        const auto r = reading_.read_async(mine[i]).try_wait();
        if (r) v = *r;
        e = r ? errc::ok : r.error().code();
      } else {
        e = reading_.read_into(mine[i].address(), bytes);
      }
      if (e != errc::ok) {
        findings_.failed(e);
        continue;
      }
      judge(v, i, written);
    }
  }

  void judge(const value& v, std::size_t i, std::uint64_t written) {
    findings_.reads.fetch_add(1, std::memory_order_relaxed);
    if (!v.whole()) findings_.torn.fetch_add(1);
    if (v.id != i) findings_.strangers.fetch_add(1);
    if (v.version < written) findings_.older.fetch_add(1);
  }

  /// Objects that follow each other, all at a time.
  void read_several(std::vector<pool_ptr<value>>& mine, std::mt19937_64& random) {
    constexpr std::size_t several = 24;
    const std::size_t from = random() % (objects - several);
    std::array<std::uint64_t, several> written{};
    for (std::size_t k = 0; k < several; ++k) written[k] = all_[from + k].version.load(std::memory_order_acquire);
    const auto values = reading_.read_many(std::span(mine).subspan(from, several));
    for (std::size_t k = 0; k < several; ++k)
      if (values[k])
        judge(*values[k], from + k, written[k]);
      else
        findings_.failed(values[k].error().code());
  }

  errc write_plainly(pool_ptr<value>& p, const value& v) {
    const auto r = writing_.try_write_bytes(p.address(), std::as_bytes(std::span(&v, 1)));
    return r ? errc::ok : r.error().code();
  }
  errc write_by_version(pool_ptr<value>& p, const value& v) {
    const auto seen = writing_.try_read_versioned(p);
    if (!seen) return seen.error().code();
    const auto done = writing_.try_write_if(p, seen->version, v);
    return done ? errc::ok : done.error().code();
  }

  /// Every second object, so that each has one writer.
  void write(std::uint64_t seed, std::size_t which) {
    std::mt19937_64 random(seed + which);
    std::vector<pool_ptr<value>> mine;
    for (const watched& s : all_) mine.push_back(s.ptr);
    while (!stop_.load(std::memory_order_relaxed)) {
      const std::size_t i = which + random() % (objects / 2) * 2;
      const std::uint64_t version = all_[i].version.load(std::memory_order_relaxed) + 1;
      const value v = value::make(i, version);
      // Nobody else writes the object, so its version is the one that was read, wherever it has been moved to.
      if (const errc e = random() % 2 == 0 ? write_by_version(mine[i], v) : write_plainly(mine[i], v); e != errc::ok) {
        findings_.failed(e);
        continue;
      }
      all_[i].version.store(version, std::memory_order_release);
      findings_.writes.fetch_add(1, std::memory_order_relaxed);
    }
  }

  /// However busy the machine is, something is read and written between two compactions.
  void await_work() {
    const std::uint64_t reads = findings_.reads.load() + 60, writes = findings_.writes.load() + 4;
    const time_point until = clock::now() + patience;
    while (findings_.errors.load() == 0 && (findings_.reads.load() < reads || findings_.writes.load() < writes)) {
      if (clock::now() >= until) throw error(errc::timed_out, "readers and writers of the stressed pool");
      std::this_thread::yield();
    }
  }

  pool writing_, reading_;
  std::vector<watched> all_;
  std::atomic<bool> stop_{false};
  findings findings_;
};

template <std::size_t Words>
stress_report run(const pool_options& o, duration run_for) {
  const time_point until = clock::now() + run_for;
  stressed<Words> s(o);
  std::uint64_t seed = 0;
  do s.round(seed += 10);
  while (clock::now() < until && !s.failed());
  return s.report();
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
