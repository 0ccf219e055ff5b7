// rpc: a small service on channels. Its process keeps a catalogue of parts that are made from parts, in a far heap larger than its local
// memory; clients in another process, with a heap of their own and no agents, order parts and get bills. Requests and answers
// are object graphs; neither is serialised. This file puts the parts in order; the service is this program again, as a process.
//
// Exit codes: 0 all well, 1 something failed or an answer is wrong, 2 a mistake in the arguments, 130 interrupted.
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "../support/machine.h"
#include "client.h"
#include "service.h"

namespace {

using namespace fm::example;
using fm::literals::operator""_MiB;

/// What a part was measured to need, with its name, its place in the map and what it is made from.
constexpr std::uint64_t bytes_per_part = 330, objects_per_part = 4;
/// Requests and bills that are made until a collection has freed the ones before.
constexpr std::uint64_t passing_objects = 2'000'000;
constexpr auto end_within = std::chrono::seconds(60);

struct arguments {
  machine_options machine;
  std::uint64_t parts = 100'000, requests = 10'000, in_flight = 8, clients = 2, seed = 1, within_ms = 10'000;
  std::string channel = "shm";
  bool check = false, serve = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  app.add_option("--parts", a.parts, "parts in the catalogue")->check(CLI::Range(60, 9'999'999))->capture_default_str();
  app.add_option("--requests", a.requests, "of each client")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--clients", a.clients, "each with a channel")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--in-flight", a.in_flight, "requests that a client has on their way at once")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  app.add_option("--within-ms", a.within_ms, "that the service may take for a request")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--channel", a.channel, "how clients reach the service")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  app.add_option("--seed", a.seed, "of the parts and the orders")->capture_default_str();
  app.add_flag("--check", a.check, "verify the heaps of both processes at the end");
  app.add_flag("--serve", a.serve)->group("");  // what the program is started with again
  declare(app, a.machine, "catalogue");
}

// ---- the service's process ----

int serve(arguments& a) {
  const std::uint64_t bytes = a.parts * bytes_per_part;
  const memory_plan p = make_plan(a.machine, bytes, a.parts * objects_per_part + passing_objects, 4);
  a.machine.agents.owner = "rpc";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);  // before the limit: they stand for other machines
  memory_limit limit("rpc", p.local_bytes);
  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = "rpc"});
  service s(h, plain_parts(a.parts, a.seed));
  print_machine("catalogue", bytes, p, limit, agents);
  {
    fm::channel_listener l(
        h, a.channel == "shm" ? fmt::format("shm:///tmp/farmem-rpc-{}.sock", ::getpid()) : "tcp://127.0.0.1:0",
        {.objects_max = 100'000, .bytes_max = 16_MiB});
    std::vector<std::thread> threads;
    say_ready(l.url());
    while (!stop_requested) {
      try {
        fm::channel c = l.accept(std::chrono::milliseconds(100));
        threads.emplace_back([&s, c = std::move(c)]() mutable {
          try {
            s.serve(std::move(c));
          } catch (const fm::error& e) {
            fmt::print(stderr, "rpc: a client is given up: {}\n", e.what());
          }
        });
      } catch (const fm::error& e) {
        if (e.code() != fm::errc::timed_out) throw;
      }
    }
    for (std::thread& t : threads) t.join();
  }
  const fm::heap_stats st = h.stats();
  fmt::print("\nservice\n  answered             {:>10}   ({} graphs refused, which were no requests)\n", s.answered(),
             s.refused());
  print_local_memory(p, limit, bytes, "catalogue");
  print_traffic(st, s.items(), "parts looked at");
  print_collections(st);
  limit.end();
  return !a.check || verify_home(h) ? 0 : 1;
}

// ---- the clients' process ----

void print_totals(client_totals& t, const arguments& a, double seconds) {
  std::sort(t.latencies_us.begin(), t.latencies_us.end());
  const std::size_t n = t.latencies_us.size();
  const auto at = [&](double q) { return n == 0 ? 0 : t.latencies_us[std::size_t(double(n - 1) * q)]; };
  fmt::print("\n{} clients over {}, {} requests in flight each\n", a.clients, a.channel, a.in_flight);
  fmt::print("  requests             {:>10}   in {:.2f} s: {:.0f} a second\n", n, seconds, double(n) / seconds);
  fmt::print("  latency              {:>7} us   median, {} us p99 (with those ahead of it)\n", at(0.5), at(0.99));
  fmt::print("  bills                {:>10}   with {} items\n", t.outcomes[0], t.items);
  for (std::size_t i = 1; i < t.outcomes.size(); ++i)
    if (t.outcomes[i] != 0) fmt::print("  {:<20} {:>10}\n", name_of(outcome(i)), t.outcomes[i]);
  fmt::print("  layout_mismatch      {:>10}\n", t.not_requests);
  fmt::print("  sent, received       {:>10}   {}\n", mib(t.bytes_out), mib(t.bytes_in));
}

int run(arguments& a) {
  if (a.serve) return serve(a);
  std::vector<std::string> command = own_command();
  command.emplace_back("--serve");
  process server(command, std::chrono::minutes(10));  // it builds the catalogue first
  fm::heap h({.cache = 32_MiB, .local_memory = 256_MiB, .name = "rpc-clients"});
  const plain_parts parts(a.parts, a.seed);
  std::vector<client_totals> totals(a.clients);
  std::vector<std::string> errors(a.clients);
  const fm::time_point begin = fm::clock::now();
  {
    std::vector<std::thread> threads;
    for (std::uint64_t c = 0; c < a.clients; ++c)
      threads.emplace_back([&, c] {
        try {
          totals[c] =
              run_client(h, server.line(), parts, {a.requests, a.in_flight, a.seed * 1000 + c, a.within_ms * 1000});
        } catch (const fm::error& e) {
          errors[c] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
  }
  const double seconds = std::chrono::duration<double>(fm::clock::now() - begin).count();
  client_totals sum;
  for (const client_totals& t : totals) sum.add(t);
  print_totals(sum, a, seconds);
  bool good = sum.wrong == 0;
  for (const std::string& e : errors)
    if (!e.empty()) {
      fmt::print("  a client failed: {}\n", e);
      good = false;
    }
  for (const std::string& m : sum.messages) fmt::print("  {}\n", m);
  fmt::print("check: {} answers against the plain parts: {}\n", sum.latencies_us.size(),
             sum.wrong == 0 ? "no difference" : fmt::format("{} DIFFERENCES", sum.wrong));
  if (a.check) {
    fmt::print("clients' heap: ");
    good &= verify_home(h);
  }
  std::fflush(stdout);
  server.ask_to_end();
  if (const int status = server.wait(fm::clock::now() + end_within); status != 0) {
    fmt::print(stderr, "rpc: the service ended with {}\n", status);
    good = false;
  }
  if (stop_requested) return 130;
  return good && !sum.latencies_us.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("A service that sends and receives object graphs, and clients that check its answers.", "rpc");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
