// The common members of fm::map and fm::set: looking up, erasing, walks, ranges, bulk loading. The parts of a
// tree, and what holds when threads read and change it, are in tree/nodes.h and the headers that it names.
//
// Invariant: a function of the program runs under no lock of a tree (tree/locks.h). Used by fm::map and fm::set only.
#pragma once

#include <algorithm>
#include <farmem/detail/tree/builder.h>
#include <farmem/detail/tree/iterator.h>
#include <farmem/detail/tree/writer.h>

namespace fm {

/// The common members of fm::map and fm::set, which say what K and Compare may be. `Self` is the one of them that derives
/// from it. Costs are of resident nodes; each node that is remote costs a fetch, and a tree has few levels.
template <class Self, class K, class V, class Compare>
class tree_table : public detail::tree_writer<Self, K, V, Compare> {
  using writer = detail::tree_writer<Self, K, V, Compare>;
  using reader = detail::tree_reader<K, V, Compare>;
  using walk = detail::tree_walk<K, V, Compare>;
  using key_of = typename reader::key_of;
  using position = typename walk::position;

 public:
  using key_type = typename key_of::lookup;       ///< type that keys are looked up with
  using value_type = typename reader::entry;      ///< type of entries: key and value of a map, key of a set
  using size_type = std::uint64_t;                ///< type of sizes
  using difference_type = std::ptrdiff_t;         ///< type of distances
  using key_compare = Compare;                    ///< function that orders keys
  using iterator = tree_iterator<K, V, Compare>;  ///< iterator that gives entries by value
  using const_iterator = iterator;                ///< the same: iterators do not write
  using range_type = tree_range<K, V, Compare>;   ///< entries from a key to a key

  /// Whether there is such a key. O(log n).
  [[nodiscard]] bool contains(const key_type& key) const { return this->template look_up<bool>(key); }
  /// Whether there is a key that is equivalent to `key`, if Compare is transparent. O(log n).
  template <class Q>
  requires detail::transparent_order<K, Compare>
  [[nodiscard]] bool contains(const Q& key) const { return this->template look_up<bool>(key); }

  /// Removes `key`. Returns false if there was no such key. O(log n). If its leaf is sparse afterwards, merges it with a
  /// neighbour.
  bool erase(const key_type& key) const { return this->erase_key(key); }
  /// Removes the key that is equivalent to `key`, if Compare is transparent. As above.
  template <class Q>
  requires detail::transparent_order<K, Compare>
  bool erase(const Q& key) const { return this->erase_key(key); }

  /// Removes every entry for which `predicate(key, value)` (of a set: `predicate(key)`) is true, and returns how many. It
  /// is called in the order of the keys, with copies and without a lock, and may use managed containers. An entry is
  /// removed if it still has the value that the predicate saw; if another thread has changed it meanwhile, the predicate
  /// is asked again. Text comes as for for_each. If the predicate throws, or an access does, the entries before are done
  /// with. Entries that come meanwhile may be asked about or not. O(n).
  template <class Predicate>
  size_type erase_if(Predicate&& predicate) const {
    size_type erased = 0;
    for (position at; !at.at_end;) erased += this->erase_step(at, predicate);
    return erased;
  }
  /// Removes all entries, at one moment; their nodes become garbage. A function that was given to update, and runs
  /// meanwhile, changes what was removed. If it throws, nothing has changed. O(1).
  void clear() const { this->write()->top = nullptr; }

  /// Has the entries of a sorted range instead of its own: pairs of key and value, or keys of a set. They are put into
  /// new nodes, one after the other, which is several times as fast as insertions, and leaves are left fuller. The tree
  /// has the old entries until the last moment, and then the new ones. Throws invalid_argument if a key is not after the
  /// one before, naming its place; as fm::heap::make, and as reading the range; the tree is then unchanged. O(n).
  template <std::ranges::input_range R>
  void bulk_load(R&& sorted) const {
    detail::tree_builder<K, V, Compare> builder(detail::cache_of(this->slot()));
    for (auto&& e : sorted) {
      const auto& [key, v] = parts_of(e);
      const key_type& k = key;
      if (!builder.add(k, v))
        throw error(errc::invalid_argument,
                    "key " + std::to_string(builder.size()) + " of a bulk load is not after the one before");
    }
    builder.publish(this->slot());
  }

