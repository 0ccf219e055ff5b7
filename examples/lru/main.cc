// lru: the service loop of a cache. Requests for keys come with Zipf popularity; a key that is not cached gets a value, and the
// one that was not asked for longest leaves. Every such miss makes garbage, so the run makes many times the memory of
// its agents, and is to use no more of it after hours than after minutes.
//
// Exit codes: 0 all well, 1 something failed or --check found a fault, 2 a mistake in the arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "../../bench/support/zipf.h"
#include "../support/machine.h"
#include "cache.h"
#include "growth.h"

namespace {

using namespace fm::example;
using fm::literals::operator""_MiB;

constexpr std::uint64_t value_bytes_min = 100, value_bytes_max = 1024;
/// What one cached value was measured to need, with its entry, its part of the map, and the headers.
constexpr std::uint64_t bytes_per_entry = 660;
/// Slots of the table for each cached value: value and entry, and the same again and again until the garbage is collected.
constexpr std::uint64_t objects_per_entry = 7;

struct arguments {
  machine_options machine;
  std::uint64_t capacity = 200'000, keys = 0, requests = 0, seed = 1;
  double seconds = 60, skew = 0.9, report_every = 5;
  bool check = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  app.add_option("--capacity", a.capacity, "values that are cached")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  app.add_option("--keys", a.keys, "different keys that are asked for (default: four times the capacity)")
      ->check(CLI::PositiveNumber);
  app.add_option("--skew", a.skew, "Zipf exponent of the keys' popularity")
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str();
  app.add_option("--seconds", a.seconds, "ends after so long")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--requests", a.requests, "ends after so many requests instead")->check(CLI::PositiveNumber);
  app.add_option("--report-every", a.report_every, "seconds between the lines that are printed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", a.seed, "of the requests")->capture_default_str();
  app.add_flag(
      "--check", a.check,
      "compare every value with what it has to be, verify the heap, and fail when local memory or the agents' grows "
      "after a warm-up or garbage is left");
  declare(app, a.machine, "cached values");
}

/// The value of a key, made from nothing but the key.
std::span<const char> value_of(std::uint64_t key, std::array<char, value_bytes_max + 8>& buffer) {
  fm::bench::random_source random(key);
  const std::uint64_t size = value_bytes_min + random.below(value_bytes_max - value_bytes_min + 1);
  for (std::uint64_t at = 0; at < size; at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(buffer.data() + at, &word, 8);
  }
  return {buffer.data(), size};
}

struct totals {
  std::uint64_t requests = 0, hits = 0, made_bytes = 0, wrong = 0;
  double seconds = 0;
};

class service {
 public:
  service(fm::heap& h, const arguments& a, const agent_processes& agents, growth_check& growth)
      : heap_(h),
        a_(a),
        agents_(agents),
        growth_(growth),
        cache_(h, a.capacity),
        keys_(a.keys, a.skew),
        random_(a.seed) {}

  totals run() {
    const fm::time_point begin = fm::clock::now();
    fm::time_point sample_at = begin, report_at = begin + seconds(a_.report_every);
    while (!stop_requested.load(std::memory_order_relaxed)) {
      for (unsigned i = 0; i < requests_per_look && !done_; ++i) request();
      const fm::time_point now = fm::clock::now();
      sum_.seconds = std::chrono::duration<double>(now - begin).count();
      if (now >= sample_at) {
        growth_.add(sample());
        sample_at = now + std::chrono::milliseconds(20);
      }
      if (now >= report_at) {
        report();
        report_at = now + seconds(a_.report_every);
      }
      if (done_ || (a_.requests == 0 && sum_.seconds >= a_.seconds)) break;
    }
    return sum_;
  }
  [[nodiscard]] const lru_cache& cache() const noexcept { return cache_; }

 private:
  static constexpr unsigned requests_per_look = 256;
  static fm::duration seconds(double s) {
    return std::chrono::duration_cast<fm::duration>(std::chrono::duration<double>(s));
  }

  void request() {
    const std::uint64_t key = keys_(random_);
    const bool hit = cache_.find(key, [&](std::span<const char> value) {
      answer_.assign(value.begin(), value.end());  // as a service would, to send it
    });
    if (!hit) {
      const auto value = value_of(key, wanted_);
      cache_.insert(key, value);
      sum_.made_bytes += value.size() + 8 + 16 + sizeof(cache_entry) + 8;
    } else if (a_.check) {
      const auto value = value_of(key, wanted_);
      sum_.wrong += !std::equal(value.begin(), value.end(), answer_.begin(), answer_.end());
    }
    sum_.hits += hit;
    done_ = ++sum_.requests == a_.requests;
  }

  [[nodiscard]] memory_sample sample() const {
    const auto own = fm::example::memory_of();
    memory_sample s{.made_bytes = sum_.made_bytes, .local_bytes = own.total_bytes - own.shared_bytes};
    for (const pid_t pid : agents_.pids()) s.agents_bytes += fm::example::memory_of(pid).total_bytes;
    return s;
  }

