// How managed hash tables are written: the base of fm::hash_table, which has their public members.
//
// Invariant: all that a reader can see outside of motions is complete. An entry is in its place before the count that
// covers it. A page is complete before the reference to it, and a bucket before the number of buckets. Some changes
// move entries that a reader may be looking at: replacing a value of more than one word, erasing, splitting, merging.
// They happen only in a motion, which starts when everything that it needs is pinned. If no motion began since a reader
// started, it has seen one moment of the shard. Otherwise it starts again.
//
// How tables are read is in hash/shards.h, how they grow and shrink in hash/resize.h, the locks in shard_lock.h.
#pragma once

#include <farmem/detail/hash/resize.h>
#include <optional>

namespace fm::detail {

/// `Self` is the handle that derives from it.
template <class Self, class K, class V, class Hash, class Equal>
class hash_writer : public ptr<Self> {
  using base = ptr<Self>;

 protected:
  using shards = hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;
  using element = typename shards::element;
  using key_type = typename key_of::lookup;
  using page = typename shards::page;
  using place = typename shards::place;
  using snapshot = shard_snapshot;
  using writing = shard_writing;
  using resize = hash_resize<K, V, Hash, Equal>;
  using stored_value = typename element::argument;
  static constexpr bool compares_in_place = !key_of_program<K, Hash, Equal>;

  constexpr hash_writer() noexcept = default;
  explicit hash_writer(base p) noexcept : base(std::move(p)) {}

  static base make(heap& h) {
    check_key<K, Hash, Equal>();
    check_element<V>();
    return base::from_slot(allocate(h.cache(), descriptor_of<typename shards::header>(), 0, nullptr, 0));
  }

  template <class Q>
  static std::uint64_t hash_as(const Q& key) {
    return mix_hash(Hash{}(key));
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
      for (const auto& [stored_key, found] : copy_with(h))
        if (Equal{}(stored_key, key)) return true;
      return false;
    } else {
      place where;
      read_shard(this->slot(), shard_of(h), [&](const snapshot& seen) {
        return shards::locate(this->slot(), h, key, seen, where) && seen.holds();
      });
      return where.at != nullptr;
    }
  }
  /// Copies of the entries with that hash, of one moment.
  std::vector<std::pair<K, typename element::value>> copy_with(std::uint64_t h) const {
    std::vector<std::pair<K, typename element::value>> same;
    read_shard(this->slot(), shard_of(h), [&](const snapshot& seen) {
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
        const user_section in_section;
        shards::each_with(this->slot(), h,
                          [&](const page& p, std::size_t i) { same.push_back(key_of::image_of(p.keys[i])); });
      }
      std::optional<image> found;
      if (same.empty()) return found;
      const key_update running(lock, this->slot(), {h});
      const auto equals = [&](const image& i) { return Equal{}(std::bit_cast<K>(i), key); };
      if (const auto it = std::find_if(same.begin(), same.end(), equals); it != same.end()) found = *it;
      return found;
    }
  }

  /// Stores a value of more than one word where no reader takes half of it.
  static void replace(const writing& held, page& p, std::size_t index, const stored_value& v) {
    if constexpr (single_word<V>) {
      element::store(p.values[index], v);
    } else {
      const shard_motion moving(held);
      element::store(p.values[index], v);
    }
  }

  /// Adds a key with that value, or calls known(lock, place), in a section, if it is there. Returns whether it is new.
  template <class Known>
  bool insert_absent(std::uint64_t h, const key_type& key, const stored_value& v, Known&& known) const {
    writing lock(this->slot(), shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    {
      const user_section in_section;
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
    object_cache& cache = cache_of(this->slot());
    const auto key_to_store = key_of::make(cache, h, key);
    const write_pin<Self> top(this->slot());
    typename shards::shard& s = top->shards[shard_of(h)];
    if (s.buckets == 0)
      resize::begin(cache, s);
    else if (resize::is_dense(s.size.load(std::memory_order_relaxed) + 1, s.buckets))
      resize::split(held, cache, s);
    ptr<page> at = resize::head(s, bucket_of(h, s.buckets));
    for (;;) {
      const write_pin<page> p(at.slot());
      if (p->count < page::entries) {
        key_of::place(p->keys[p->count], key_to_store);
        element::store(p->values[p->count], v);
        store_shared(p->count, p->count + 1);  // now readers see the entry
        break;
      }
      if (!p->next) p->next = make_zero<page>(cache);
      at = p->next.root();
    }
    s.size.fetch_add(1, std::memory_order_relaxed);
  }

  template <class Q>
  bool erase_key(std::uint64_t h, const Q& key) const {
    writing lock(this->slot(), shard_of(h), h);
    return remove(lock, h, stored_as(lock, h, key), [](const place&) {});
  }
  /// Under the shard's lock, while nobody else changes the key. Calls taken(place) before it changes anything.
  template <class Sought, class Taken>
  bool remove(const writing& lock, std::uint64_t h, const Sought& sought, Taken&& taken) const {
    const std::size_t shard = shard_of(h);
    {
      const user_section in_section;
      const place where = locate(h, sought, lock);
      if (!where.at) return false;
      taken(where);
      page* p = object_to_write<page>(where.slot);
      auto& s = object_to_write<typename shards::header>(this->slot())->shards[shard];
      const std::uint64_t last = p->count - 1;
      const shard_motion moving(lock);
      if (where.index != last) {
        key_of::move(p->keys[where.index], p->keys[last]);
        element::move(p->values[where.index], p->values[last]);
      }
      key_of::clear(p->keys[last]);
      element::clear(p->values[last]);
      store_shared(p->count, last);
      if (!resize::is_sparse(s.size.fetch_sub(1, std::memory_order_relaxed) - 1, s.buckets)) return true;
    }
    shrink(lock, shard);
    return true;
  }
  template <class Predicate>
  std::uint64_t erase_step(hash_position& at, Predicate& predicate) const {
    struct candidate {
      std::uint64_t hash;
      typename key_of::image image;
      typename shards::entry shown;
      bool goes = false;
    };
    std::vector<candidate> candidates;
    writing lock(this->slot(), at.shard);
    typename shards::step s;
    for (;; lock.wait_for_update()) {
      const user_section in_section;
      s = shards::step_from(this->slot(), at);
      if (lock.is_updated(this->slot(), shards::keys_of(at.shard, s))) continue;
      shards::each_of(s, lock.snapshot(), [&](const page& p, std::size_t i) {
        candidates.push_back({key_of::hash_of(p.keys[i]), key_of::image_of(p.keys[i]), shards::show(p, i)});
      });
      break;
    }
    std::uint64_t erased = 0;
    if (!candidates.empty()) {
      {
        const key_update running(lock, this->slot(), shards::keys_of(at.shard, s));
        for (candidate& c : candidates) c.goes = static_cast<bool>(shards::call_with(predicate, c.shown));
      }
      for (const candidate& c : candidates)
        if (c.goes) erased += remove(lock, c.hash, c.image, [](const place&) {});
    }
    at = s.next;
    return erased;
  }

 private:
  /// The key is erased, whether the table can shrink now or only at a later erasure.
  void shrink(const writing& lock, std::size_t shard) const {
    try {
      const write_pin<Self> top(this->slot());
      resize::merge(lock, top->shards[shard]);
    } catch (const std::exception&) {  // no memory for the pages, or their agent is lost
      return;
    }
  }
};

}  // namespace fm::detail
