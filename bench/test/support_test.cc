// The harness measures nothing that was not tested itself: samplers against exact probabilities, quantiles against
// definitions, and the undoing of what a benchmark borrows from the operating system.
#define CATCH_CONFIG_RUNNER
#include "base/base.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <numeric>
#include <poll.h>
#include <string>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../peers/plain_key_value.h"
#include "../peers/serializer_link.h"
#include "../peers/tcp.h"
#include "../support/key_value.h"
#include "../support/limits.h"
#include "../support/process.h"
#include "../support/report.h"

using namespace fm::bench;

TEST_CASE("zipf ranks have the probabilities that the formula gives") {
  const double s = GENERATE(0.0, 0.5, 0.99, 1.0, 1.2);
  constexpr std::uint64_t n = 50, draws = 200'000;
  const zipf_ranks ranks(n, s);
  random_source random(7);
  std::vector<double> seen(n + 1);
  for (std::uint64_t i = 0; i < draws; ++i) {
    const std::uint64_t rank = ranks(random);
    REQUIRE((rank >= 1 && rank <= n));
    seen[rank] += 1;
  }
  double total = 0, chi_square = 0;
  for (std::uint64_t k = 1; k <= n; ++k) total += std::pow(double(k), -s);
  for (std::uint64_t k = 1; k <= n; ++k) {
    const double expected = draws * std::pow(double(k), -s) / total;
    chi_square += (seen[k] - expected) * (seen[k] - expected) / expected;
  }
  CHECK(chi_square < 94.0);  // 49 degrees of freedom: exceeded by chance once in 10,000
}

