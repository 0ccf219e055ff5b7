// fm::hash_table: the members that fm::hash_map and fm::hash_set have in common, and how tables are written. A set is a
// table whose values are of one byte.
//
// Invariant: all that a reader can see outside of motions is complete. An entry is in its place before the count that
// covers it. A page is complete before the reference to it, and a bucket before the number of buckets. Some changes
// move entries that a reader may be looking at: replacing a value of more than one word, erasing, splitting, merging.
// They happen only in a motion, which starts when everything that it needs is pinned. If no motion began since a reader
// started, it has seen one moment of the shard. Otherwise it starts again.
//
// How tables are read is in hash_shards.h, how they grow and shrink in hash_resize.h, the locks in shard_lock.h.
#pragma once

#include <farmem/detail/hash_iterator.h>
#include <farmem/detail/hash_resize.h>
#include <optional>

namespace fm {

/// The common members of fm::hash_map and fm::hash_set, which say what K, Hash and Equal may be. `Self` is the one of
/// them that derives from it.
template <class Self, class K, class V, class Hash, class Equal>
class hash_table : public ptr<Self> {
  using base = ptr<Self>;

  /// @cond
 protected:
  using shards = detail::hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;
  using element = typename shards::element;
  /// @endcond

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
  [[nodiscard]] bool contains(const key_type& key) const { return has(key_of::hash(key), key); }
  /// Whether there is a key that equals `key`, if Hash and Equal are transparent. O(1).
  template <class Q>
  requires detail::transparent<K, Hash, Equal>
  [[nodiscard]] bool contains(const Q& key) const { return has(hash_as(key), key); }

  /// Removes `key`. Returns false if there was no such key. O(1). If the table is sparse afterwards, joins two buckets.
  bool erase(const key_type& key) const { return erase_key(key_of::hash(key), key); }
  /// Removes the key that equals `key`, if Hash and Equal are transparent. As above.
  template <class Q>
  requires detail::transparent<K, Hash, Equal>
  bool erase(const Q& key) const { return erase_key(hash_as(key), key); }

