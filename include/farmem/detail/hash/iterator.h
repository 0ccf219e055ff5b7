// The iterator of fm::hash_map and fm::hash_set: a walk over the shards (hash/shards.h), with copies of what its last
// step covered. It holds neither a section nor a pin nor a lock, so nothing waits for a loop over a table.
//
// Invariants owned here: an iterator that is not at the end has an entry, unless an increment has thrown.
#pragma once

#include <farmem/detail/hash/shards.h>
#include <iterator>

namespace fm {

/// An input iterator over the entries of a table, which begin() and end() of fm::hash_map and fm::hash_set make. It keeps
/// the table alive. Entries come as const copies, of the moment when the iterator read their bucket.
///
/// A key that is in the table from begin() to the end is seen exactly once, whatever other threads, or the loop, insert,
/// change or erase, and while the table grows and shrinks. No key is seen twice. A key that comes or goes meanwhile may
/// be seen or not.
///
/// For one thread at a time; copies are independent. Between increments it holds no scope, no pin and no lock.
template <class K, class V, class Hash, class Equal>
class hash_iterator {
  using shards = detail::hash_shards<K, V, Hash, Equal>;
  using handle = typename shards::handle;

 public:
  using iterator_category = std::input_iterator_tag;  ///< one pass
  using iterator_concept = std::input_iterator_tag;   ///< the same
  using difference_type = std::ptrdiff_t;             ///< type of distances
  using value_type = typename shards::entry;          ///< key and value of a map, key of a set
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

  /// The end of every table.
  hash_iterator() noexcept = default;
  /// For tables: the first entry of `table`. Throws as fm::ptr's ->.
  explicit hash_iterator(handle table) : table_(std::move(table)), at_() { read(); }

  /// A copy of the entry. Throws out_of_range at the end. O(1), fetches nothing.
  reference operator*() const {
    if (index_ >= entries_.size()) throw error(errc::out_of_range, "the entry at the end of a managed map or set");
    return entries_[index_];
  }
  /// A member of the entry. As operator*.
  pointer operator->() const { return pointer(**this); }
  /// Goes on to the next entry. O(1) on average, with one fetch of a bucket's pages where they are remote. Throws as
  /// fm::ptr's ->; then it may be called again.
  hash_iterator& operator++() {
    if (index_ + 1 < entries_.size())
      ++index_;
    else
      read();
    return *this;
  }
  /// As ++i; gives nothing.
  void operator++(int) { ++*this; }
  /// Whether both are at the end, or at the same entry of the same table. O(1).
  friend bool operator==(const hash_iterator& a, const hash_iterator& b) noexcept {
    if (a.done() || b.done()) return a.done() == b.done();
    return a.table_ == b.table_ && a.at_ == b.at_ && a.index_ == b.index_;
  }

 private:
  [[nodiscard]] bool done() const noexcept { return at_.at_end() && index_ >= entries_.size(); }
  void read() {
    entries_.clear();
    index_ = 0;
    try {
      while (entries_.empty() && !at_.at_end()) at_ = shards::copy_step(table_.slot(), at_, entries_);
    } catch (...) {
      entries_.clear();  // a part of a step, which is made again
      throw;
    }
  }

  handle table_;
  detail::hash_position at_{.shard = detail::map_shards};  ///< after the entries
  std::vector<value_type> entries_;
  std::size_t index_ = 0;
};

}  // namespace fm
