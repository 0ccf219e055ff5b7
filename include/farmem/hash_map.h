// fm::hash_map<K, V>: a managed hash table that may be larger than local memory, for concurrent use. Sixteen shards,
// each a linear-hashing table. Writers of a shard take turns. Readers take no lock and write nothing that others see,
// so a writer that waits for a remote page does not hold them up. Growing splits one bucket of a shard at an insertion:
// no thread waits for a rehash.
//
// Invariant: all that a reader can see outside of motions is complete. An entry is in its place before the count that
// covers it. A page is complete before the reference to it, and a bucket before the number of buckets. Some changes
// move entries that a reader may be looking at: replacing a value of more than one word, erasing, splitting. They
// happen only in a motion, which starts when everything that it needs is pinned. If no motion began since a reader
// started, it has seen one moment of the shard. Otherwise it starts again.
//
//   fm::hash_map<std::uint64_t, record> m(h);         fm::hash_map<fm::string, fm::ref<term>> d(h);
//   m.insert_or_assign(7, {.id = 7});                 d.insert_or_assign("far", t);
//   if (auto r = m.find(7)) use(*r);                  if (fm::ptr<term> t = d.find("far")) use(t->count);
#pragma once

#include <algorithm>
#include <bit>
#include <farmem/detail/hash_pages.h>
#include <farmem/detail/shard_lock.h>
#include <optional>

namespace fm {

/// Result of looking up a reference: a handle, null if there was no such key. It can also be used as an optional.
template <class Handle>
class found : public Handle {
 public:
  /// No value.
  found() noexcept = default;
  /// The value `h`.
  found(Handle h) noexcept : Handle(std::move(h)) {}
  /// Whether there was such a key.
  [[nodiscard]] bool has_value() const noexcept { return static_cast<bool>(*this); }
  /// The handle; null if there was no such key.
  const Handle& operator*() const noexcept { return *this; }
  /// The handle. Throws not_found if there was no such key.
  [[nodiscard]] const Handle& value() const {
    if (!has_value()) throw error(errc::not_found, "no such key");
    return *this;
  }
};

/// A handle to a managed map. Copies of the handle name the same map. K is a trivially copyable managed type with ==,
/// or fm::string, which is looked up with a std::string_view. V is a trivially copyable managed type, or fm::ref<X>.
///
/// The == of K may be any, and so may std::hash<K> where K has padding or floating-point members; other keys are hashed
/// by their bytes. Neither runs under a lock that another key or container may need. If the == is constexpr, writers are
/// faster.
///
/// Threads: any number of threads may call all members at once. Each call sees, or makes, one change of its key as a
/// whole. Writers wait for locks, and readers may after many failed attempts; scopes are left meanwhile.
///
/// Errors: as fm::ptr's -> and fm::heap::make. The map is then unchanged, or changed as requested.
///
/// A page is about 256 bytes: for many small tables, sorted vectors need less memory.
template <class K, class V>
class hash_map : public ptr<hash_map<K, V>> {
  using base = ptr<hash_map<K, V>>;
  using header = detail::hash_map_header<K, V>;
  using key_of = detail::map_key<K>;
  using element = detail::map_value<V>;
  using page = detail::hash_page<K, V>;
  using bucket_vector = vector<ref<page>>;
  using bucket_chunks = detail::chunks<ref<page>>;

 public:
  using key_type = typename key_of::lookup;     ///< type that keys are looked up with
  using mapped_type = typename element::value;  ///< type that values are read as
  using argument = typename element::argument;  ///< type that is stored as a value
  /// Result of find: std::optional<V>, or fm::found for references.
  using find_result = std::conditional_t<detail::is_ref<V>, found<mapped_type>, std::optional<mapped_type>>;
  /// The same, const where it holds a copy of the value: what is written to it is lost.
  using found_copy = std::conditional_t<detail::is_ref<V>, find_result, const find_result>;

