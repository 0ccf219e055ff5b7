// How a managed tree is read, without locks: from the header down to the leaf of a key, the entry in it, and copies of
// what a step of a walk covers.
//
// Why a reader needs no lock above the leaves: the intervals of places never change, and each reference is followed from
// a node that was current at some moment of the operation, to a node that was current at that moment or a later one. A
// node that was replaced stays as it was at that moment. So the leaf that a reader comes to has, when it is read, the
// entries that its interval had at some moment of the operation. That is when the operation takes place. Operations that
// come to the leaves of a top that was taken away began before that, and take place just before.
//
// A walk goes from interval to interval. A step copies the entries of one leaf at one moment, and the next one begins
// where the leaf's interval ends. So every key is covered by exactly one step, in order.
//
// Invariant owned here: words that are read during a motion may be of different moments. Places are bounded and slots
// checked for null before they are followed. Used by fm::map and fm::set only.
#pragma once

#include <farmem/detail/tree/nodes.h>
#include <optional>
#include <vector>

namespace fm::detail {

/// How an operation came to a leaf.
struct tree_path {
  struct step {
    slot_t node = 0;
    std::size_t index = 0;  ///< of the child
  };
  slot_t top = 0;
  slot_t leaf = 0;
  std::size_t levels = 0;  ///< inner nodes, from the root on
  std::array<step, tree_levels_max> steps;
  bool rightmost = true;

  void add(slot_t node, std::size_t index) {
    FM_CHECK(levels < tree_levels_max, "a tree has more levels than slots allow");
    steps[levels++] = {node, index};
  }
};

/// Which leaf is wanted: the first, the last, the one that has a key, or the one that has what is just before a key.
enum class tree_end : std::uint8_t { first, last, key, before_key };

template <class K, class V, class Compare>
struct tree_reader {
  static constexpr bool is_set = std::is_same_v<V, no_value>;
  using header = tree_header<K, V, Compare>;
  using key_of = tree_key<K, Compare>;
  using element = map_value<V>;
  using leaf = tree_leaf<K, V, Compare>;
  using inner = tree_inner<K, V, Compare>;
  using handle = std::conditional_t<is_set, ptr<set<K, Compare>>, ptr<map<K, V, Compare>>>;
  using key_value = typename key_of::value;
  using mapped_value = typename element::value;
  /// An entry as programs see it.
  using entry = std::conditional_t<is_set, key_value, std::pair<key_value, mapped_value>>;

  /// An entry with the bytes of its value, by which a writer knows whether that has changed.
  struct candidate {
    entry shown;
    std::conditional_t<is_ref<V>, slot_t, value_words<V>> image;
    candidate(const leaf& l, std::size_t place) : shown(show(l, place)) {
      if constexpr (is_ref<V>)
        image = l.values[place].slot();
      else
        image = load_words(l.values[place]);
    }
  };

  // ---- searching nodes; in a section ----

  /// The child of an inner node that has a key.
  template <class Q>
  static std::size_t child_of(const inner& n, tree_end end, const Q& q) {
    if (end == tree_end::first) return 0;
    std::size_t low = 0, high = n.count - 1;
    if (end == tree_end::last) return high;
    while (low < high) {
      const std::size_t mid = (low + high) / 2;
      const bool right = end == tree_end::key ? key_of::after(n.keys[mid], q, nullptr) == answer::no
                                              : key_of::before(n.keys[mid], q, nullptr) == answer::yes;
      if (right)
        low = mid + 1;
      else
        high = mid;
    }
    return low;
  }
  /// The first entry of a leaf whose key is not before `q`; false if the snapshot does not hold.
  template <class Q>
  static bool index_of(const leaf& l, const Q& q, const shard_snapshot& seen, std::size_t& index) {
    return partition(l, answer::yes, index, [&](const auto& key) { return key_of::before(key, q, &seen); });
  }
  /// The same of the first entry whose key is after `q`.
  template <class Q>
  static bool index_after(const leaf& l, const Q& q, const shard_snapshot& seen, std::size_t& index) {
    return partition(l, answer::no, index, [&](const auto& key) { return key_of::after(key, q, &seen); });
  }
  /// As index_of, and whether the key of that entry is equivalent to `q`.
  template <class Q>
  static bool search(const leaf& l, const Q& q, const shard_snapshot& seen, leaf_spot& spot) {
    const std::size_t count = l.count_seen();
    spot = {};
    if (!index_of(l, q, seen, spot.index)) return false;
    if (spot.index >= count) return true;
    const answer a = key_of::after(l.keys[l.place_of(spot.index)], q, &seen);
    spot.there = a == answer::no;
    return a != answer::torn;
  }

