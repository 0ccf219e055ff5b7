// cache_server: a cache that speaks enough of the Redis protocol for redis-cli and redis-benchmark, and keeps its values in a
// pool. With --reader, the same program is another process that reads those values one-sidedly: of keys that it is given, or
// of all keys over and over, while the server changes them and the pool is compacted.
//
// Exit codes: 0 all well, 1 something failed or a check found a fault, 2 a mistake in the arguments.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <thread>

#include "../support/machine.h"
#include "reader.h"
#include "server.h"

namespace {

using namespace fm::example;
using fm::literals::operator""_MiB;

struct arguments {
  agent_options agents;
  std::vector<std::string> connect;
  cache::options of_cache;
  server::options of_server;
  std::uint64_t memory_bytes = 256_MiB;
  std::string when_full = "evict", share, reader;
  std::vector<std::string> keys;
  unsigned threads = 1;
  double seconds = 0;
  bool check = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  app.add_option("--port", a.of_server.port, "of 127.0.0.1, to listen on; 0: any")->capture_default_str();
  app.add_option("--clients", a.of_server.clients_max, "most clients at a time")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--keys", a.of_cache.keys, "about so many keys are expected; more are slower to find")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--when-full", a.when_full,
                 "evict: the keys that were not asked for longest go; refuse: what needs memory fails")
      ->check(CLI::IsMember({"evict", "refuse"}))
      ->capture_default_str();
  app.add_option("--share", a.share,
                 "file that tells readers where the values are, for this user only (default: cache_server.share in the "
                 "temporary directory)")
      ->type_name("FILE");
  app.add_flag("--check", a.check, "verify keys, directory and pool at the end");
  app.add_option("--connect", a.connect, "use this agent that is running, instead of starting some; repeatable")
      ->type_name("URL");
  add_size(app, "--memory", a.memory_bytes, "memory of each agent that is started (default: 256MiB)");
  declare(app, a.agents);
  auto* const reader = app.add_option("--reader", a.reader, "be a reader of the server that wrote this file")
                           ->type_name("FILE")
                           ->excludes("--share");
  app.add_option("--seconds", a.seconds, "of a reader: read and check all values over and over for so long")
      ->check(CLI::PositiveNumber)
      ->needs(reader);
  app.add_option("--threads", a.threads, "of a reader that checks")->check(CLI::Range(1, 64))->needs(reader);
  app.add_option("KEYS", a.keys, "of a reader: print their values, one a line")->needs(reader);
}

std::string temporary_directory() {
  const char* base = std::getenv("TMPDIR");
  return base != nullptr && *base != 0 ? base : "/tmp";
}

// ---- the server ----

