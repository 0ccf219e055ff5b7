// Makes a managed tree of sorted entries, from the leaves up, each level from left to right (bulk loading). Nobody else
// sees the nodes before the header gets their top.
//
// Invariants owned here
//   - What was added is reached from the roots that the builder holds, one a level.
//   - Keys ascend strictly, by the tree's Compare.
//
// Used by fm::map and fm::set, and by what receives them from a channel (graph/containers.h).
#pragma once

#include <farmem/detail/tree/reader.h>
#include <farmem/handles/pin.h>
#include <optional>

namespace fm::detail {

template <class K, class V, class Compare>
class tree_builder {
  using reader = tree_reader<K, V, Compare>;
  using leaf = typename reader::leaf;
  using inner = typename reader::inner;
  using key_of = typename reader::key_of;
  using stored_key = typename key_of::stored;
  using writes = leaf_entries<K, V, Compare>;
  using stored_value = typename reader::element::argument;
  /// Leaves are filled up to here: an insertion that comes later does not split its leaf at once.
  static constexpr std::size_t fill = leaf::entries - leaf::entries / 16;

 public:
  explicit tree_builder(object_cache& cache) : cache_(cache) {}

  /// Appends an entry. False, and nothing has changed, if its key is not after the one before. Outside of sections.
  [[nodiscard]] bool add(const typename key_of::lookup& key, const stored_value& v) {
    if (last_ && !key_of::is_before(key_of::lookup_of(*last_), key)) return false;
    const auto stored = key_of::make(cache_, key);
    if (!leaf_ || count_in_leaf_ == fill) begin_leaf();
    const write_pin<leaf> l(leaf_.slot());
    const std::size_t i = l->count;
    l->order[i] = static_cast<std::uint8_t>(i);
    key_of::place(l->keys[i], stored);
    reader::element::store(l->values[i], v);
    count_in_leaf_ = ++l->count;
    if (i == 0 && leaves_ > 1) add_child(1, l->keys[0], leaf_.slot());
    last_.emplace(key);
    ++size_;
    return true;
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Gives the tree that top, in place of its entries; none if nothing was added.
  void publish(slot_t tree) {
    if (size_ == 0) {
      const write_pin<tree_header<K, V, Compare>> h(tree);
      h->top = nullptr;
      return;
    }
    const ptr<tree_top> top = make_zero<tree_top>(cache_);
    {
      const write_pin<tree_top> t(top.slot());
      element<ref<object>>::put(t->root, levels_.empty() ? leaf_.slot() : levels_.back().slot());
      t->counts[0].entries.store(size_, std::memory_order_relaxed);
    }
    const write_pin<tree_header<K, V, Compare>> h(tree);
    h->top = top;
  }

 private:
  void begin_leaf() {
    ptr<leaf> fresh = make_zero<leaf>(cache_);
    writes::number_free(*fresh.write().get());
    if (leaf_ && levels_.empty()) levels_.push_back(make_inner(1, leaf_.slot()));
    leaf_ = std::move(fresh);  // of the one before, the node above has the reference
    count_in_leaf_ = 0;
    ++leaves_;
  }
  /// Appends a child to the open node of a level. All of the child's keys are from `key` on.
  void add_child(std::size_t level, const stored_key& key, slot_t child) {
    const slot_t open = levels_[level - 1].slot();
    {
      const write_pin<inner> n(open);
      if (n->count < inner::children_max) {
        key_of::move(n->keys[n->count - 1], key);
        element<ref<object>>::put(n->children[n->count], child);
        ++n->count;
        return;
      }
    }
    ptr<inner> next = make_inner(level, child);
    if (level == levels_.size()) levels_.push_back(make_inner(level + 1, open));
    add_child(level + 1, key, next.slot());
    levels_[level - 1] = std::move(next);
  }
  ptr<inner> make_inner(std::size_t level, slot_t child) const {
    FM_CHECK(level < tree_levels_max, "a tree has more levels than slots allow");
    ptr<inner> made = make_zero<inner>(cache_);
    const write_pin<inner> n = made.write();
    n->level = level;
    n->count = 1;
    element<ref<object>>::put(n->children[0], child);
    return made;
  }

  object_cache& cache_;
  ptr<leaf> leaf_;
  std::size_t count_in_leaf_ = 0;
  std::optional<typename key_of::kept> last_;  ///< key
  std::uint64_t leaves_ = 0;
  std::uint64_t size_ = 0;
  std::vector<ptr<inner>> levels_;  ///< the open node of each, from level 1 on
};

}  // namespace fm::detail