  /// The reference to the top of a tree. In a section.
  static const ref<tree_top>& top_of(slot_t tree) { return object_at<header>(tree)->top; }
  /// Goes down from the top of `path`. In a section; `visit(inner, index)` is called on the way.
  template <class Q, class Visit>
  static void descend_top(tree_path& path, tree_end end, const Q& q, Visit&& visit) {
    slot_t at = object_at<tree_top>(path.top)->root.slot();
    path.levels = 0;
    path.rightmost = true;
    for (;;) {
      const tree_node* node = object_at<tree_node>(at);
      if (node->level == 0) break;
      const inner& n = *reinterpret_cast<const inner*>(node);
      const std::size_t i = child_of(n, end, q);
      path.add(at, i);
      path.rightmost &= i + 1 == n.count;
      visit(n, i);
      at = n.children[i].slot();
    }
    path.leaf = at;
  }
  /// The same from the tree's top; false if there is none. Throws scope_misuse in a function that was given to update.
  template <class Q, class Visit>
  static bool descend(slot_t tree, tree_path& path, tree_end end, const Q& q, Visit&& visit) {
    require_no_function();
    path.top = top_of(tree).slot();
    if (path.top == 0) return false;
    descend_top(path, end, q, visit);
    return true;
  }
  template <class Q>
  static bool descend(slot_t tree, tree_path& path, const Q& q) {
    return descend(tree, path, tree_end::key, q, [](const inner&, std::size_t) {});
  }

  /// Runs read(leaf, snapshot) until it returns true, without a lock if it can: it says whether the snapshot held after
  /// the last load of what it made up its mind from. In a section that reached the leaf's slot.
  template <class Read>
  static void read_leaf(slot_t slot, Read&& read) {
    constexpr int tries = 32;
    const leaf& l = *object_at<leaf>(slot);
    for (int i = 0; i < tries; ++i) {
      const shard_snapshot seen = l.snapshot();
      if (seen.is_moving())
        cpu_relax();
      else if (read(l, seen))
        return;
    }
    const leaf_writing held(slot);
    const bool believed = read(l, l.snapshot());
    FM_CHECK(believed, "a leaf of a managed tree changes without its lock");
  }

  /// The first entry of a leaf about which `ask` does not answer `left`; false if one of its answers is torn.
  template <class Ask>
  static bool partition(const leaf& l, answer left, std::size_t& index, Ask&& ask) {
    std::size_t low = 0, high = l.count_seen();
    while (low < high) {
      const std::size_t mid = (low + high) / 2;
      const answer a = ask(l.keys[l.place_of(mid)]);
      if (a == answer::torn) return false;
      if (a == left)
        low = mid + 1;
      else
        high = mid;
    }
    index = low;
    return true;
  }

  static entry show(const leaf& l, std::size_t place) {
    if constexpr (is_set)
      return key_of::show(l.keys[place]);
    else
      return {key_of::show(l.keys[place]), element::load(l.values[place])};
  }
  static const key_value& key_in(const entry& e) {
    if constexpr (is_set)
      return e;
    else
      return e.first;
  }
  static const key_value& key_in(const candidate& c) { return key_in(c.shown); }
  /// A copy of an entry: `Copied` is entry or candidate.
  template <class Copied>
  static Copied copy(const leaf& l, std::size_t place) {
    if constexpr (std::same_as<Copied, entry>)
      return show(l, place);
    else
      return Copied(l, place);
  }
  /// Calls f with an entry: as one, or as key and value. Text comes as fm::string, or as std::string if f takes only
  /// that or a view.
  template <class F>
  static decltype(auto) call_with(F& f, const entry& e) {
    if constexpr (is_set) {
      if constexpr (std::is_invocable_v<F&, const key_value&>)
        return f(e);
      else
        return f(e.str());
    } else {
      if constexpr (std::is_invocable_v<F&, const key_value&, const mapped_value&>)
        return f(e.first, e.second);
      else
        return f(e.first.str(), e.second);
    }
  }
};

}  // namespace fm::detail
