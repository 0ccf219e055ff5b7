// pagerank: PageRank of a graph that two processes hold one half of each, in far heaps larger than their local memory. In every
// iteration what one half's vertices owe to the other's is shuffled through a channel, in both directions at once. This process
// is one half, and starts itself again as the other; with --check it compares all ranks with a plain run.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments, 130 interrupted.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "../support/machine.h"
#include "half.h"

namespace {

using namespace fm::example;

constexpr double tolerance = 1e-9;  // of a rank: the halves add in another order
constexpr auto end_within = std::chrono::seconds(60);

struct arguments {
  machine_options machine;
  edge_options edges;
  std::string channel = "shm", join;
  unsigned iterations = 10;
  bool check = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  a.machine.agents.count = 1;
  declare(app, a.edges);
  app.add_option("--iterations", a.iterations, "")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--channel", a.channel, "how the halves reach each other")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  app.add_flag("--check", a.check, "compare with a plain run in local memory, and verify both heaps");
  app.add_option("--join", a.join)->group("");  // what the program is started with again
  declare(app, a.machine, "half of the graph");
}

/// The same in local memory, sharing no code with the halves.
std::unordered_map<std::uint64_t, double> plain_run(const edge_source& edges, unsigned iterations) {
  std::unordered_map<std::uint64_t, std::size_t> number;
  std::vector<std::uint64_t> ids;
  std::vector<std::vector<std::uint32_t>> out;
  const auto number_of = [&](std::uint64_t id) {
    const auto [at, added] = number.emplace(id, ids.size());
    if (added) {
      ids.push_back(id);
      out.emplace_back();
    }
    return at->second;
  };
  edges.for_each([&](const edge& e) {
    const std::size_t from = number_of(e.from), to = number_of(e.to);
    out[from].push_back(std::uint32_t(to));
    return true;
  });
  const auto n = double(ids.size());
  std::vector<double> rank(ids.size(), 1 / n), sum(ids.size());
  for (unsigned i = 0; i < iterations; ++i) {
    std::fill(sum.begin(), sum.end(), 0.0);
    double nowhere = 0;
    for (std::size_t v = 0; v < ids.size(); ++v) {
      for (const std::uint32_t to : out[v]) sum[to] += rank[v] / double(out[v].size());
      if (out[v].empty()) nowhere += rank[v];
    }
    for (std::size_t v = 0; v < ids.size(); ++v) rank[v] = 0.15 / n + 0.85 * (sum[v] + nowhere / n);
  }
  std::unordered_map<std::uint64_t, double> ranks;
  for (std::size_t v = 0; v < ids.size(); ++v) ranks.emplace(ids[v], rank[v]);
  return ranks;
}

using named_rank = std::pair<std::uint64_t, double>;

bool check(const std::vector<named_rank>& ranks, const edge_source& edges, unsigned iterations) {
  const auto expected = plain_run(edges, iterations);
  double largest = 0;
  std::uint64_t differences = ranks.size() != expected.size();
  for (const auto& [id, rank] : ranks) {
    const auto found = expected.find(id);
    const double difference = found == expected.end() ? 1 : std::abs(rank - found->second) / found->second;
    largest = std::max(largest, difference);
    if (difference > tolerance) ++differences;
  }
  fmt::print("check: {} ranks against the plain run: {} (at most {:.1e} of a rank)\n", ranks.size(),
             differences == 0 ? "no difference" : fmt::format("{} DIFFERENCES", differences), largest);
  return differences == 0 && !ranks.empty();
}

void print_result(std::vector<named_rank>& ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const named_rank& a, const named_rank& b) { return a.second > b.second; });
  double sum = 0;
  for (const auto& [id, rank] : ranks) sum += rank;
  fmt::print("\npagerank\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(5, ranks.size()); ++i)
    fmt::print("  vertex {:<12} {:.6e}\n", ranks[i].first, ranks[i].second);
  fmt::print("  sum of all ranks    {:.12f}\n", sum);
}

void summarize(const half& g, fm::heap& h, const fm::channel& c, const arguments& a, double seconds, unsigned mine) {
  const fm::channel_stats s = c.stats();
  fmt::print("\nhalf {}\n", mine);
  fmt::print("  vertices             {:>10}   and stand-ins for {} of the other half; {} edges\n", g.vertices(),
             g.stand_ins(), g.edges());
  fmt::print("  iterations           {:>10}   in {:.2f} s, of which {:.2f} s in the shuffle\n", a.iterations, seconds,
             g.waited_seconds());
  fmt::print("  shuffled             {:>10}   out in {} objects, {} in\n", mib(s.wire_bytes_sent), s.objects_sent,
             mib(s.wire_bytes_received));
  print_traffic(h.stats(), g.operations(), "references followed");
  std::fflush(stdout);
}

int run(arguments& a) {
  const unsigned mine = a.join.empty() ? 0 : 1;
  if (mine == 1) say_ready("started");
  const auto edges = edges_of(a.edges);
  edge_survey s = survey_edges(*edges);
  if (s.edges == 0) throw fm::error(fm::errc::invalid_argument, edges->describe() + ": no edges");
  const std::uint64_t bytes = s.graph_bytes() / 2 + s.vertices * 50;  // stand-ins
  const memory_plan p = make_plan(a.machine, bytes, s.graph_objects(), 3);
  a.machine.agents.owner = fmt::format("pagerank-{}", mine);
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);
  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = a.machine.agents.owner});

  std::optional<fm::channel_listener> listener;
  std::optional<process> other;
  fm::channel c;
  if (mine == 0) {
    fmt::print("{}: {} edges, about {} vertices\n", edges->describe(), s.edges, s.vertices);
    listener.emplace(
        h, a.channel == "shm" ? fmt::format("shm:///tmp/farmem-pagerank-{}.sock", ::getpid()) : "tcp://127.0.0.1:0");
    std::vector<std::string> command = own_command();
    command.insert(command.end(), {"--join", listener->url()});
    other.emplace(command);
    c = listener->accept(std::chrono::minutes(2));
  } else {
    c = fm::channel::connect(h, a.join);
  }
  memory_limit limit(a.machine.agents.owner, p.local_bytes);  // now: the other process has one of its own
  if (mine == 0) print_machine("half of the graph", bytes, p, limit, agents);
  half g(h, *edges, mine, c);
  const fm::time_point begin = fm::clock::now();
  for (unsigned i = 0; i < a.iterations && !stop_requested; ++i) g.iterate();
  const double seconds = std::chrono::duration<double>(fm::clock::now() - begin).count();
  if (stop_requested) return 130;
  if (mine == 1) {
    g.send_ranks();
    limit.end();
    return !a.check || verify_home(h) ? 0 : 1;
  }
  summarize(g, h, c, a, seconds, mine);
  limit.end();
  std::vector<named_rank> ranks;
  g.for_each_rank([&](std::uint64_t id, double rank) { ranks.emplace_back(id, rank); });
  g.receive_ranks([&](std::uint64_t id, double rank) { ranks.emplace_back(id, rank); });
  print_result(ranks);
  bool good = !a.check || (check(ranks, *edges, a.iterations) && verify_home(h));
  std::fflush(stdout);
  if (const int status = other->wait(fm::clock::now() + end_within); status != 0) {
    fmt::print(stderr, "pagerank: the other half ended with {}\n", status);
    good = false;
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("PageRank of a graph that two processes hold half of each, and shuffle through a channel.", "pagerank");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
