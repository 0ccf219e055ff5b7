// Semeru (OSDI 2020): table 5, tracing near the data and through the cache, and figure 13, fetches of a whole program with and without
// objects that are laid out anew. The cache holds a quarter of the objects, as in the paper.
#include "heap/heap_core.h"

#include "../support/scattered_tree.h"
#include "papers.h"

namespace fm::bench {
namespace {

using fm::detail::tracing;
using tree = fm::ptr<tree_node>;

cycle_report collect(heap& h, evacuate which = evacuate::sparse) {
  cycle_report r = h.collect("bench", which);
  if (!r.ok()) throw error(r.status, r.failure);
  return r;
}

// MB/s of the home copies of live objects, by the time that marking took.
turn traced(heap& h, tracing who) {
  h.core().gc().trace_by(who);
  const cycle_report r = collect(h);
  constexpr double home_bytes = sizeof(tree_node) + 8;
  return {double(r.marked) * home_bytes / 1e6 / (double(r.mark_ns) * 1e-9), {}, 0};
}

void tracing_row(program& p, const std::string& binary) {
  if (!p.wants("semeru_t5")) return;
  const auto count = p.sized<std::size_t>(1 << 19, 1 << 15);
  const counted_agent agent(p, binary, "shm://", "2GiB");
  heap h({.cache = std::max<std::uint64_t>(count * frame_bytes<64> / 4, 2 << 20),
          .agents = {agent.url()},
          .collect = false,
          .collect_share = 1});
  const tree root = make_scattered_tree(h, count);
  go_home(h);
  p.compare(
      {"semeru_t5",
       {{"transport", "shm"}, {"objects", std::to_string(count)}, {"object", "64 B"}, {"cache", "25%"}},
       "MB/s",
       {goal_kind::ratio_at_least, 9.8},
       "the owner traces"},
      [&] { return traced(h, tracing::agents); }, [&] { return traced(h, tracing::compute_node); }, 3);
}

// Depth first; every hundredth node gets a new left child, which takes over the references of the old one.
void walk_and_change(heap& h, const tree& root, std::size_t count) {
  std::size_t seen = 0;
  std::vector<tree> open{root};
  while (!open.empty()) {
    const tree node = std::move(open.back());
    open.pop_back();
    if (!node) continue;
    if (++seen % 100 == 0) {
      if (const tree old = node->left.root()) {
        const tree fresh =
            h.make<tree_node>({.value = old->value, .left = old->left.root(), .right = old->right.root()});
        node.write()->left = fresh;
      }
    }
    open.push_back(node->right.root());
    open.push_back(node->left.root());
  }
  if (seen != count) throw error(errc::corrupt, "the tree is another");
}

// Fetches that the program waits for, from the first walk to the last, collections included.
double misses_of_program(const std::string& url, std::size_t count, std::size_t walks, bool ordered) {
  heap h({.cache = std::max<std::uint64_t>(count * frame_bytes<64> / 4, 2 << 20),
          .agents = {url},
          .collect = false,
          .collect_share = 1,
          .evacuation = {.order = ordered ? evacuation_order::depth_first : evacuation_order::address,
                         .below_live_ratio = ordered ? 1.0 : 0.5}});
  const tree root = make_scattered_tree(h, count);
  go_home(h);
  const std::uint64_t before = h.stats().misses;
  for (std::size_t i = 0; i < walks; ++i) {
    collect(h);
    walk_and_change(h, root, count);
  }
  return double(h.stats().misses - before) / double(count * walks);
}

void locality_row(program& p, const std::string& binary) {
  if (!p.wants("semeru_13")) return;
  const auto count = p.sized<std::size_t>(1 << 18, 1 << 15), walks = p.sized<std::size_t>(6, 2);
  // Full regions alone are evacuated, so they are small, as the heap is.
  const agent server(binary, "shm://", p.agent_core(),
                     {"--memory", "1GiB", "--log-level", "warning", "--region", "1MiB"});
  p.count_cpu_of(server.pid());
  p.compare(
      {"semeru_13",
       {{"transport", "shm"}, {"nodes", std::to_string(count)}, {"cache", "25%"}, {"walks", std::to_string(walks)}},
       "a node",
       {goal_kind::ratio_at_most, 1 / 8.76},
       "objects stay in the order in which they were made"},
      [&] {
        return turn{misses_of_program(server.url(), count, walks, true), {}, 0};
      },
      [&] {
        return turn{misses_of_program(server.url(), count, walks, false), {}, 0};
      },
      1);
  p.forget_cpu_of(server.pid());
}

}  // namespace

void semeru_rows(program& p, const std::string& binary) {
  tracing_row(p, binary);
  locality_row(p, binary);
}

}  // namespace fm::bench
