// Garbage in a heap that is all near: GCBench and binary-trees against the Boehm collector. Each turn has a heap of its own; opening
// and closing it is not timed. And the same heap against itself without collections of young objects; with --no-pin, the collector
// has a core of its own where there is one.
#include <cstdio>

#include "peers/boehm.h"
#include "support/managed.h"
#include "support/trees.h"

namespace {

using namespace fm::bench;

struct tree {
  fm::ref<tree> left, right;
  std::int64_t i = 0, j = 0;
};

class managed_trees {
 public:
  explicit managed_trees(fm::heap& h) : heap_(h) {}
  using handle = fm::ptr<tree>;
  using array = fm::ptr<double[]>;
  handle make() { return heap_.make<tree>(); }
  handle make(const handle& left, const handle& right) { return heap_.make<tree>({.left = left, .right = right}); }
  static void set(const handle& n, const handle& left, const handle& right) {
    const auto w = n.write();
    w->left = left;
    w->right = right;
  }
  static std::uint64_t count(const handle& n) {
    const fm::scope s;
    return count_in(*n.get(s), s);
  }
  array make_array(std::size_t n) { return heap_.array<double>(n); }
  static void fill(const array& a, std::size_t n) {
    const auto w = a.write();
    for (std::size_t k = 0; k < n; ++k) (*w)[k] = 1.0 / double(k + 1);
  }

 private:
  static std::uint64_t count_in(const tree& n, const fm::scope& s) {
    const tree* const left = n.left.get(s);
    return left ? 1 + count_in(*left, s) + count_in(*n.right.get(s), s) : 1;
  }
  fm::heap& heap_;
};

template <class Run>
turn with_heap(std::uint64_t cache, Run&& run, bool young = true) {
  fm::heap h({.cache = cache, .local_memory = std::uint64_t{2} << 30, .collect_young = young});
  managed_trees t(h);
  const turn done{run(t), {}, 0};
  const fm::heap_stats s = h.stats();
  std::fprintf(stderr, "%s\n%s\n", s.last_cycle.text().c_str(), s.text().c_str());
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  program p("trees", "Trees that die at once, everything near, against the Boehm collector");
  p.parse(argc, argv);
  std::uint64_t ours = 0, theirs = 0;
  const int depth = p.sized(16, 12);
  return p.run([&] {
    // All that is ever made stays near; and little more than what is alive at once, so that garbage has to go.
    const std::uint64_t near = p.sized<std::uint64_t>(1536, 256) << 20, little = p.sized<std::uint64_t>(256, 64) << 20;
    for (const std::uint64_t cache : {near, little}) {
      p.compare(
          {"gcbench",
           {{"depth", std::to_string(depth)}, {"cache", std::to_string(cache >> 20) + " MiB"}},
           "ms",
           cache == near ? goal{goal_kind::ratio_at_most, 2} : goal{},
           boehm_name()},
          [&] { return with_heap(cache, [&](managed_trees& t) { return gcbench_ms(t, depth); }); },
          [&] {
            return turn{boehm_gcbench(depth), {}, 0};
          },
          3);
      p.compare(
          {"binary_trees",
           {{"depth", std::to_string(depth)}, {"cache", std::to_string(cache >> 20) + " MiB"}},
           "ms",
           cache == near ? goal{goal_kind::ratio_at_most, 2} : goal{},
           boehm_name()},
          [&] { return with_heap(cache, [&](managed_trees& t) { return binary_trees_ms(t, depth, ours); }); },
          [&] {
            return turn{boehm_binary_trees(depth, theirs), {}, 0};
          },
          3);
    }
    p.compare(
        {"young_objects",
         {{"program", "binary-trees"},
          {"depth", std::to_string(depth)},
          {"cache", std::to_string(little >> 20) + " MiB"}},
         "ms",
         {},
         "collect_young = false"},
        [&] { return with_heap(little, [&](managed_trees& t) { return binary_trees_ms(t, depth, ours); }); },
        [&] {
          return with_heap(
              little, [&](managed_trees& t) { return binary_trees_ms(t, depth, ours); }, false);
        },
        3);
    if (ours != theirs) throw fm::error(fm::errc::corrupt, "binary-trees counts other nodes than its peer");
  });
}
