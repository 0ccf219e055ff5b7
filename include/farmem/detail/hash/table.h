// fm::hash_table: the members that fm::hash_map and fm::hash_set have in common. A set is a table whose values are of one
// byte.
//
// Invariant: a function of the program runs under no lock of a shard (shard_lock.h). What holds while tables are written
// is in hash/writer.h.
#pragma once

#include <farmem/detail/hash/iterator.h>
#include <farmem/detail/hash/writer.h>

namespace fm {

/// The common members of fm::hash_map and fm::hash_set, which say what K, Hash and Equal may be. `Self` is the one of
/// them that derives from it.
template <class Self, class K, class V, class Hash, class Equal>
class hash_table : public detail::hash_writer<Self, K, V, Hash, Equal> {
  using writer = detail::hash_writer<Self, K, V, Hash, Equal>;
  using shards = detail::hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;

 public:
  using key_type = typename key_of::lookup;           ///< type that keys are looked up with
  using value_type = typename shards::entry;          ///< type of entries: key and value of a map, key of a set
  using size_type = std::uint64_t;                    ///< type of sizes
  using difference_type = std::ptrdiff_t;             ///< type of distances
  using hasher = Hash;                                ///< function that hashes keys
  using key_equal = Equal;                            ///< function that compares keys
  using iterator = hash_iterator<K, V, Hash, Equal>;  ///< iterator that gives entries by value
  using const_iterator = iterator;                    ///< the same: iterators do not write

  /// Whether there is such a key. O(1).
  [[nodiscard]] bool contains(const key_type& key) const { return this->has(key_of::hash(key), key); }
  /// Whether there is a key that equals `key`, if Hash and Equal are transparent. O(1).
  template <class Q>
  requires detail::transparent<K, Hash, Equal>
  [[nodiscard]] bool contains(const Q& key) const { return this->has(writer::hash_as(key), key); }

  /// Removes `key`. Returns false if there was no such key. O(1). If the table is sparse afterwards, joins two buckets.
  bool erase(const key_type& key) const { return this->erase_key(key_of::hash(key), key); }
  /// Removes the key that equals `key`, if Hash and Equal are transparent. As above.
  template <class Q>
  requires detail::transparent<K, Hash, Equal>
  bool erase(const Q& key) const { return this->erase_key(writer::hash_as(key), key); }

  /// Removes every entry for which `predicate(key, value)` (of a set: `predicate(key)`) is true, and returns how many.
  /// It is called once for each entry, with copies, while no other thread changes the entry: others wait until the
  /// predicate has been asked about all of a bucket. Text comes as for for_each. The predicate runs without a lock that
  /// another key or container may need. If it uses a managed map, set or queue, that throws scope_misuse. If it throws,
  /// or an access does, some of the entries may have been removed. Entries that come meanwhile may be asked about or
  /// not. O(n).
  template <class Predicate>
  size_type erase_if(Predicate&& predicate) const {
    size_type erased = 0;
    for (detail::hash_position at; !at.at_end();) erased += this->erase_step(at, predicate);
    return erased;
  }
  /// Removes all entries; their pages become garbage. Each shard is emptied at one moment, one after the other. Waits
  /// for functions that were given to update and erase_if. If it throws, nothing has changed. O(1).
  void clear() const {
    const write_pin<Self> top(this->slot());
    for (std::size_t shard = 0; shard < detail::map_shards; ++shard) {
      const detail::shard_writing lock(this->slot(), shard, detail::key_range::all());
      const detail::shard_motion moving(lock);
      auto& s = top->shards[shard];
      detail::store_shared(s.buckets, std::uint64_t{0});
      s.first = nullptr;
      s.directory = nullptr;
      s.size.store(0, std::memory_order_relaxed);
    }
  }

  /// Number of entries; approximate while other threads write. O(1).
  [[nodiscard]] size_type size() const {
    const detail::user_section in_section;
    size_type n = 0;
    for (const auto& shard : detail::object_at<typename shards::header>(this->slot())->shards)
      n += shard.size.load(std::memory_order_relaxed);
    return n;
  }
  /// Whether there are no entries; approximate while other threads write. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// An iterator at the first entry, in no order. See fm::hash_iterator. O(1) on average. Throws as fm::ptr's ->.
  [[nodiscard]] iterator begin() const { return iterator(static_cast<const ptr<Self>&>(*this)); }
  /// The end. O(1).
  [[nodiscard]] iterator end() const noexcept { return iterator(); }

  /// Calls `f(key, value)` (of a set: `f(key)`) for every entry, in no order, with copies and without a lock, so `f` may
  /// change the table. Keys of type fm::string come as fm::string, or as std::string if f takes only that or a view. It
  /// sees what fm::hash_iterator sees. Exceptions of f pass through. O(n).
  template <class F>
  void for_each(F&& f) const {
    std::vector<value_type> entries;
    for (detail::hash_position at; !at.at_end();) {
      at = shards::copy_step(this->slot(), at, entries);
      for (const value_type& e : entries) shards::call_with(f, e);
    }
  }

 protected:
  /// A null handle.
  constexpr hash_table() noexcept = default;
  /// A handle to the table of `p`.
  explicit hash_table(ptr<Self> p) noexcept : writer(std::move(p)) {}
};

}  // namespace fm
