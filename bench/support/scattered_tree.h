// A tree that lies in memory as badly as a tree can, at home: for what is fetched, traced or laid out anew there.
#pragma once

#include <numeric>

#include "managed.h"
#include "zipf.h"

namespace fm::bench {

/// Writes everything home and drops it here. Throws timed_out.
inline void go_home(fm::heap& h) {
  if (h.evict_all() != fm::errc::ok) throw fm::error(fm::errc::timed_out, "eviction");
}

/// A binary tree, numbered as in a heap, whose nodes are made in a random order: every reference leads somewhere else.
inline fm::ptr<tree_node> make_scattered_tree(fm::heap& h, std::size_t count) {
  std::vector<fm::ptr<tree_node>> nodes(count);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  random_source random(7);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const std::uint32_t i : order) nodes[i] = h.make<tree_node>({.value = i});
  for (const std::uint32_t i : order) {
    const auto n = nodes[i].write();
    if (2 * i + 1 < count) n->left = nodes[2 * i + 1];
    if (2 * i + 2 < count) n->right = nodes[2 * i + 2];
  }
  return nodes[0];
}

}  // namespace fm::bench