  /// A null handle.
  constexpr hash_map() noexcept = default;
  /// A null handle.
  constexpr hash_map(std::nullptr_t) noexcept {}
  /// Makes an empty map: one object. O(1). Throws as fm::heap::make.
  explicit hash_map(heap& h) : base(make(h)) {}
  /// Another handle to the map of `p`. O(1).
  hash_map(base p) noexcept : base(std::move(p)) {}
  /// A handle to the map that a field refers to. O(1).
  hash_map(const ref<hash_map<K, V>>& r) : base(r.root()) {}

  /// The value of `key`: a std::optional<V>; for references a handle, null if there is no such key. It is a copy: to
  /// change the value, call update or insert_or_assign. O(1).
  [[nodiscard]] found_copy find(const key_type& key) const {
    const std::uint64_t h = key_of::hash(key);
    find_result result;
    if constexpr (detail::key_of_program<K>) {
      for (auto& [stored_key, value] : copy_with(h))
        if (stored_key == key) return find_result(std::move(value));
    } else {
      detail::read_shard(this->slot(), detail::shard_of(h), [&](const snapshot& seen) {
        place where;
        if (!locate(h, key, seen, where)) return false;
        if (where.at)
          result = element::load(where.at->values[where.index]);
        else
          result = {};
        return seen.holds();
      });
    }
    return result;
  }
  /// Whether there is such a key. O(1).
  [[nodiscard]] bool contains(const key_type& key) const {
    if constexpr (detail::key_of_program<K>) {
      return find(key).has_value();
    } else {
      const std::uint64_t h = key_of::hash(key);
      place where;
      detail::read_shard(this->slot(), detail::shard_of(h),
                         [&](const snapshot& seen) { return locate(h, key, seen, where) && seen.holds(); });
      return where.at != nullptr;
    }
  }