/// There while the server runs.
class shared_file {
 public:
  shared_file(std::string path, const share_file& contents) : path_(std::move(path)) { contents.write(path_); }
  shared_file(const shared_file&) = delete;
  shared_file& operator=(const shared_file&) = delete;
  ~shared_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

void summarize(const cache& c, const server& s, const fm::pool_stats& p) {
  const auto& n = c.count();
  const double seconds = std::chrono::duration<double>(fm::clock::now() - s.status().begin).count();
  std::uint64_t frames = 0, objects = 0, merges = 0, moved = 0, payload = 0;
  for (const auto& a : p.agents) {
    frames += a.frame_bytes;
    for (const auto& k : a.classes) {
      objects += k.objects;
      payload += k.payload_bytes;
      merges += k.merges_made;
      moved += k.objects_moved;
    }
  }
  fmt::print("\nsummary\n");
  fmt::print("  commands             {:>10}   in {:.1f} s, {} of them refused\n", s.status().executed, seconds,
             s.status().failed);
  fmt::print("  keys                 {:>10}   ({} evicted, {} expired)\n", c.size(), n.evicted, n.expired);
  fmt::print("  answered from cache  {:>10}   of {} that were asked for\n", n.hits, n.hits + n.misses);
  fmt::print("  values written       {:>10}   in place, {} anew\n", n.in_place, n.anew);
  fmt::print("  pool                 {:>10}   for {} objects of {}\n", mib(frames), objects, mib(payload));
  fmt::print("  compaction           {:>10}   merges, {} objects moved\n", merges, moved);
  fmt::print("  reads by the server  {:>10}   where they were expected, {} found elsewhere one-sidedly, {} asked for\n",
             p.direct_reads, p.corrected_reads, p.rpc_reads);
}

int serve(arguments& a) {
  a.agents.owner = "cache_server";
  a.agents.memory_bytes = a.memory_bytes;
  std::optional<agent_processes> started;
  fm::pool_options o;
  o.name = "cache_server";
  o.agents = a.connect.empty() ? started.emplace(a.agents).urls() : a.connect;
  o.tenant = fm::pool_tenant::random();
  o.memory_within = std::chrono::milliseconds(100);  // one thread: who waits for memory makes all clients wait
  fm::pool pool(o);
  a.of_cache.evict = a.when_full == "evict";
  cache c(pool, a.of_cache);
  server s(c, a.of_server);
  const shared_file shared(a.share.empty() ? temporary_directory() + "/cache_server.share" : a.share,
                           {o.agents, o.name, o.tenant, c.root()});
  for (const std::string& url : o.agents) fmt::print("values in agent {}\n", url);
  fmt::print("readers: cache_server --reader {}\n", shared.path());
  fmt::print("ready: redis-cli -p {}\n", s.port());
  std::fflush(stdout);
  s.run();
  summarize(c, s, pool.stats());
  if (!a.check) return 0;
  const std::string faults = c.verify();
  fmt::print("\nverify: {} keys, their values, the directory and the pool: {}\n", c.size(),
             faults.empty() ? "no fault" : "FAULTS\n" + faults);
  return faults.empty() ? 0 : 1;
}

// ---- the reader ----

struct checked {
  directory_reader::findings found;
  std::uint64_t rounds = 0;
  std::string failed;
};

/// All buckets over and over, from a place of its own.
checked check_all(fm::pool& pool, fm::pool_address root, fm::time_point until, unsigned thread) {
  checked n;
  try {
    directory_reader r(pool, root);
    while (n.rounds == 0 || (fm::clock::now() < until && !stop_requested.load(std::memory_order_relaxed))) {
      for (std::uint64_t i = 0; i < r.buckets(); ++i) n.found.add(r.check_bucket(i + thread * r.buckets() / 7));
      ++n.rounds;
    }
  } catch (const std::exception& e) {
    n.failed = e.what();
  }
  return n;
}

int check_values(fm::pool& pool, fm::pool_address root, const arguments& a) {
  const fm::time_point begin = fm::clock::now();
  const auto until = begin + std::chrono::duration_cast<fm::duration>(std::chrono::duration<double>(a.seconds));
  std::vector<checked> results(a.threads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < a.threads; ++i)
    threads.emplace_back([&, i] { results[i] = check_all(pool, root, until, i); });
  for (auto& t : threads) t.join();
  const double seconds = std::chrono::duration<double>(fm::clock::now() - begin).count();
  checked all;
  for (const checked& c : results) {
    all.found.add(c.found);
    all.rounds += c.rounds;
    if (!c.failed.empty()) all.failed = c.failed;
  }
  const fm::pool_stats s = pool.stats();
  const auto& f = all.found;
  fmt::print(
      "{} values read in {:.1f} s ({:.0f} a second), {} times all of them; {} overtaken by the server, {} expired\n",
      f.values, seconds, double(f.values) / seconds, all.rounds, f.overtaken, f.expired);
  fmt::print("reads: {} direct, {} corrected one-sidedly, {} answered by an agent\n", s.direct_reads, s.corrected_reads,
             s.rpc_reads);
  const bool good = f.wrong == 0 && f.dangling == 0 && all.failed.empty();
  fmt::print("check: {}\n", good ? "every value was its key's, whole, and never older than before"
                                 : fmt::format("{} WRONG, {} DANGLING {}", f.wrong, f.dangling, all.failed));
  return good ? 0 : 1;
}

int read(const arguments& a) {
  const share_file shared = share_file::read(a.reader);
  fm::pool_options o;
  o.agents = shared.agents;
  o.name = shared.name;
  o.tenant = shared.tenant;
  fm::pool pool(o);
  if (a.seconds != 0) return check_values(pool, shared.root, a);
  directory_reader r(pool, shared.root);
  for (const std::string& key : a.keys) fmt::print("{}\n", r.get(key).value_or("(nil)"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  a.of_server.port = 7379;
  a.agents.count = 1;
  CLI::App app("A cache for redis-cli, with its values in a pool that other processes read.", "cache_server");
  declare_flags(app, a);
  return run_program(app, argc, argv, [&] { return a.reader.empty() ? serve(a) : read(a); });
}