  /// Number of entries; approximate while other threads write. O(1).
  [[nodiscard]] size_type size() const {
    const detail::user_section in_section;
    const detail::slot_t top = reader::top_of(this->slot()).slot();
    if (top == 0) return 0;
    size_type n = 0;
    for (const auto& part : detail::object_at<detail::tree_top>(top)->counts)
      n += part.entries.load(std::memory_order_relaxed);
    return n;
  }
  /// Whether there are no entries; approximate while other threads write. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// The entry with the least key, if there is one: a std::optional. O(log n), and more if leaves before it are empty.
  [[nodiscard]] std::optional<value_type> first() const {
    position at;
    at.most = 1;
    for (std::vector<value_type> entries; !at.at_end;) {
      walk::copy_step(this->slot(), at, entries);
      if (!entries.empty()) return std::move(entries.front());
    }
    return std::nullopt;
  }
  /// The entry with the greatest key, if there is one. As first().
  [[nodiscard]] std::optional<value_type> last() const { return walk::last(this->slot()); }

  /// An iterator at the first entry. See fm::tree_iterator. O(log n). Throws as fm::ptr's ->.
  [[nodiscard]] iterator begin() const { return iterator(self(), {}); }
  /// The end. O(1).
  [[nodiscard]] iterator end() const noexcept { return iterator(); }
  /// An iterator at the first entry whose key is not before `key`. O(log n). Throws as fm::ptr's ->.
  [[nodiscard]] iterator lower_bound(const key_type& key) const { return iterator(self(), {}, key, false); }
  /// An iterator at the first entry whose key is not before `key`, which may be equivalent to several keys, if Compare is
  /// transparent. As above.
  template <class Q>
  requires detail::transparent_order<K, Compare>
  [[nodiscard]] iterator lower_bound(const Q& key) const { return iterator(self(), {}, key, false); }
  /// An iterator at the first entry whose key is after `key`. O(log n). Throws as fm::ptr's ->.
  [[nodiscard]] iterator upper_bound(const key_type& key) const { return iterator(self(), {}, key, true); }
  /// An iterator at the first entry whose key is after `key`, which may be equivalent to several keys, if Compare is
  /// transparent. As above.
  template <class Q>
  requires detail::transparent_order<K, Compare>
  [[nodiscard]] iterator upper_bound(const Q& key) const { return iterator(self(), {}, key, true); }
  /// The entries whose keys are not before `first`, and before `last`, as a range. A loop over it fetches the leaves that
  /// come next while it goes on. O(1). See fm::tree_iterator.
  [[nodiscard]] range_type range(const key_type& first, const key_type& last) const {
    using kept = typename key_of::kept;
    return range_type(self(), kept(first), kept(last));
  }
  /// The same from and to anything that Compare takes, if it is transparent. Either may be equivalent to several keys.
  /// The range keeps copies: of text the characters, of other views the view. O(1).
  template <class First, class Last>
  requires detail::transparent_order<K, Compare>
  [[nodiscard]] auto range(const First& first, const Last& last) const {
    using bounds = detail::tree_bounds<K, Compare>;
    using from = typename bounds::template kept<First>;
    using to = typename bounds::template kept<Last>;
    return tree_range<K, V, Compare, from, to>(self(), from(first), to(last));
  }

  /// Calls `f(key, value)` (of a set: `f(key)`) for every entry, in the order of the keys, with copies and without a lock,
  /// so `f` may change the tree. Keys of type fm::string come as fm::string, or as std::string if f takes only that or a
  /// view. It sees what fm::tree_iterator sees. Exceptions of f pass through. O(n).
  template <class F>
  void for_each(F&& f) const {
    std::vector<value_type> entries;
    for (position at; !at.at_end;) {
      walk::copy_step(this->slot(), at, entries);
      for (const value_type& e : entries) reader::call_with(f, e);
    }
  }

 protected:
  /// A null handle.
  constexpr tree_table() noexcept = default;
  /// A handle to the tree of `p`.
  explicit tree_table(ptr<Self> p) noexcept : writer(std::move(p)) {}

 private:
  [[nodiscard]] Self self() const { return Self(static_cast<const ptr<Self>&>(*this)); }
  template <class E>
  static decltype(auto) parts_of(E& e) {
    if constexpr (reader::is_set)
      return std::pair<const E&, detail::no_value>(e, {});
    else
      return (e);
  }
};

}  // namespace fm