  /// Sets the value of `key`. Returns whether the key is new. O(1).
  bool insert_or_assign(const key_type& key, const argument& v) const {
    const std::uint64_t h = key_of::hash(key);
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    {
      const detail::user_section in_section;
      if (const place where = locate(h, sought, lock); where.at) {
        replace(lock, *detail::object_to_write<page>(where.slot), where.index, v);
        return false;
      }
    }
    insert_new(lock, h, key, v);
    return true;
  }
  /// The value of `key`. If there is no such key, calls `make_value()` and inserts its result. It runs without a lock
  /// and may use the heap and other maps. If another thread inserts the key meanwhile, the result is that thread's
  /// value. O(1).
  template <class Make>
  mapped_type get_or_insert(const key_type& key, Make&& make_value) const {
    const std::uint64_t h = key_of::hash(key);
    if (auto known = find(key); known.has_value()) return std::move(*known);
    const mapped_type made = std::forward<Make>(make_value)();
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    {
      const detail::user_section in_section;
      if (const place where = locate(h, sought, lock); where.at) return element::load(where.at->values[where.index]);
    }
    insert_new(lock, h, key, made);
    return made;
  }
  /// Calls f(value&) with a copy of the value and stores it back, while no other thread changes this key: others wait
  /// until it is done. Returns false if there is no such key. `f` is called once, and without a lock that another key or
  /// container may need. If it uses a managed map or queue, that throws scope_misuse. If the value cannot be stored
  /// afterwards, that throws, and the map is unchanged. O(1).
  template <class F>
  bool update(const key_type& key, F&& f) const {
    const std::uint64_t h = key_of::hash(key);
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    std::optional<mapped_type> value;
    {
      const detail::user_section in_section;
      const place where = locate(h, sought, lock);
      if (!where.at) return false;
      value = element::load(where.at->values[where.index]);
    }
    {
      const detail::key_update running(lock, this->slot(), h);
      std::forward<F>(f)(*value);
    }
    // The key is still there, perhaps elsewhere: buckets may have been split meanwhile.
    const detail::user_section in_section;
    const place where = locate(h, sought, lock);
    FM_CHECK(where.at, "a key goes while it is updated");
    replace(lock, *detail::object_to_write<page>(where.slot), where.index, *value);
    return true;
  }
  /// Removes `key`. Returns false if there was no such key. Pages stay with their bucket. O(1).
  bool erase(const key_type& key) const {
    const std::uint64_t h = key_of::hash(key);
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = stored_as(lock, h, key);
    const detail::user_section in_section;
    const place where = locate(h, sought, lock);
    if (!where.at) return false;
    page* p = detail::object_to_write<page>(where.slot);
    header* top = detail::object_to_write<header>(this->slot());
    const std::uint64_t last = p->count - 1;
    const detail::shard_motion moving(lock);
    if (where.index != last) {
      key_of::move(p->keys[where.index], p->keys[last]);
      element::move(p->values[where.index], p->values[last]);
    }
    key_of::clear(p->keys[last]);
    element::clear(p->values[last]);
    detail::store_shared(p->count, last);
    top->shards[detail::shard_of(h)].size.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  /// Number of entries; approximate while other threads write. O(1).
  [[nodiscard]] std::uint64_t size() const {
    const detail::user_section in_section;
    std::uint64_t n = 0;
    for (const auto& shard : detail::object_at<header>(this->slot())->shards)
      n += shard.size.load(std::memory_order_relaxed);
    return n;
  }
  /// Whether there are no entries; approximate while other threads write. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// Calls f(key, value) for every entry, in no order, with copies and without a lock, so `f` may change the map. Keys
  /// of type fm::string come as fm::string, or as std::string if f takes only that or a view. An entry that exists
  /// throughout the call is seen at least once; if its bucket is split meanwhile, it may be seen twice. O(n).
  template <class F>
  void for_each(F&& f) const {
    std::vector<std::pair<typename key_of::value, mapped_type>> seen;
    for (std::size_t shard = 0; shard < detail::map_shards; ++shard)
      for (std::uint64_t bucket = 0; copy_bucket(shard, bucket, seen); ++bucket)
        for (const auto& [key, value] : seen) {
          if constexpr (std::is_invocable_v<F&, decltype(key), decltype(value)>)
            f(key, value);
          else
            f(key.str(), value);
        }
  }

 private:
  using snapshot = detail::shard_snapshot;
  using writing = detail::shard_writing;
  struct place {
    const page* at = nullptr;
    detail::slot_t slot = 0;
    std::size_t index = 0;
  };

  static base make(heap& h) {
    static_assert(std::is_same_v<K, string> || std::is_trivially_copyable_v<K>,
                  "farmem: a key is a trivially copyable value or fm::string");
    if constexpr (!std::is_same_v<K, string>) detail::check_element<K>();
    detail::check_element<V>();
    return base::from_slot(detail::allocate(h.cache(), detail::descriptor_of<header>(), 0, nullptr, 0));
  }

  /// The first page of a bucket, 0 when there is no such bucket. In a section that holds no pointers yet.
  detail::slot_t head_of(std::size_t shard, std::uint64_t hash, const std::uint64_t* number) const {
    const auto& top = *detail::object_at<header>(this->slot());
    const detail::slot_t buckets = top.shards[shard].buckets.slot();
    if (buckets == 0) return 0;
    const auto& v = *detail::object_at<detail::vector_header<ref<page>>>(buckets);
    const std::uint64_t n = detail::load_shared(v.size);
    if (n == 0 || (number && *number >= n)) return 0;
    const std::uint64_t b = number ? *number : detail::bucket_of(hash, n);
    const detail::slot_t chunk = bucket_chunks::slot_of(v, bucket_chunks::chunk_of(b));
    return (*detail::object_at<array_object<ref<page>>>(chunk))[bucket_chunks::within(b)].slot();
  }

  /// Entries of a page that are complete.
  static std::uint64_t count_of(const page& p) { return std::min(detail::load_shared(p.count), page::entries); }

  /// Finds `key`; false when the snapshot does not hold. In a section that holds no pointers yet.
  template <class Sought>
  bool locate(std::uint64_t h, const Sought& key, const snapshot& seen, place& where) const {
    where = {};
    for (detail::slot_t s = head_of(detail::shard_of(h), h, nullptr); s != 0;) {
      const page* p = detail::object_at<page>(s);
      for (std::size_t i = 0, n = count_of(*p); i < n; ++i) {
        const detail::match m = key_of::equal(p->keys[i], h, key, seen);
        if (m == detail::match::no) continue;
        where = {p, s, i};
        return m == detail::match::yes;
      }
      s = p->next.slot();
    }
    return true;
  }
  template <class Sought>
  place locate(std::uint64_t h, const Sought& key, const writing& held) const {
    place where;
    locate(h, key, held.snapshot(), where);
    return where;
  }
  /// How a writer looks for `key`: as it is, or, if its == is the program's, as the stored key that equals it. That ==
  /// runs without the lock, and nobody else changes a key with that hash until the lock is held again: none of them
  /// comes or goes, and none does before `lock` ends. Outside of sections that hold pointers.
  decltype(auto) stored_as(writing& lock, std::uint64_t h, const key_type& key) const {
    if constexpr (!detail::key_of_program<K>) {
      return (key);
    } else {
      using image = typename key_of::image;
      std::vector<image> same;
      {
        const detail::user_section in_section;
        each_with(h, [&](const page& p, std::size_t i) { same.push_back(key_of::image_of(p.keys[i])); });
      }
      std::optional<image> found;
      if (same.empty()) return found;
      const detail::key_update running(lock, this->slot(), h);
      const auto equals = [&](const image& i) { return std::bit_cast<K>(i) == key; };
      if (const auto it = std::find_if(same.begin(), same.end(), equals); it != same.end()) found = *it;
      return found;
    }
  }
  /// Calls f(page, index) for each key with that hash. In a section that holds no pointers yet.
  template <class F>
  void each_with(std::uint64_t h, F&& f) const {
    for (detail::slot_t s = head_of(detail::shard_of(h), h, nullptr); s != 0;) {
      const page* p = detail::object_at<page>(s);
      for (std::size_t i = 0, n = count_of(*p); i < n; ++i)
        if (key_of::hash_of(p->keys[i]) == h) f(*p, i);
      s = p->next.slot();
    }
  }
  /// Copies of the entries with that hash, of one moment.
  std::vector<std::pair<K, mapped_type>> copy_with(std::uint64_t h) const {
    std::vector<std::pair<K, mapped_type>> same;
    detail::read_shard(this->slot(), detail::shard_of(h), [&](const snapshot& seen) {
      same.clear();
      each_with(h, [&](const page& p, std::size_t i) {
        same.emplace_back(key_of::show(p.keys[i]), element::load(p.values[i]));
      });
      return seen.holds();
    });
    return same;
  }
  /// Stores a value of more than one word where no reader takes half of it.
  static void replace(const writing& held, page& p, std::size_t index, const argument& v) {
    if constexpr (detail::single_word<V>) {
      element::store(p.values[index], v);
    } else {
      const detail::shard_motion moving(held);
      element::store(p.values[index], v);
    }
  }

  template <class Seen>
  bool copy_bucket(std::size_t shard, std::uint64_t number, Seen& entries) const {
    bool there = false;
    detail::read_shard(this->slot(), shard, [&](const snapshot& seen) {
      entries.clear();
      detail::slot_t s = head_of(shard, 0, &number);
      there = s != 0;
      while (s != 0) {
        const page* p = detail::object_at<page>(s);
        for (std::size_t i = 0, n = count_of(*p); i < n; ++i)
          entries.emplace_back(key_of::show(p->keys[i]), element::load(p->values[i]));
        s = p->next.slot();
      }
      return seen.holds();
    });
    return there;
  }

  /// Adds a key that is not there. Under the shard's lock, outside of sections. Everything is made before anything is
  /// changed.
  void insert_new(const writing& held, std::uint64_t h, const key_type& key, const argument& v) const {
    detail::object_cache& cache = detail::cache_of(this->slot());
    const std::size_t shard = detail::shard_of(h);
    const bucket_vector buckets = buckets_of(cache, shard);
    const auto key_to_store = key_of::make(cache, h, key);
    const write_pin<hash_map> top(this->slot());
    const std::uint64_t size = top->shards[shard].size.load(std::memory_order_relaxed);
    std::uint64_t n = buckets.size();
    if (size + 1 > n * page::entries * 3 / 4) {
      split(held, cache, buckets, n);
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

  bucket_vector buckets_of(detail::object_cache& cache, std::size_t shard) const {
    bucket_vector buckets = this->read()->shards[shard].buckets.root();
    if (!buckets) {
      buckets = bucket_vector(detail::make_zero<bucket_vector>(cache));
      buckets.push_back(detail::make_zero<page>(cache));
      this->write()->shards[shard].buckets = buckets;
    }
    return buckets;
  }

  /// Adds bucket `n` and moves to it what belongs there: the half of one bucket. The pages of both are pinned before
  /// the first entry moves, so nothing can fail half way.
  static void split(const writing& held, detail::object_cache& cache, const bucket_vector& buckets, std::uint64_t n) {
    std::vector<write_pin<page>> from, to;
    std::uint64_t moving = 0;
    for (ptr<page> p = buckets[n - std::bit_floor(n)]; p;) {
      from.push_back(p.write());
      const page& x = *from.back();
      for (std::size_t i = 0; i < x.count; ++i) moving += detail::bucket_of(key_of::hash_of(x.keys[i]), n + 1) == n;
      p = x.next.root();
    }
    const ptr<page> head = detail::make_zero<page>(cache);
    to.push_back(head.write());
    while (to.size() * page::entries < moving) {
      const ptr<page> more = detail::make_zero<page>(cache);
      to.back()->next = more;
      to.push_back(more.write());
    }
    buckets.reserve(n + 1);
    const write_pin<bucket_vector> vector(buckets.slot());
    const write_pin<ref<page>[]> chunk(slot_of_chunk(*vector, bucket_chunks::chunk_of(n)));

    const detail::shard_motion moving_entries(held);
    (*chunk)[bucket_chunks::within(n)] = head;
    detail::store_shared(vector->size, n + 1);
    std::uint64_t kept = 0, moved = 0;
    const auto move_to = [](std::vector<write_pin<page>>& pages, std::uint64_t& at, page& x, std::size_t i) {
      page& y = *pages[at / page::entries];
      const std::size_t k = at % page::entries;
      ++at;
      if (&y == &x && k == i) return;
      key_of::move(y.keys[k], x.keys[i]);
      element::move(y.values[k], x.values[i]);
    };
    for (const auto& p : from) {
      page& x = *p;
      for (std::size_t i = 0; i < x.count; ++i) {
        const bool goes = detail::bucket_of(key_of::hash_of(x.keys[i]), n + 1) == n;
        move_to(goes ? to : from, goes ? moved : kept, x, i);
      }
    }
    settle(from, kept);
    settle(to, moved);
  }

  static detail::slot_t slot_of_chunk(const detail::vector_header<ref<page>>& v, std::uint64_t c) {
    const detail::user_section in_section;
    return bucket_chunks::slot_of(v, c);
  }

  /// Entries are in the first `n` places of the pages: counts them, clears the rest, lets empty pages go.
  static void settle(std::vector<write_pin<page>>& pages, std::uint64_t n) {
    for (std::size_t k = 0; k < pages.size(); ++k) {
      page& p = *pages[k];
      const std::uint64_t before = k * page::entries;
      const std::uint64_t count = n > before ? std::min(page::entries, n - before) : 0;
      for (std::size_t i = count; i < page::entries; ++i) {
        key_of::clear(p.keys[i]);
        element::clear(p.values[i]);
      }
      detail::store_shared(p.count, count);
      if (n <= before + page::entries) p.next = nullptr;
    }
  }
};

}  // namespace fm
