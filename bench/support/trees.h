// GCBench and binary-trees, written once over what makes and links nodes, so that both sides run the same program.
//
// `Trees` has: handle, make(), make(left, right), set(node, left, right), left(node), right(node), count(node); array,
// make_array(n), fill(array, n).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu.h"

namespace fm::bench {

constexpr int gcbench_depth_min = 4;
constexpr std::size_t gcbench_array = 500'000;

template <class Trees>
typename Trees::handle bottom_up(Trees& t, int depth) {
  if (depth == 0) return t.make();
  const auto left = bottom_up(t, depth - 1);
  const auto right = bottom_up(t, depth - 1);
  return t.make(left, right);
}

template <class Trees>
void top_down(Trees& t, const typename Trees::handle& root, int depth) {
  if (depth == 0) return;
  const auto left = t.make();
  const auto right = t.make();
  t.set(root, left, right);
  top_down(t, left, depth - 1);
  top_down(t, right, depth - 1);
}

inline std::int64_t tree_nodes(int depth) { return (std::int64_t{1} << (depth + 1)) - 1; }

/// ms of: a tree to stretch the heap, a tree and an array that live on, and many trees that do not, of each depth as many nodes.
template <class Trees>
double gcbench_ms(Trees& t, int depth) {
  const std::uint64_t begin = now_ns();
  bottom_up(t, depth + 2);
  const auto lives_on = t.make();
  top_down(t, lives_on, depth);
  const auto array = t.make_array(gcbench_array);
  t.fill(array, gcbench_array);
  for (int d = gcbench_depth_min; d <= depth; d += 2) {
    const std::int64_t trees = 2 * tree_nodes(depth + 2) / tree_nodes(d);
    for (std::int64_t i = 0; i < trees; ++i) {
      const auto root = t.make();
      top_down(t, root, d);
    }
    for (std::int64_t i = 0; i < trees; ++i) bottom_up(t, d);
  }
  return double(now_ns() - begin) * 1e-6;
}

/// ms of: a tree to stretch the heap, one that lives on, and trees of each depth that are counted and dropped.
template <class Trees>
double binary_trees_ms(Trees& t, int depth, std::uint64_t& sum) {
  const std::uint64_t begin = now_ns();
  sum = t.count(bottom_up(t, depth + 1));
  const auto lives_on = bottom_up(t, depth);
  for (int d = 4; d <= depth; d += 4) {
    const std::int64_t trees = std::int64_t{1} << (depth - d + 4);
    for (std::int64_t i = 0; i < trees; ++i) sum += t.count(bottom_up(t, d));
  }
  sum += t.count(lives_on);
  return double(now_ns() - begin) * 1e-6;
}

}  // namespace fm::bench
