// PageRank, components and closure by following references; see algorithms.h.
#include "algorithms.h"

#include <algorithm>
#include <unordered_set>

#include "../support/machine.h"

namespace fm::example {

namespace {

bool stopped() { return stop_requested.load(std::memory_order_relaxed); }

/// A vertex that a round of a closure has newly reached.
struct derived {
  fm::ref<vertex> at;
  fm::ref<derived> next;
};

}  // namespace

void pagerank(graph& g, unsigned iterations) {
  const auto n = double(g.vertex_count());
  for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) { v.write()->rank = 1 / n; });
  for (unsigned i = 0; i < iterations && !stopped(); ++i) {
    double nowhere = 0;  // the ranks of vertices without successors
    std::uint64_t followed = for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) {
      const fm::write_pin w = v.write();
      if (w->out)
        w->share = w->rank / double(w->out->size());
      else
        nowhere += w->rank;
    });
    const double base = (1 - damping) / n + damping * nowhere / n;
    followed += for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) {
      double sum = 0;
      followed += for_each_vertex(v->in, [&](const fm::ptr<vertex>& from) { sum += from->share; });
      v.write()->rank = base + damping * sum;
    });
    g.count_operations(followed);
  }
}

fm::ptr<vertex> representative(fm::ptr<vertex> v) {
  for (;;) {
    const fm::ptr<vertex> parent = v->parent;
    if (!parent) return v;
    fm::ptr<vertex> grandparent = parent->parent;
    if (!grandparent) return parent;
    v.write()->parent = grandparent;
    v = std::move(grandparent);
  }
}

void components(graph& g) {
  std::uint64_t followed = for_each_vertex(g.vertices(), [&](const fm::ptr<vertex>& v) {
    if (stopped()) return;
    fm::ptr<vertex> mine = representative(v);
    followed += for_each_vertex(v->out, [&](const fm::ptr<vertex>& to) {
      fm::ptr<vertex> other = representative(to);
      if (mine == other) return;
      if (mine->number > other->number) std::swap(mine, other);
      other.write()->parent = mine;
    });
  });
  g.count_operations(followed);
}

reach_list closure(graph& g, const std::vector<std::uint64_t>& sources) {
  fm::heap& h = g.heap();
  const reach_list rows(h);
  std::uint64_t search = 0, followed = 0;
  for (const std::uint64_t number : sources) {
    ++search;
    const fm::ptr<vertex> source = g.vertices()[number];
    const vertex_list members(h);
    fm::ptr<derived> news;
    const auto derive = [&](const fm::ptr<vertex>& v, fm::ptr<derived>& list) {
      v.write()->visit = search;
      members.push_back(v);
      list = h.make<derived>({.at = v, .next = list});
    };
    derive(source, news);
    while (news && !stopped()) {
      fm::ptr<derived> next;
      for (fm::ptr<derived> d = news; d; d = d->next.root()) {
        const fm::ptr<vertex> at = d->at;
        followed += for_each_vertex(at->out, [&](const fm::ptr<vertex>& to) {
          if (to->visit != search) derive(to, next);
        });
      }
      news = next;
    }
    rows.push_back(h.make<reach>({.source = source, .members = members}));
  }
  g.count_operations(followed);
  return rows;
}

std::vector<std::uint64_t> choose_sources(std::uint64_t n, std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> chosen;
  std::unordered_set<std::uint64_t> known;
  for (std::uint64_t i = 0; chosen.size() < std::min(n, count); ++i) {
    const std::uint64_t number = mix(mix(seed) + i) % n;
    if (known.insert(number).second) chosen.push_back(number);
  }
  return chosen;
}

}  // namespace fm::example
