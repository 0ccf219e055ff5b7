// One process's half of a graph: the vertices that are its own, and a stand-in for each vertex of the other half that an edge of
// its own leads to. A stand-in collects what its vertex is to get in an iteration; all of them together are the shuffle, an
// object graph that goes to the other half through a channel while that one's comes.
//
// Both halves read the same edges. Which half a vertex belongs to is decided by a hash of its name. Single-threaded.
#pragma once

#include <cstdint>
#include <farmem/farmem.h>
#include <functional>

#include "../support/edges.h"

namespace fm::example {

struct vertex;
using vertex_list = fm::vector<fm::ref<vertex>>;

struct vertex {
  std::uint64_t id = 0;
  double rank = 0, sum = 0;  ///< sum: what has come in this iteration
  fm::ref<vertex_list> out;  ///< null without any
};

// ---- what travels ----

struct shuffle_chunk {
  fm::ref<std::uint64_t[]> ids;  ///< the first time; later they are known to be the same
  fm::ref<double[]> values;
  fm::ref<shuffle_chunk> next;
};
struct shuffle {
  std::uint64_t iteration = 0;
  std::uint64_t vertices = 0;  ///< of the sender's half
  double nowhere = 0;          ///< ranks of its vertices without successors
  std::uint64_t values = 0;    ///< in the chunks
  fm::ref<shuffle_chunk> chunks;
};

class half {
 public:
  static constexpr double damping = 0.85;
  static unsigned half_of(std::uint64_t id) noexcept { return unsigned(mix(id ^ 0x5bd1e995) & 1); }

  /// Reads all edges, keeps those that begin in half `mine`, and tells the other half the names of its stand-ins. Throws as
  /// edge_source::for_each, the heap and the channel do; bad_frame when what the other half says makes no sense.
  half(fm::heap& h, const edge_source& edges, unsigned mine, fm::channel& other);

  /// One iteration, together with the other half.
  void iterate();
  /// The other half's ranks, which has to call send_ranks: f(id, rank) for each.
  void receive_ranks(const std::function<void(std::uint64_t, double)>& f);
  void send_ranks();
  /// The same for its own.
  void for_each_rank(const std::function<void(std::uint64_t, double)>& f) const;

  [[nodiscard]] std::uint64_t vertices() const noexcept { return own_.size(); }
  [[nodiscard]] std::uint64_t stand_ins() const noexcept { return stand_ins_.size(); }
  [[nodiscard]] std::uint64_t edges() const noexcept { return edges_; }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }   ///< references followed
  [[nodiscard]] double waited_seconds() const noexcept { return waited_seconds_; }  ///< for the other half

 private:
  fm::ptr<shuffle> make_shuffle(const vertex_list& of, bool with_ids, double nowhere, double vertex::*value) const;
  fm::ptr<shuffle> exchange(const fm::ptr<shuffle>& mine);
  void read(const fm::ptr<shuffle>& s,
            const std::function<void(std::span<const std::uint64_t>, std::span<const double>)>& f);

  fm::heap& heap_;
  fm::channel& other_;
  vertex_list own_, stand_ins_;
  vertex_list wanted_;  ///< own ones that the other half has stand-ins for, in its order
  std::uint64_t total_ = 0, edges_ = 0, operations_ = 0, iteration_ = 0;
  double waited_seconds_ = 0;
};

/// Calls f(const fm::ptr<vertex>&) for each vertex of a list, which may be null, fetching ahead.
template <class F>
void for_each_vertex(const vertex_list& list, F&& f) {
  constexpr std::size_t ahead = 32;
  if (!list) return;
  list.for_each_chunk([&](std::span<const fm::ref<vertex>> refs) {
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (i % ahead == 0) fm::prefetch(refs.subspan(i, std::min(2 * ahead, refs.size() - i)));
      f(refs[i].root());
    }
  });
}

}  // namespace fm::example
