// graph: PageRank, connected components and transitive closure over a graph of managed objects that is larger than local
// memory. This file puts the parts in order: survey the edges, start the agents, limit this process's memory, build, run,
// report, and with --check lift the limit and compare with a plain run.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments, 130 interrupted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "../support/machine.h"
#include "algorithms.h"
#include "check.h"

namespace {

using namespace fm::example;

struct arguments {
  machine_options machine;
  edge_options edges;
  std::uint64_t sources = 16;
  std::string algorithm = "pagerank";
  unsigned iterations = 10;
  bool check = false;
};

void declare_flags(CLI::App& app, arguments& a) {
  declare(app, a.edges);
  app.add_option("--algorithm", a.algorithm, "what to compute")
      ->check(CLI::IsMember({"pagerank", "components", "closure"}))
      ->capture_default_str();
  app.add_option("--iterations", a.iterations, "of pagerank")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--sources", a.sources,
                 "closure: the vertices whose reachable sets are wanted (all of them is quadratic)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--check", a.check,
               "compare with a plain run in local memory, without the limit; verify the heap; fail on a difference");
  declare(app, a.machine, "graph");
}

/// What a closure makes beside the graph before a collection frees it: one small object for each vertex that a source reaches,
/// until as much was allocated as is live.
std::uint64_t derived_objects(const arguments& a, const edge_survey& s) {
  constexpr std::uint64_t bytes_each = 32;
  return std::min(a.sources * s.vertices, s.graph_bytes() / bytes_each);
}

struct outcome {
  double build_seconds = 0, run_seconds = 0;
  std::uint64_t graph_bytes = 0;  ///< allocated until it was built
  std::vector<std::uint64_t> sources;
  reach_list rows;
};

outcome compute(graph& g, const arguments& a) {
  outcome o;
  const fm::time_point begin = fm::clock::now();
  if (a.algorithm == "pagerank") {
    pagerank(g, a.iterations);
  } else if (a.algorithm == "components") {
    components(g);
  } else {
    o.sources = choose_sources(g.vertex_count(), a.sources, a.edges.seed);
    o.rows = closure(g, o.sources);
  }
  o.run_seconds = std::chrono::duration<double>(fm::clock::now() - begin).count();
  return o;
}

/// Some of the result, for people.
void print_result(const graph& g, const arguments& a, const outcome& o) {
  fmt::print("\n{}\n", a.algorithm);
  if (a.algorithm == "pagerank") {
    std::vector<std::pair<double, std::uint64_t>> best;
    double sum = 0;
    for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) {
      const double rank = v->rank;
      sum += rank;
      best.emplace_back(-rank, v->id);
      std::push_heap(best.begin(), best.end());
      if (best.size() <= 5) return;
      std::pop_heap(best.begin(), best.end());
      best.pop_back();
    });
    std::sort(best.begin(), best.end());
    for (const auto& [rank, id] : best) fmt::print("  vertex {:<12} {:.6e}\n", id, -rank);
    fmt::print("  sum of all ranks    {:.12f}\n", sum);
  } else if (a.algorithm == "components") {
    const component_sizes c = count_components(g);
    fmt::print("  {} components, the largest with {} of {} vertices\n", c.components, c.largest, g.vertex_count());
  } else {
    std::uint64_t pairs = 0;
    for (std::uint64_t i = 0; i < o.rows.size(); ++i) pairs += fm::ptr<reach>(o.rows[i])->members->size();
    fmt::print("  {} sources reach {} vertices in all\n", o.rows.size(), pairs);
  }
}

void summarize(const graph& g, fm::heap& h, const edge_survey& s, const outcome& o, const memory_plan& p,
               const memory_limit& limit, const agent_processes& agents) {
  const fm::heap_stats st = h.stats();
  fmt::print("\nsummary\n");
  fmt::print("  vertices             {:>10}\n", g.vertex_count());
  fmt::print("  edges                {:>10}\n", g.edge_count());
  fmt::print("  objects made         {:>10}   ({})\n", st.allocated_objects, mib(st.allocated_bytes));
  fmt::print("  graph                {:>10}   (estimated {})\n", mib(o.graph_bytes), mib(s.graph_bytes()));
  print_local_memory(p, limit, o.graph_bytes, "graph");
  print_traffic(st, g.operations(), "references to vertices looked up, stored or followed");
  print_collections(st);
  print_processes(agents);
  fmt::print("  time                 {:>8.1f} s   survey, {:.1f} s building, {:.1f} s running\n", s.seconds,
             o.build_seconds, o.run_seconds);
  std::fflush(stdout);
}

/// Gives whether everything agreed.
bool check(const graph& g, const arguments& a, const edge_source& edges, const outcome& o) {
  plain_graph plain(edges);
  const difference d = a.algorithm == "pagerank"     ? plain.pagerank(g, a.iterations)
                       : a.algorithm == "components" ? plain.components(g)
                                                     : plain.closure(g, o.rows, o.sources);
  for (const std::string& m : d.messages) fmt::print("  {}\n", m);
  fmt::print("\nplain run            {:>10.1f} s   building, {:.2f} s running, all in local memory\n",
             plain.build_seconds(), plain.run_seconds());
  fmt::print("check: {} {} against the plain run: {}{}\n", d.compared,
             a.algorithm == "closure" ? "reached vertices" : "vertices",
             d.differences == 0 ? "no difference" : fmt::format("{} DIFFER", d.differences),
             a.algorithm == "pagerank" ? fmt::format(" (the largest relative one is {:.1e})", d.largest) : "");
  return verify_home(g.heap()) && d.differences == 0 && d.compared != 0;
}

int run(arguments& a) {
  const auto edges = edges_of(a.edges);
  const edge_survey s = survey_edges(*edges);
  if (s.edges == 0) throw fm::error(fm::errc::invalid_argument, edges->describe() + ": no edges");
  const memory_plan p = make_plan(a.machine, s.graph_bytes(),
                                  s.graph_objects() + (a.algorithm == "closure" ? derived_objects(a, s) : 0), 3);
  a.machine.agents.owner = "graph";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);  // before the limit: they stand for other machines
  memory_limit limit("graph", p.local_bytes);
  fmt::print("{}: {} edges, about {} vertices\n", edges->describe(), s.edges, s.vertices);
  print_machine("graph", s.graph_bytes(), p, limit, agents);

  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = "graph"});
  const fm::time_point begin = fm::clock::now();
  graph g(h, *edges);
  const double build_seconds = std::chrono::duration<double>(fm::clock::now() - begin).count();
  const std::uint64_t graph_bytes = h.stats().allocated_bytes;
  outcome o = compute(g, a);
  o.graph_bytes = graph_bytes;
  o.build_seconds = build_seconds;
  if (stop_requested) {
    fmt::print(stderr, "graph: interrupted\n");
    return 130;
  }
  summarize(g, h, s, o, p, limit, agents);
  print_result(g, a, o);
  limit.end();
  return !a.check || check(g, a, *edges, o) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Runs a graph algorithm over managed objects in a far-memory heap.", "graph");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
