// Trees whose keys are compared by a function of the program, which may wait for anything. It is called without a lock
// and outside of sections. Inner nodes, whose keys never change, are pinned meanwhile. Of a leaf there is a copy.
//
// A writer compares with a copy of the keys, takes the lock of the leaf, and goes on if the leaf has not changed since.
// Otherwise it starts again: each time, another writer has changed the leaf.
//
// Used by fm::map and fm::set only.
#pragma once

#include <farmem/detail/tree/reader.h>
#include <farmem/handles/pin.h>

namespace fm::detail {

/// Where a descent came to: nothing that it found goes while this lives.
template <class Leaf>
struct pinned_leaf {
  ptr<tree_top> top;
  read_pin<tree_node> node;
  [[nodiscard]] const Leaf& leaf() const { return *reinterpret_cast<const Leaf*>(node.get()); }
};

template <class K, class V, class Compare>
struct tree_by_program {
  using reader = tree_reader<K, V, Compare>;
  using leaf = typename reader::leaf;
  using inner = typename reader::inner;
  using pinned = pinned_leaf<leaf>;

  /// The tree's top; null if there is none.
  static ptr<tree_top> top_of(slot_t tree) {
    require_no_function();
    const user_section in_section;
    return reader::top_of(tree).root();
  }
  /// As tree_reader's, outside of sections.
  template <class Q, class Visit>
  static pinned descend(ptr<tree_top> top, tree_path& path, tree_end end, const Q& q, Visit&& visit) {
    path = {};
    path.top = top.slot();
    const auto follow = [&](const ref<object>& r) {
      const user_section in_section;  // the object is pinned before it could die
      path.leaf = r.slot();
      return read_pin<tree_node>(path.leaf);
    };
    read_pin<tree_node> at = [&] {
      const user_section in_section;
      return follow(object_at<tree_top>(path.top)->root);
    }();
    while (at->level != 0) {
      const inner& n = *reinterpret_cast<const inner*>(at.get());
      const std::size_t i = reader::child_of(n, end, q);
      path.add(path.leaf, i);
      path.rightmost &= i + 1 == n.count;
      visit(n, i);
      at = follow(n.children[i]);
    }
    return {std::move(top), std::move(at)};
  }

  /// Copies of all entries of a leaf, of one moment.
  template <class Copied>
  static void copy_entries(const tree_path& path, std::vector<Copied>& entries) {
    const user_section in_section;
    reader::read_leaf(path.leaf, [&](const leaf& l, const shard_snapshot& seen) {
      entries.clear();
      for (std::size_t i = 0, n = l.count_seen(); i < n; ++i)
        entries.push_back(reader::template copy<Copied>(l, l.place_of(i)));
      return seen.holds();
    });
  }
  /// The first of `entries` that is not before `q`.
  template <class Copied, class Q>
  static std::size_t index_in(const std::vector<Copied>& entries, const Q& q) {
    const auto before = [](const Copied& e, const Q& x) { return Compare{}(reader::key_in(e), x); };
    return static_cast<std::size_t>(std::lower_bound(entries.begin(), entries.end(), q, before) - entries.begin());
  }
  /// The first of `entries` that is after `q`.
  template <class Copied, class Q>
  static std::size_t index_after(const std::vector<Copied>& entries, const Q& q) {
    const auto after = [](const Q& x, const Copied& e) { return Compare{}(x, reader::key_in(e)); };
    return static_cast<std::size_t>(std::upper_bound(entries.begin(), entries.end(), q, after) - entries.begin());
  }
  template <class Copied, class Q>
  static bool is_at(const std::vector<Copied>& entries, std::size_t i, const Q& q) {
    return i < entries.size() && !Compare{}(q, reader::key_in(entries[i]));
  }

  /// Where a key is in a leaf, as long as the leaf has that version.
  template <class Q>
  static leaf_spot search(const tree_path& path, const Q& q, std::uint64_t& version) {
    std::vector<K> keys;
    {
      const user_section in_section;
      reader::read_leaf(path.leaf, [&](const leaf& l, const shard_snapshot& seen) {
        keys.clear();
        version = l.version.load(std::memory_order_relaxed);
        for (std::size_t i = 0, n = l.count_seen(); i < n; ++i) keys.push_back(load_shared(l.keys[l.place_of(i)]));
        return seen.holds();
      });
    }
    const auto at =
        std::lower_bound(keys.begin(), keys.end(), q, [](const K& k, const Q& x) { return Compare{}(k, x); });
    return {static_cast<std::size_t>(at - keys.begin()), at != keys.end() && !Compare{}(q, *at)};
  }
};

}  // namespace fm::detail
