// The algorithms over the managed graph. Each follows references from vertex to vertex and leaves its result in the heap, where
// check.h reads it. All of them end early, with a result of no use, when a signal came.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"

namespace fm::example {

constexpr double damping = 0.85;

/// PageRank by pulling (Page et al. 1999): `iterations` times over all edges; the rank of vertices without successors is spread
/// over all. The result is vertex::rank.
void pagerank(graph& g, unsigned iterations);

/// Connected components of the graph without directions, by union and find with path halving over vertex::parent. The vertex
/// with the smallest number represents its component.
void components(graph& g);
/// The representative of a vertex's component. Shortens the path that it goes.
fm::ptr<vertex> representative(fm::ptr<vertex> v);

/// What one source reaches, itself included.
struct reach {
  fm::ref<vertex> source;
  fm::ref<vertex_list> members;  ///< in the order of discovery, each once
};
using reach_list = fm::vector<fm::ref<reach>>;

/// The rows of the transitive closure that belong to the vertices with these numbers, each by semi-naive evaluation: what a round
/// has newly derived is a list of managed objects, and garbage after the next round.
reach_list closure(graph& g, const std::vector<std::uint64_t>& sources);

/// `count` different vertex numbers (or all) of `n`, chosen by `seed`.
std::vector<std::uint64_t> choose_sources(std::uint64_t n, std::uint64_t count, std::uint64_t seed);

}  // namespace fm::example
