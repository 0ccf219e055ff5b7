// Where the edges come from: a file in SNAP's edge-list form, or a generated RMAT graph. Both can be read any number of times and
// give the same edges in the same order, so that nothing of the input has to be kept: it is read for a survey, for the
// managed graph, and for the plain run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fm::example {

struct edge {
  std::uint64_t from = 0, to = 0;  ///< names of vertices: any numbers
};

class edge_source {
 public:
  virtual ~edge_source() = default;
  /// Calls f(edge) for every edge until it gives false. Throws fm::error: not_found (no such file), invalid_argument (a bad
  /// line, as FILE:LINE).
  virtual void for_each(const std::function<bool(const edge&)>& f) const = 0;
  /// For people.
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Which edges, as flags say it.
struct edge_options {
  std::string snap;  ///< a file; empty: generated
  unsigned scale = 18;
  std::uint64_t edges_per_vertex = 8, seed = 1;
};
/// --snap, --rmat, --edges-per-vertex, --seed.
void declare(CLI::App& app, edge_options& o);
std::unique_ptr<edge_source> edges_of(const edge_options& o);

/// Lines of two vertex numbers apart by tabs or blanks; lines that begin with '#' and empty ones are left out.
std::unique_ptr<edge_source> snap_file(const std::string& path);

/// 2^scale possible vertices and `edges_per_vertex` times as many edges; each edge chooses a quarter of the adjacency matrix
/// `scale` times, with probabilities a=.57, b=.19, c=.19, d=.05 (Chakrabarti et al. 2004; as in Graph500). Repeated edges stay.
std::unique_ptr<edge_source> rmat(unsigned scale, std::uint64_t edges_per_vertex, std::uint64_t seed);

/// What a first pass counts, without keeping any of it.
struct edge_survey {
  std::uint64_t edges = 0;
  std::uint64_t vertices = 0;  ///< that an edge names, estimated within about one percent
  double seconds = 0;

  /// What the graph was measured to need, with the headers of the objects and what growing leaves behind.
  [[nodiscard]] std::uint64_t graph_bytes() const noexcept;
  [[nodiscard]] std::uint64_t graph_objects() const noexcept;
};
edge_survey survey_edges(const edge_source& edges);

/// splitmix64: the generator, and a hash of numbers.
std::uint64_t mix(std::uint64_t x) noexcept;

}  // namespace fm::example