  /// Removes every entry for which `predicate(key, value)` (of a set: `predicate(key)`) is true, and returns how many.
  /// It is called once for each entry, with copies, while no other thread changes the entry: others wait until the
  /// predicate has been asked about all of a bucket. Text comes as for for_each. The predicate runs without a lock that
  /// another key or container may need. If it uses a managed map, set or queue, that throws scope_misuse. If it throws,
  /// or an access does, some of the entries may have been removed. Entries that come meanwhile may be asked about or
  /// not. O(n).
  template <class Predicate>
  size_type erase_if(Predicate&& predicate) const {
    size_type erased = 0;
    for (detail::hash_position at; !at.at_end();) erased += erase_step(at, predicate);
    return erased;
  }
  /// Removes all entries; their pages become garbage. Each shard is emptied at one moment, one after the other. Waits
  /// for functions that were given to update and erase_if. If it throws, nothing has changed. O(1).
  void clear() const {
    const write_pin<Self> top(this->slot());
    for (std::size_t shard = 0; shard < detail::map_shards; ++shard) {
      const writing lock(this->slot(), shard, detail::key_range::all());
      const detail::shard_motion moving(lock);
      top->shards[shard].buckets = nullptr;
      top->shards[shard].size.store(0, std::memory_order_relaxed);
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
  [[nodiscard]] iterator begin() const { return iterator(static_cast<const base&>(*this)); }
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

  /// @cond
 protected:
  using page = typename shards::page;
  using place = typename shards::place;
  using snapshot = detail::shard_snapshot;
  using writing = detail::shard_writing;
  using resize = detail::hash_resize<K, V, Hash, Equal>;
  using stored_value = typename element::argument;
  static constexpr bool compares_in_place = !detail::key_of_program<K, Hash, Equal>;

  constexpr hash_table() noexcept = default;
  explicit hash_table(base p) noexcept : base(std::move(p)) {}

  static base make(heap& h) {
    detail::check_key<K, Hash, Equal>();
    detail::check_element<V>();
    return base::from_slot(
        detail::allocate(h.cache(), detail::descriptor_of<typename shards::header>(), 0, nullptr, 0));
  }

  template <class Q>
  static std::uint64_t hash_as(const Q& key) {
    return detail::mix_hash(Hash{}(key));
  }

  template <class Sought>
  place locate(std::uint64_t h, const Sought& key, const writing& held) const {
    place where;
    shards::locate(this->slot(), h, key, held.snapshot(), where);
    return where;
  }
  template <class Q>
  bool has(std::uint64_t h, const Q& key) const {
    if constexpr (!compares_in_place) {
      for (const auto& [stored_key, value] : copy_with(h))
        if (Equal{}(stored_key, key)) return true;
      return false;
    } else {
      place where;
      detail::read_shard(this->slot(), detail::shard_of(h), [&](const snapshot& seen) {
        return shards::locate(this->slot(), h, key, seen, where) && seen.holds();
      });
      return where.at != nullptr;
    }
  }
  /// Copies of the entries with that hash, of one moment.
  std::vector<std::pair<K, typename element::value>> copy_with(std::uint64_t h) const {
    std::vector<std::pair<K, typename element::value>> same;
    detail::read_shard(this->slot(), detail::shard_of(h), [&](const snapshot& seen) {
      same.clear();
      shards::each_with(this->slot(), h, [&](const page& p, std::size_t i) {
        same.emplace_back(key_of::show(p.keys[i]), element::load(p.values[i]));
      });
      return seen.holds();
    });
    return same;
  }
  /// How a writer looks for `key`: as it is, or, if functions of the program compare it, as the stored key that equals
  /// it. They run without the lock, and nobody else changes a key with that hash until the lock is held again: none of
  /// them comes or goes, and none does before `lock` ends. Outside of sections that hold pointers.
  template <class Q>
  decltype(auto) stored_as(writing& lock, std::uint64_t h, const Q& key) const {
    if constexpr (compares_in_place) {
      return (key);
    } else {
      using image = typename key_of::image;
      std::vector<image> same;
      {
        const detail::user_section in_section;
        shards::each_with(this->slot(), h,
                          [&](const page& p, std::size_t i) { same.push_back(key_of::image_of(p.keys[i])); });
      }
      std::optional<image> found;
      if (same.empty()) return found;
      const detail::key_update running(lock, this->slot(), {h});
      const auto equals = [&](const image& i) { return Equal{}(std::bit_cast<K>(i), key); };
      if (const auto it = std::find_if(same.begin(), same.end(), equals); it != same.end()) found = *it;
      return found;
    }
  }

  /// Stores a value of more than one word where no reader takes half of it.
  static void replace(const writing& held, page& p, std::size_t index, const stored_value& v) {
    if constexpr (detail::single_word<V>) {
      element::store(p.values[index], v);
    } else {
      const detail::shard_motion moving(held);
      element::store(p.values[index], v);
    }
  }

  /// Adds a key with that value, or calls known(lock, place), in a section, if it is there. Returns whether it is new.
  template <class Known>
  bool insert_absent(std::uint64_t h, const key_type& key, const stored_value& v, Known&& known) const {
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    {
      const detail::user_section in_section;
      if (const place where = locate(h, sought, lock); where.at) {
        known(lock, where);
        return false;
      }
    }
    insert_new(lock, h, key, v);
    return true;
  }
  /// Adds a key that is not there. Under the shard's lock, outside of sections. Everything is made before anything is
  /// changed.
  void insert_new(const writing& held, std::uint64_t h, const key_type& key, const stored_value& v) const {
    detail::object_cache& cache = detail::cache_of(this->slot());
    const std::size_t shard = detail::shard_of(h);
    const auto buckets = buckets_of(cache, shard);
    const auto key_to_store = key_of::make(cache, h, key);
    const write_pin<Self> top(this->slot());
    const std::uint64_t size = top->shards[shard].size.load(std::memory_order_relaxed);
    std::uint64_t n = buckets.size();
    if (resize::is_dense(size + 1, n)) {
      resize::split(held, cache, buckets, n);
      ++n;
    }
    ptr<page> at = buckets[detail::bucket_of(h, n)];
    for (;;) {
      const write_pin<page> p(at.slot());
      if (p->count < page::entries) {
        key_of::place(p->keys[p->count], key_to_store);
        element::store(p->values[p->count], v);
        detail::store_shared(p->count, p->count + 1);  // now readers see the entry
        break;
      }
      if (!p->next) p->next = detail::make_zero<page>(cache);
      at = p->next.root();
    }
    top->shards[shard].size.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  typename shards::bucket_vector buckets_of(detail::object_cache& cache, std::size_t shard) const {
    typename shards::bucket_vector buckets = this->read()->shards[shard].buckets.root();
    if (!buckets) {
      buckets = typename shards::bucket_vector(detail::make_zero<typename shards::bucket_vector>(cache));
      buckets.push_back(detail::make_zero<page>(cache));
      this->write()->shards[shard].buckets = buckets;
    }
    return buckets;
  }

  template <class Q>
  bool erase_key(std::uint64_t h, const Q& key) const {
    writing lock(this->slot(), detail::shard_of(h), h);
    return remove(lock, h, stored_as(lock, h, key));
  }
  /// Under the shard's lock, while nobody else changes the key.
  template <class Sought>
  bool remove(const writing& lock, std::uint64_t h, const Sought& sought) const {
    const std::size_t shard = detail::shard_of(h);
    {
      const detail::user_section in_section;
      const place where = locate(h, sought, lock);
      if (!where.at) return false;
      page* p = detail::object_to_write<page>(where.slot);
      auto* top = detail::object_to_write<typename shards::header>(this->slot());
      const std::uint64_t n = shards::buckets_of(this->slot(), shard)->size;
      const std::uint64_t last = p->count - 1;
      const detail::shard_motion moving(lock);
      if (where.index != last) {
        key_of::move(p->keys[where.index], p->keys[last]);
        element::move(p->values[where.index], p->values[last]);
      }
      key_of::clear(p->keys[last]);
      element::clear(p->values[last]);
      detail::store_shared(p->count, last);
      if (!resize::is_sparse(top->shards[shard].size.fetch_sub(1, std::memory_order_relaxed) - 1, n)) return true;
    }
    shrink(lock, shard);
    return true;
  }
  /// The key is erased, whether the table can shrink now or only at a later erasure.
  void shrink(const writing& lock, std::size_t shard) const {
    try {
      const typename shards::bucket_vector buckets = this->read()->shards[shard].buckets.root();
      resize::merge(lock, buckets, buckets.size());
    } catch (const std::exception&) {  // no memory for the pages, or their agent is lost
      return;
    }
  }

  template <class Predicate>
  size_type erase_step(detail::hash_position& at, Predicate& predicate) const {
    struct candidate {
      std::uint64_t hash;
      typename key_of::image image;
      value_type shown;
      bool goes = false;
    };
    std::vector<candidate> candidates;
    writing lock(this->slot(), at.shard);
    typename shards::step s;
    for (;; lock.wait_for_update()) {
      const detail::user_section in_section;
      s = shards::step_from(this->slot(), at);
      if (lock.is_updated(this->slot(), s.keys)) continue;
      shards::each_of(s, lock.snapshot(), [&](const page& p, std::size_t i) {
        candidates.push_back({key_of::hash_of(p.keys[i]), key_of::image_of(p.keys[i]), shards::show(p, i)});
      });
      break;
    }
    size_type erased = 0;
    if (!candidates.empty()) {
      {
        const detail::key_update running(lock, this->slot(), s.keys);
        for (candidate& c : candidates) c.goes = static_cast<bool>(shards::call_with(predicate, c.shown));
      }
      for (const candidate& c : candidates)
        if (c.goes) erased += remove(lock, c.hash, c.image);
    }
    at = s.next;
    return erased;
  }
  /// @endcond
};

}  // namespace fm
