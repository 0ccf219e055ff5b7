// Building the graph; see graph.h.
#include "graph.h"

#include "../support/machine.h"

namespace fm::example {

namespace {

void append(fm::heap& h, const fm::ptr<vertex>& v, fm::ref<vertex_list> vertex::*list, const fm::ptr<vertex>& other) {
  vertex_list edges = (v.read().get()->*list).root();
  if (!edges) {
    edges = vertex_list(h);
    v.write().get()->*list = edges;
  }
  edges.push_back(other);
}

}  // namespace

graph::graph(fm::heap& h, const edge_source& edges) : heap_(h), vertices_(h) {
  // Only for building: once this function returns, the next collection frees it.
  const fm::hash_map<std::uint64_t, fm::ref<vertex>> by_id(h);
  const auto vertex_of = [&](std::uint64_t id) {
    return by_id.get_or_insert(id, [&] {
      const fm::ptr<vertex> v = h.make<vertex>({.id = id, .number = vertex_count_++});
      vertices_.push_back(v);
      return v;
    });
  };
  edges.for_each([&](const edge& e) {
    const fm::ptr<vertex> from = vertex_of(e.from), to = vertex_of(e.to);
    append(h, from, &vertex::out, to);
    append(h, to, &vertex::in, from);
    ++edge_count_;
    return !stop_requested.load(std::memory_order_relaxed);
  });
  operations_ += 4 * edge_count_;
}

}  // namespace fm::example
