// The graph in the far heap, made of objects that refer to each other: a vertex is an object, its edges are vectors of references to
// vertices, and all vertices hang in one more vector. An algorithm follows references; nothing is looked up by number.
//
// Vertices are numbered in the order in which the edges name them first, and edges are kept in the order of the input,
// so that a plain run over the same input sums in the same order. Single-threaded.
#pragma once

#include <cstdint>
#include <farmem/farmem.h>

#include "../support/edges.h"

namespace fm::example {

struct vertex;
using vertex_list = fm::vector<fm::ref<vertex>>;

struct vertex {
  std::uint64_t id = 0;          ///< its name in the input
  std::uint64_t number = 0;      ///< its place in graph::vertices
  std::uint64_t visit = 0;       ///< closure: the last search that came here
  double rank = 0, share = 0;    ///< PageRank: the rank, and what each successor gets of it
  fm::ref<vertex> parent;        ///< components: towards the representative; null for itself
  fm::ref<vertex_list> out, in;  ///< its edges; null without any
};

class graph {
 public:
  /// Reads all edges. Ends early when a signal came. Throws as edge_source::for_each and the heap do.
  graph(fm::heap& h, const edge_source& edges);

  [[nodiscard]] fm::heap& heap() const noexcept { return heap_; }
  [[nodiscard]] const vertex_list& vertices() const noexcept { return vertices_; }
  [[nodiscard]] std::uint64_t vertex_count() const noexcept { return vertex_count_; }
  [[nodiscard]] std::uint64_t edge_count() const noexcept { return edge_count_; }

  /// References to vertices looked up, stored or followed so far.
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }
  void count_operations(std::uint64_t n) noexcept { operations_ += n; }

 private:
  fm::heap& heap_;
  vertex_list vertices_;
  std::uint64_t vertex_count_ = 0, edge_count_ = 0, operations_ = 0;
};

/// Calls f(const fm::ptr<vertex>&) for each vertex of a list, which may be null, fetching those that come next ahead. f may
/// allocate. Gives how many there were.
template <class F>
std::uint64_t for_each_vertex(const vertex_list& list, F&& f) {
  constexpr std::size_t ahead = 32;
  if (!list) return 0;
  std::uint64_t n = 0;
  list.for_each_chunk([&](std::span<const fm::ref<vertex>> refs) {
    n += refs.size();
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (i % ahead == 0) fm::prefetch(refs.subspan(i, std::min(2 * ahead, refs.size() - i)));
      f(refs[i].root());
    }
  });
  return n;
}

}  // namespace fm::example
