// How managed trees grow and shrink: a full leaf is split, and a sparse one is merged with its neighbour. Neither changes
// which entries the tree has, so nothing compares keys here, and an operation that finds the tree changed meanwhile just
// looks again.
//
// The new leaves and their inner nodes are made beside the old ones, upwards to the first node that has room. One store
// of a reference, to a child, or to the root, makes all of them visible. Then the old leaves are retired.
//
// Invariants owned here
//   - All that can fail comes before that store. So if it fails, nothing has changed.
//   - Only the holder of the structure stores references to nodes, and only in nodes of the path that it has checked.
//   - The old leaves are locked from before they are copied until after they are retired. So nobody changes a leaf of
//     which there is a newer copy.
//   - References that are copied to a new node stay in the old one, which is reached from the tree until the store. So a
//     snapshot finds what they name, whenever it is taken.
//
// Used by fm::map and fm::set only.
#pragma once

#include <farmem/detail/tree/reader.h>
#include <farmem/handles/pin.h>

namespace fm::detail {

template <class K, class V, class Compare>
class tree_shape {
  using reader = tree_reader<K, V, Compare>;
  using leaf = typename reader::leaf;
  using inner = typename reader::inner;
  using key_of = typename reader::key_of;
  using stored_key = typename key_of::stored;
  using writes = leaf_entries<K, V, Compare>;

 public:
  /// Splits the leaf of a path, if it is full and still where the path says. At its end if it is the last one and
  /// entries are `appended`, so that leaves that are filled in order are left full.
  static void split(slot_t tree, const tree_path& path, bool appended) {
    tree_shape s(tree, path);
    if (!s.is_current()) return;
    const leaf_writing held(path.leaf);
    const write_pin<leaf> old(path.leaf);
    if (old->count < leaf::entries) return;
    const std::size_t cut = appended && path.rightmost ? old->count - 1 : old->count / 2;
    const ptr<leaf> left = s.make_leaf(), right = s.make_leaf();
    const write_pin<leaf> left_pin = left.write(), right_pin = right.write();
    writes::append(*left_pin, *old, 0, cut);
    writes::append(*right_pin, *old, cut, old->count);
    writes::number_free(*left_pin);
    writes::number_free(*right_pin);
    s.replace(path.levels, s.index_at(path.levels), 1, {left.slot(), right.slot()}, {&right_pin->keys[0]}, 1);
    old->retired = 1;
  }

  /// Whether a leaf that has lost an entry, and has `n` now, should be merged. Not at each of them, since the neighbour
  /// may be full.
  static constexpr bool may_merge(std::size_t n) { return n < leaf::entries / 4 && (n & (n - 1)) == 0; }

  /// Merges the leaf of a path with a neighbour below the same inner node, if both fit in one.
  static void merge(slot_t tree, const tree_path& path) {
    if (path.levels == 0) return;
    tree_shape s(tree, path);
    if (!s.is_current()) return;
    const read_pin<inner> parent(path.steps[path.levels - 1].node);
    const std::size_t i = path.steps[path.levels - 1].index;
    if (i != 0 && s.merge_two(*parent, i - 1)) return;
    if (i + 1 < parent->count) s.merge_two(*parent, i);
  }

  /// A leaf without entries. Outside of sections.
  static ptr<leaf> make_leaf(object_cache& cache) {
    const ptr<leaf> made = make_zero<leaf>(cache);
    writes::number_free(*made.write().get());
    return made;
  }

 private:
  using slots = std::vector<slot_t>;
  using keys = std::vector<const stored_key*>;

  tree_shape(slot_t tree, const tree_path& path) : held_(tree), tree_(tree), path_(path), cache_(cache_of(tree)) {}

  ptr<leaf> make_leaf() const { return make_zero<leaf>(cache_); }
  [[nodiscard]] std::size_t index_at(std::size_t depth) const { return depth == 0 ? 0 : path_.steps[depth - 1].index; }

  /// Whether two nodes become one: with room for more, unless one of them has almost nothing.
  static constexpr bool fit(std::size_t a, std::size_t b, std::size_t most) {
    return a + b <= (std::min(a, b) <= most / 8 ? most : most * 3 / 4);
  }

  /// Merges children `first` and the next of an inner node above leaves. Whether they fit.
  bool merge_two(const inner& parent, std::size_t first) {
    const slot_t a = parent.children[first].slot(), b = parent.children[first + 1].slot();
    const leaf_writing held(a, b);
    const write_pin<leaf> low(a), high(b);
    if (!fit(low->count, high->count, leaf::entries)) return false;
    const ptr<leaf> both = make_leaf();
    const write_pin<leaf> pin = both.write();
    writes::append(*pin, *low, 0, low->count);
    writes::append(*pin, *high, 0, high->count);
    writes::number_free(*pin);
    replace(path_.levels, first, 2, {both.slot()}, {}, 1);
    low->retired = high->retired = 1;
    return true;
  }

  /// Whether the nodes of the path are the tree's. They stay so until this ends. Roots the top, which clear takes away.
  bool is_current() {
    const user_section in_section;
    top_ = reader::top_of(tree_).root();
    if (top_.slot() != path_.top) return false;
    slot_t at = object_at<tree_top>(path_.top)->root.slot();
    for (std::size_t i = 0; i < path_.levels; ++i) {
      const auto& [node, index] = path_.steps[i];
      const tree_node* n = at == node ? object_at<tree_node>(at) : nullptr;
      if (n == nullptr || n->level != path_.levels - i) return false;
      const inner& in = *reinterpret_cast<const inner*>(n);
      if (index >= in.count) return false;
      at = in.children[index].slot();
    }
    return at == path_.leaf && object_at<tree_node>(at)->level == 0;
  }