  void report() {
    const fm::heap_stats st = heap_.stats();
    const memory_sample s = sample();
    fmt::print(
        "{:6.1f} s {:8.0f} requests/s, hits {:5.2f} %, {:6.2f} M objects made ({:.2f} GiB), {:4} collections, pause "
        "p99 "
        "{:.2f} ms, local {}, agents {}\n",
        sum_.seconds, double(sum_.requests - reported_.requests) / (sum_.seconds - reported_.seconds),
        100.0 * double(sum_.hits - reported_.hits) /
            double(std::max<std::uint64_t>(1, sum_.requests - reported_.requests)),
        double(st.allocated_objects) / 1e6, double(st.allocated_bytes) / double(1024_MiB), st.collections,
        double(st.pause_ns.quantile_ns(0.99)) / 1e6, mib(s.local_bytes), mib(s.agents_bytes));
    std::fflush(stdout);
    reported_ = sum_;
  }

  fm::heap& heap_;
  const arguments& a_;
  const agent_processes& agents_;
  growth_check& growth_;
  lru_cache cache_;
  fm::bench::zipf_keys keys_;
  fm::bench::random_source random_;
  std::array<char, value_bytes_max + 8> wanted_{};
  std::vector<char> answer_;
  totals sum_, reported_;
  bool done_ = false;
};

void summarize(fm::heap& h, const service& s, const totals& t, const memory_plan& p, const memory_limit& limit,
               const agent_processes& agents, std::uint64_t agents_bytes) {
  const fm::heap_stats st = h.stats();
  fmt::print("\nsummary\n");
  fmt::print("  requests             {:>10}   ({:.0f} a second)\n", t.requests, double(t.requests) / t.seconds);
  fmt::print("  answered from cache  {:>8.2f} %\n",
             100.0 * double(t.hits) / double(std::max<std::uint64_t>(1, t.requests)));
  fmt::print("  values               {:>10}   cached, {} pushed out\n", s.cache().size(), s.cache().evicted());
  fmt::print("  objects made         {:>10}   ({}: {:.1f} times the agents' memory)\n", st.allocated_objects,
             mib(st.allocated_bytes), double(st.allocated_bytes) / double(agents_bytes));
  print_local_memory(p, limit, s.cache().size() * bytes_per_entry, "cached values");
  print_traffic(st, s.cache().operations(), "accesses to entries, values and pages of the map");
  print_collections(st);
  print_processes(agents);
  fmt::print("  time                 {:>8.1f} s\n", t.seconds);
  std::fflush(stdout);
}

/// Gives whether all was well.
bool check(fm::heap& h, const service& s, const totals& t, const growth_check& growth) {
  const bool consistent = s.cache().consistent();
  const auto grown = growth.judge();
  fmt::print("\ncheck: {} values read: {}\n", t.hits, t.wrong == 0 ? "all right" : fmt::format("{} WRONG", t.wrong));
  fmt::print("check: list and map: {}\n", consistent ? "the same entries" : "NOT the same entries");
  fmt::print("check: {}\n", grown.text);
  const fm::cycle_report last = h.collect("end of the run");
  if (!last.ok()) fmt::print("check: the last collection FAILED: {}\n", last.text());
  // A value and an entry each, and the pages of the map; what was still being written while it died may be there, too.
  const std::uint64_t objects_max = s.cache().size() * 3 + 1000;
  return verify_home(h, objects_max) && t.wrong == 0 && t.hits != 0 && consistent && grown.good && last.ok();
}

int run(arguments& a) {
  if (a.keys == 0) a.keys = a.capacity * 4;

  const std::uint64_t heap_bytes = a.capacity * bytes_per_entry;
  if (a.machine.agent_bytes == 0)  // three times the live values, in whole regions
    a.machine.agent_bytes = (heap_bytes * 3 / a.machine.agents.count / 16_MiB + 2) * 16_MiB;
  const memory_plan p = make_plan(a.machine, heap_bytes, a.capacity * objects_per_entry, 3);
  a.machine.agents.owner = "lru";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);  // before the limit: they stand for other machines
  const memory_limit limit("lru", p.local_bytes);
  fmt::print("{} of {} keys cached\n", a.capacity, a.keys);
  print_machine("cached values", heap_bytes, p, limit, agents);

  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = "lru"});
  const std::uint64_t agents_bytes = p.agent_bytes * agents.urls().size();
  growth_check growth(agents_bytes);
  service s(h, a, agents, growth);
  const totals t = s.run();
  summarize(h, s, t, p, limit, agents, agents_bytes);
  return !a.check || check(h, s, t, growth) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Runs the service loop of an LRU cache in a far-memory heap.", "lru");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