TEST_CASE("scattering ranks over keys is a bijection for every number of keys") {
  const std::uint64_t n = GENERATE(1u, 2u, 3u, 1000u, 4096u, 100'003u);
  const zipf_keys keys(n, 0.99);
  std::vector<char> hit(n);
  for (std::uint64_t rank = 0; rank < n; ++rank) {
    const std::uint64_t key = keys.scatter(rank);
    REQUIRE(key < n);
    REQUIRE(hit[key] == 0);
    hit[key] = 1;
  }
}

TEST_CASE("quantiles are taken over all samples, outliers included") {
  std::vector<std::uint32_t> ns(1000);
  std::iota(ns.rbegin(), ns.rend(), 1u);
  ns[0] = 4'000'000'000u;
  const latency_summary l = summarize_latency(ns);
  CHECK(l.count == 1000);
  CHECK(l.p50 == 500);
  CHECK(l.p99 == 990);
  CHECK(l.p999 == 999);
  CHECK(l.max == 4'000'000'000.0);
  const summary odd = summarize({3, 1, 2}), even = summarize({4, 1, 2, 3}), none = summarize({});
  CHECK(odd.median == 2);
  CHECK(even.median == 2.5);
  CHECK(none.count == 0);
}

TEST_CASE("a line of JSON has the figures, escapes what it quotes and writes no infinities") {
  row r;
  r.spec = {"a\"b\\\n", {{"k", "v"}}, "ns", {goal_kind::ratio_at_most, 1.5}, "peer"};
  r.has_peer = true;
  r.ours.value = summarize({2});
  r.peer.value = summarize({1});
  r.ratio = 2;
  r.pair_ratio = summarize({1.0 / 0.0});
  run_facts facts = facts_of_this_run("test");
  facts.commit = facts.tree = "";
  const std::string line = json_line(facts, r);
  CHECK(line.find("\"name\":\"test.a\\\"b\\\\\\u000a\"") != std::string::npos);
  CHECK(line.find("\"ours\":2,") != std::string::npos);
  CHECK(line.find("\"ratio\":2,\"ratio_min\":null") != std::string::npos);
  CHECK(line.find("\"goal\":\"ratio <= 1.5\",\"met\":false") != std::string::npos);
  CHECK(line.find("inf") == std::string::npos);
  CHECK(line.find("commit") == std::string::npos);
  facts.commit = "abc";
  facts.tree = "def";
  CHECK(json_line(facts, r) == line.substr(0, line.size() - 1) + R"(,"commit":"abc","tree":"def"})");
}

TEST_CASE("a guard undoes on release, on destruction and when its owner is killed") {
  const std::string directory = "/tmp/farmem-bench-guard-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0700) == 0);
  const auto undo = [&] { rmdir(directory.c_str()); };
  const auto exists = [&] { return access(directory.c_str(), F_OK) == 0; };
  SECTION("released") {
    guard g(undo);
    REQUIRE(exists());
    g.release();
    CHECK(!exists());
    g.release();
  }
  SECTION("destroyed while a later guard lives on") {
    guard first(undo);
    const guard second([] {});
    first = guard();
    CHECK(!exists());
  }
  SECTION("killed") {
    const worker w("guarded", {directory}, -1);
    REQUIRE(exists());
    const int watch = inotify_init1(IN_CLOEXEC);
    REQUIRE(inotify_add_watch(watch, directory.c_str(), IN_DELETE_SELF) >= 0);
    kill(w.pid(), SIGKILL);
    pollfd deleted{watch, POLLIN, 0};
    CHECK(poll(&deleted, 1, 10'000) == 1);
    close(watch);
    CHECK(!exists());
  }
}

TEST_CASE("a worker that fails, dies or refuses is an error that names it") {
  worker w("plain_kv", {"1000"}, -1);
  CHECK(w.ready().at("keys") == 1000);
  CHECK(w.ask("run 0.99 0.5 1000 1 1").at("ops_per_s") > 0);
  CHECK_THROWS_WITH(w.ask("walk"), Catch::Contains("plain_kv") && Catch::Contains("invalid_argument"));
  CHECK(w.ask("run 0 0 10 1 0").at("wall_s") >= 0);
  kill(w.pid(), SIGKILL);
  CHECK_THROWS_AS(w.ask("run 0 0 10 1 0"), fm::error);
  CHECK_THROWS_AS(worker("plain_kv", {"not-a-number"}, -1), fm::error);
}

TEST_CASE("plain TCP round trips carry the bytes asked for, one by one and pipelined") {
  const tcp_server server(-1);
  std::vector<std::uint32_t> ns;
  for (const waiting how : {waiting::blocking, waiting::spinning}) {
    tcp_ping ping(server.port(), 24, 88, how);
    ping.run(50, ns);
    ping.run_pipelined(200, 16);
    ping.run(1, ns);  // nothing is left over from the pipelined ones
  }
  CHECK(ns.size() == 102);
  CHECK(tcp_stream(server.port(), 3 << 20, 64 << 10) > 0);
}

TEST_CASE("a process in a memory group stays under its limit, and swap takes the rest") {
  constexpr std::uint64_t keys = 1 << 17, limit = kv_data_bytes(keys) / 4;
  std::string group;
  try {
    const ram_swap disk(2 * kv_data_bytes(keys), 0);
    {
      const memory_cgroup quarter("test", limit);
      group = quarter.procs();
      worker w("plain_kv", {std::to_string(keys)}, -1, quarter.procs());
      CHECK(w.ask("run 0 0.5 2000 1 0").at("ops_per_s") > 0);
      CHECK(quarter.peak_bytes() <= limit);
      CHECK(quarter.used_bytes() > limit / 2);
    }
    CHECK(access(group.c_str(), F_OK) != 0);
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::unsupported) throw;
    WARN("not tested here: " << e.what());
  }
}

namespace {

int guarded_main(const std::vector<std::string>& args) {
  const guard g([directory = args.at(0)] { rmdir(directory.c_str()); });
  return serve_commands({}, [](const std::vector<std::string>&) { return figures{}; });
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv,
                         {{"guarded", guarded_main},
                          {"plain_kv", plain_key_value_main},
                          {"serializer_receiver", serializer_receiver_main},
                          {"tcp_server", tcp_server_main}});
  return Catch::Session().run(argc, argv);
}
