// The plain run and the comparisons; see check.h. Deliberately simple: numbers and std::vector, breadth-first search for both
// components and closure.
#include "check.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <unordered_map>

namespace fm::example {

namespace {

constexpr double tolerance = 1e-12;
constexpr std::size_t messages_max = 10;

double seconds_since(time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

void note(difference& d, const std::string& what) {
  ++d.differences;
  if (d.messages.size() < messages_max) d.messages.push_back(what);
}

/// Whether the managed vertices are those of the plain run at all.
void compare_vertices(const graph& g, const std::vector<std::uint64_t>& ids, difference& d) {
  if (g.vertex_count() != ids.size() || g.vertices().size() != ids.size())
    note(d,
         fmt::format("{} vertices, {} of them listed; plain: {}", g.vertex_count(), g.vertices().size(), ids.size()));
}

}  // namespace

plain_graph::plain_graph(const edge_source& edges) {
  const time_point begin = clock::now();
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  const auto number_of = [&](std::uint64_t id) {
    const auto [at, is_new] = numbers.try_emplace(id, std::uint32_t(ids_.size()));
    if (is_new) {
      ids_.push_back(id);
      out_.emplace_back();
      in_.emplace_back();
    }
    return at->second;
  };
  edges.for_each([&](const edge& e) {
    const std::uint32_t from = number_of(e.from);
    const std::uint32_t to = number_of(e.to);
    out_[from].push_back(to);
    in_[to].push_back(from);
    return true;
  });
  build_seconds_ = seconds_since(begin);
}

difference plain_graph::pagerank(const graph& g, unsigned iterations) {
  const time_point begin = clock::now();
  const std::size_t n = ids_.size();
  std::vector<double> rank(n, 1 / double(n)), share(n);
  for (unsigned i = 0; i < iterations; ++i) {
    double nowhere = 0;
    for (std::size_t v = 0; v < n; ++v) {
      if (out_[v].empty())
        nowhere += rank[v];
      else
        share[v] = rank[v] / double(out_[v].size());
    }
    const double base = (1 - damping) / double(n) + damping * nowhere / double(n);
    for (std::size_t v = 0; v < n; ++v) {
      double sum = 0;
      for (const std::uint32_t u : in_[v]) sum += share[u];
      rank[v] = base + damping * sum;
    }
  }
  run_seconds_ = seconds_since(begin);

  difference d;
  compare_vertices(g, ids_, d);
  d.compared = for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& p) {
    const fm::read_pin v = p.read();
    if (v->number >= n || v->id != ids_[v->number])
      return note(d, fmt::format("vertex {} has number {}", v->id, v->number));
    const double off = std::abs(v->rank - rank[v->number]) / rank[v->number];
    d.largest = std::max(d.largest, off);
    if (!(off <= tolerance))
      note(d, fmt::format("vertex {}: rank {:.17g}; plain: {:.17g}", v->id, v->rank, rank[v->number]));
  });
  return d;
}

difference plain_graph::components(const graph& g) {
  const time_point begin = clock::now();
  const std::size_t n = ids_.size();
  constexpr auto none = ~std::uint32_t{0};
  std::vector<std::uint32_t> label(n, none), queue;
  for (std::uint32_t root = 0; root < n; ++root) {
    if (label[root] != none) continue;
    label[root] = root;
    queue.assign(1, root);
    while (!queue.empty()) {
      const std::uint32_t v = queue.back();
      queue.pop_back();
      for (const auto* edges : {&out_[v], &in_[v]})
        for (const std::uint32_t u : *edges)
          if (label[u] == none) {
            label[u] = root;
            queue.push_back(u);
          }
    }
  }
  run_seconds_ = seconds_since(begin);

  difference d;
  compare_vertices(g, ids_, d);
  d.compared = for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& p) {
    const std::uint64_t number = p->number, found = representative(p)->number;
    if (number >= n || p->id != ids_[number] || found != label[number])
      note(d, fmt::format("vertex number {}: in the component of {}; plain: {}", number, found,
                          number < n ? label[number] : none));
  });
  return d;
}

difference plain_graph::closure(const graph& g, const reach_list& rows, const std::vector<std::uint64_t>& sources) {
  difference d;
  compare_vertices(g, ids_, d);
  run_seconds_ = 0;
  if (rows.size() != sources.size()) note(d, fmt::format("{} rows; wanted: {}", rows.size(), sources.size()));
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), sources.size()); ++i) {
    const time_point begin = clock::now();
    std::vector<bool> reached(ids_.size());
    std::vector<std::uint32_t> queue{std::uint32_t(sources[i])};
    reached[sources[i]] = true;
    std::uint64_t count = 1;
    while (!queue.empty()) {
      const std::uint32_t v = queue.back();
      queue.pop_back();
      for (const std::uint32_t u : out_[v])
        if (!reached[u]) {
          reached[u] = true;
          ++count;
          queue.push_back(u);
        }
    }
    run_seconds_ += seconds_since(begin);

    // Each member takes its mark away, so what is there twice, or wrongly, finds none.
    const fm::ptr<reach> row = rows[i];
    const std::uint64_t members = for_each_vertex(row->members, [&](const fm::ptr<vertex>& v) {
      const std::uint64_t number = v->number;
      if (number >= reached.size() || !reached[number] || v->id != ids_[number])
        return note(d, fmt::format("source {}: reaches {} twice or wrongly", row->source->id, v->id));
      reached[number] = false;
    });
    d.compared += members;
    if (members != count || row->source->number != sources[i])
      note(d, fmt::format("source {}: reaches {}; plain: {}", row->source->id, members, count));
  }
  return d;
}

component_sizes count_components(const graph& g) {
  std::unordered_map<std::uint64_t, std::uint64_t> sizes;
  for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) { ++sizes[representative(v)->number]; });
  component_sizes c;
  c.components = sizes.size();
  for (const auto& [representative_number, size] : sizes) c.largest = std::max(c.largest, size);
  return c;
}

}  // namespace fm::example
