// The iterator of fm::map and fm::set: a walk over the leaves (tree/walk.h), with copies of what its last step covered.
// It holds neither a section nor a pin nor a lock, so nothing waits for a loop over a tree.
//
// Invariants owned here: an iterator that is not at the end has an entry, unless an increment has thrown.
#pragma once

#include <farmem/detail/tree/walk.h>
#include <iterator>

namespace fm {

/// An input iterator over entries in the order of their keys, which begin(), lower_bound() and others of fm::map and
/// fm::set make. It keeps the tree alive. Entries come as const copies, of the moment when the iterator read their leaf.
///
/// A key that is in the tree, and in the range, until the end is seen exactly once, whatever other threads, or the loop,
/// insert, change or erase. Keys ascend strictly, so none is seen twice. A key that comes or goes meanwhile may be seen
/// or not.
///
/// For one thread at a time; copies are independent. Between increments it holds no scope, no pin and no lock.
template <class K, class V, class Compare, class Limit = typename detail::tree_key<K, Compare>::kept>
class tree_iterator {
  using reader = detail::tree_reader<K, V, Compare>;
  using walk = detail::tree_walk<K, V, Compare>;
  using handle = typename reader::handle;
  using position = detail::tree_position<K, Compare, Limit>;

 public:
  using iterator_category = std::input_iterator_tag;  ///< one pass
  using iterator_concept = std::input_iterator_tag;   ///< the same
  using difference_type = std::ptrdiff_t;             ///< type of distances
  using value_type = typename reader::entry;          ///< key and value of a map, key of a set
  /// Entries come by value, which a program cannot change by mistake.
  using reference = std::conditional_t<std::is_class_v<value_type>, const value_type, value_type>;
  /// Result of ->: a copy of the entry that lives until the full expression ends.
  class pointer {
   public:
    /// Holds `v`.
    explicit pointer(value_type v) : value_(std::move(v)) {}
    /// A member of the copy.
    const value_type* operator->() const noexcept { return &value_; }

   private:
    value_type value_;
  };

  /// The end of every tree.
  tree_iterator() noexcept { at_.at_end = true; }
  /// For trees: the first entry of `tree` from `at` on. Throws as fm::ptr's ->.
  tree_iterator(handle tree, position at) : tree_(std::move(tree)), at_(std::move(at)) { read(); }
  /// For trees: the first entry of `tree` whose key is not before `q`, or is after `q`, and before the limit of `at`.
  template <class Q>
  tree_iterator(handle tree, position at, const Q& q, bool is_after) : tree_(std::move(tree)), at_(std::move(at)) {
    walk::first_step(tree_.slot(), at_, q, is_after, entries_);
    if (entries_.empty()) read();
  }

  /// A copy of the entry. Throws out_of_range at the end. O(1), fetches nothing.
  reference operator*() const {
    if (index_ >= entries_.size()) throw error(errc::out_of_range, "the entry at the end of a managed map or set");
    return entries_[index_];
  }
  /// A member of the entry. As operator*.
  pointer operator->() const { return pointer(**this); }
  /// Goes on to the next entry. O(1) on average, with one fetch of a leaf where it is remote. Throws as fm::ptr's ->;
  /// then it may be called again.
  tree_iterator& operator++() {
    if (index_ + 1 < entries_.size())
      ++index_;
    else
      read();
    return *this;
  }
  /// As ++i; gives nothing.
  void operator++(int) { ++*this; }
  /// Whether both are at the end, or at an entry of the same tree with the same key. O(1). Of text, throws as fm::ptr's
  /// ->.
  friend bool operator==(const tree_iterator& a, const tree_iterator& b) {
    if (a.done() || b.done()) return a.done() == b.done();
    if (a.tree_ != b.tree_) return false;
    const auto &x = a.key(), &y = b.key();
    if constexpr (std::same_as<K, string>)
      return x == y;
    else
      return !Compare{}(x, y) && !Compare{}(y, x);
  }

 private:
  [[nodiscard]] bool done() const noexcept { return at_.at_end && index_ >= entries_.size(); }
  const auto& key() const { return reader::key_in(entries_[index_]); }
  /// The next step with entries. If it throws, the last entry stays where it was.
  void read() {
    std::vector<value_type> entries;
    while (entries.empty() && !at_.at_end) walk::copy_step(tree_.slot(), at_, entries);
    entries_.swap(entries);
    index_ = 0;
  }

  handle tree_;
  position at_;
  std::vector<value_type> entries_;
  std::size_t index_ = 0;
};

/// Entries from a key to a key, which range() of fm::map and fm::set makes: a std::ranges::input_range. See
/// fm::tree_iterator. It keeps the tree alive, and copies of what it was made with. It may be iterated over again.
template <class K, class V, class Compare, class First = typename detail::tree_key<K, Compare>::kept,
          class Limit = First>
class tree_range {
 public:
  using iterator = tree_iterator<K, V, Compare, Limit>;  ///< iterator that gives entries by value
  using const_iterator = iterator;                       ///< the same: iterators do not write

  /// For trees.
  tree_range(typename detail::tree_reader<K, V, Compare>::handle tree, First first, Limit limit)
      : tree_(std::move(tree)), first_(std::move(first)) {
    at_.limit.emplace(std::move(limit));
  }
  /// The first entry. O(log n). Throws as fm::ptr's ->.
  [[nodiscard]] iterator begin() const {
    return iterator(tree_, at_, detail::tree_bounds<K, Compare>::asked(first_), false);
  }
  /// The end. O(1).
  [[nodiscard]] iterator end() const noexcept { return iterator(); }

 private:
  typename detail::tree_reader<K, V, Compare>::handle tree_;
  First first_;
  detail::tree_position<K, Compare, Limit> at_;
};

}  // namespace fm