  /// Puts `made` in the place of `removed` children from `first` on of the node at `depth` - 1, or of the root for depth
  /// 0. `between`: the keys between those made, in pinned nodes. `level`: the level of a node above them.
  void replace(std::size_t depth, std::size_t first, std::size_t removed, const slots& made, const keys& between,
               std::uint64_t level) {
    if (depth == 0) return set_root(made, between, level);
    const slot_t parent = path_.steps[depth - 1].node;
    if (removed == 1 && made.size() == 1) {
      const write_pin<inner> p(parent);
      put(p->children[first], made[0]);
      return;
    }
    const read_pin<inner> p(parent);
    slots children;
    keys separators;
    collect(*p, 0, first, children, separators);
    if (first != 0) separators.push_back(&p->keys[first - 1]);
    children.insert(children.end(), made.begin(), made.end());
    separators.insert(separators.end(), between.begin(), between.end());
    if (first + removed < p->count) {
      separators.push_back(&p->keys[first + removed - 1]);
      collect(*p, first + removed, p->count, children, separators);
    }
    settle(depth - 1, children, separators, level);
  }
  /// Replaces the node of the path at `depth` by one or two with these children, or, if they are few, with a neighbour.
  void settle(std::size_t depth, const slots& children, const keys& separators, std::uint64_t level) {
    const std::size_t n = children.size(), index = index_at(depth);
    if (n > inner::children_max) {
      const std::size_t cut = n / 2;
      const ptr<inner> left = make_inner(children, separators, 0, cut, level);
      const ptr<inner> right = make_inner(children, separators, cut, n, level);
      return replace(depth, index, 1, {left.slot(), right.slot()}, {separators[cut - 1]}, level + 1);
    }
    if (depth == 0 && n == 1) return set_root(children, {}, level);
    if (depth != 0 && n < inner::children_max / 4 && merge_inner(depth, children, separators, level)) return;
    const ptr<inner> all = make_inner(children, separators, 0, n, level);
    replace(depth, index, 1, {all.slot()}, {}, level + 1);
  }
  bool merge_inner(std::size_t depth, const slots& children, const keys& separators, std::uint64_t level) {
    const std::size_t index = index_at(depth);
    const read_pin<inner> parent(path_.steps[depth - 1].node);
    return (index != 0 && merge_with(depth, *parent, index - 1, children, separators, level)) ||
           (index + 1 < parent->count && merge_with(depth, *parent, index + 1, children, separators, level));
  }
  /// Makes one node of the children and those of child `neighbour` of `parent`. Whether they fit.
  bool merge_with(std::size_t depth, const inner& parent, std::size_t neighbour, const slots& children,
                  const keys& separators, std::uint64_t level) {
    const read_pin<inner> other(parent.children[neighbour].slot());
    if (!fit(other->count, children.size(), inner::children_max)) return false;
    const bool is_before = neighbour < index_at(depth);
    const std::size_t first = std::min(neighbour, index_at(depth));
    slots all;
    keys between;
    if (is_before) {
      collect(*other, 0, other->count, all, between);
      between.push_back(&parent.keys[first]);
    }
    all.insert(all.end(), children.begin(), children.end());
    between.insert(between.end(), separators.begin(), separators.end());
    if (!is_before) {
      between.push_back(&parent.keys[first]);
      collect(*other, 0, other->count, all, between);
    }
    const ptr<inner> both = make_inner(all, between, 0, all.size(), level);
    replace(depth, first, 2, {both.slot()}, {}, level + 1);
    return true;
  }

  void set_root(const slots& made, const keys& between, std::uint64_t level) {
    ptr<inner> above;
    if (made.size() > 1) {
      FM_CHECK(level < tree_levels_max, "a tree has more levels than slots allow");
      above = make_inner(made, between, 0, made.size(), level);
    }
    const write_pin<tree_top> top(path_.top);
    put(top->root, above ? above.slot() : made[0]);
  }

  /// Appends children first .. last of a node, and the keys between them.
  static void collect(const inner& n, std::size_t first, std::size_t last, slots& children, keys& separators) {
    for (std::size_t i = first; i < last; ++i) {
      if (i != first) separators.push_back(&n.keys[i - 1]);
      children.push_back(n.children[i].slot());
    }
  }
  ptr<inner> make_inner(const slots& children, const keys& separators, std::size_t first, std::size_t last,
                        std::uint64_t level) const {
    const ptr<inner> made = make_zero<inner>(cache_);
    const write_pin<inner> n = made.write();
    n->level = level;
    n->count = last - first;
    for (std::size_t i = first; i < last; ++i) {
      put(n->children[i - first], children[i]);
      if (i != first) key_of::move(n->keys[i - first - 1], *separators[i - 1]);
    }
    return made;
  }
  static void put(ref<object>& to, slot_t node) noexcept { element<ref<object>>::put(to, node); }

  structure_writing held_;
  const slot_t tree_;
  const tree_path& path_;
  object_cache& cache_;
  ptr<tree_top> top_;
};

}  // namespace fm::detail
