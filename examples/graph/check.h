// The plain run: the same algorithms over the same input with std::vector in local memory, sharing no code with the managed graph,
// and what differs. It needs memory for the whole graph, so the program's limit has to be off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms.h"

namespace fm::example {

struct difference {
  std::uint64_t compared = 0;
  std::uint64_t differences = 0;
  double largest = 0;                 ///< PageRank: the largest relative difference of two ranks
  std::vector<std::string> messages;  ///< the first ones
};

class plain_graph {
 public:
  explicit plain_graph(const edge_source& edges);

  /// Each runs the algorithm and compares the result of the managed one with it.
  difference pagerank(const graph& g, unsigned iterations);  ///< within 1e-12 of the rank
  difference components(const graph& g);                     ///< exactly
  difference closure(const graph& g, const reach_list& rows, const std::vector<std::uint64_t>& sources);  ///< exactly

  [[nodiscard]] double build_seconds() const noexcept { return build_seconds_; }
  /// Of the algorithm alone, without comparing.
  [[nodiscard]] double run_seconds() const noexcept { return run_seconds_; }

 private:
  std::vector<std::uint64_t> ids_;
  std::vector<std::vector<std::uint32_t>> out_, in_;
  double build_seconds_ = 0, run_seconds_ = 0;
};

/// Components and the vertices of the largest one, by a pass over the managed result.
struct component_sizes {
  std::uint64_t components = 0, largest = 0;
};
component_sizes count_components(const graph& g);

}  // namespace fm::example
