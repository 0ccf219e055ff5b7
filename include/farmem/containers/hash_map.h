// fm::hash_map<K, V>: a managed hash table that may be larger than local memory, for concurrent use. Sixteen shards,
// each a linear-hashing table. Writers of a shard take turns. Readers take no lock and write nothing that others see,
// so a writer that waits for a remote page does not hold them up. Growing splits one bucket of a shard at an insertion,
// and shrinking joins two at an erasure: no thread waits for a rehash.
//
// Invariant: a function of the program runs under no lock of a shard (detail/shard_lock.h). How tables are read, written
// and resized, and what holds then, is in detail/hash/table.h and beside it.
//
//   fm::hash_map<std::uint64_t, record> m(h);         fm::hash_map<fm::string, fm::ref<term>> d(h);
//   m.insert_or_assign(7, {.id = 7});                 d.insert_or_assign("far", t);
//   if (auto r = m.find(7)) use(*r);                  if (fm::ptr<term> t = d.find("far")) use(t->count);
//   for (const auto& [id, r] : m) use(id, r);         d.erase_if([](const fm::string&, const fm::ptr<term>&) { … });
#pragma once

#include <farmem/detail/hash/table.h>

namespace fm {

/// A handle to a managed map. Copies of the handle name the same map. K is a trivially copyable managed type with ==,
/// or fm::string, which is looked up with a std::string_view. V is a trivially copyable managed type, or fm::ref<X>.
///
/// Hash and Equal are std::hash<K> and std::equal_to<K> unless others are given. A K that is a class without std::hash
/// is hashed by its bytes, so its == must compare all of its members; it needs a Hash if it has padding or
/// floating-point members. Numbers and enums are hashed by value, text by its bytes. Keys that are equal must have equal
/// hashes. Hash and Equal have no state: they must give the same in every process that reaches the map, such as through
/// a channel, and are part of its layout. For text, Hash takes a std::string_view, and Equal, which is constexpr, two.
///
/// If Hash and Equal have a member type `is_transparent`, find, contains, update, erase and extract take what both accept
/// in place of a key. An Equal is called with the stored key first.
///
/// Hash and Equal run under no lock that another key or container may need. If both are constexpr, or the library's,
/// writers are faster.
///
/// Threads: any number of threads may call all members at once. Each call sees, or makes, one change of its key as a
/// whole. Writers wait for locks, and readers may after many failed attempts; scopes are left meanwhile.
///
/// Errors: as fm::ptr's -> and fm::heap::make. The map is then unchanged, or changed as requested; erase_if says what
/// else may be.
///
/// A page is about 256 bytes: for many small tables, sorted vectors need less memory.
template <class K, class V, class Hash, class Equal>
class hash_map : public hash_table<hash_map<K, V, Hash, Equal>, K, V, Hash, Equal> {
  using handle = ptr<hash_map>;
  using table = hash_table<hash_map, K, V, Hash, Equal>;
  using shards = detail::hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;
  using element = typename shards::element;
  using page = typename shards::page;
  using place = typename shards::place;
  using snapshot = detail::shard_snapshot;
  using writing = detail::shard_writing;

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
  explicit hash_map(heap& h) : table(table::make(h)) {}
  /// Another handle to the map of `p`. O(1).
  hash_map(handle p) noexcept : table(std::move(p)) {}
  /// A handle to the map that a field refers to. O(1).
  hash_map(const ref<hash_map>& r) : table(r.root()) {}

  /// The value of `key`: a std::optional<V>; for references a handle, null if there is no such key. It is a copy: to
  /// change the value, call update or insert_or_assign. O(1).
  [[nodiscard]] found_copy find(const key_type& key) const { return look_up(key_of::hash(key), key); }
  /// The value of the key that equals `key`, if Hash and Equal are transparent. As above.
  template <class Q>
  requires detail::transparent<K, Hash, Equal>
  [[nodiscard]] found_copy find(const Q& key) const { return look_up(table::hash_as(key), key); }

  /// Sets the value of `key`. Returns whether the key is new. O(1).
  bool insert_or_assign(const key_type& key, const argument& v) const {
    return this->insert_absent(key_of::hash(key), key, v, [&](const writing& lock, const place& where) {
      table::replace(lock, *detail::object_to_write<page>(where.slot), where.index, v);
    });
  }
  /// Sets the value of `key` if there is no such key. Returns whether it did. O(1).
  bool insert(const key_type& key, const argument& v) const { return insert_hashed(key_of::hash(key), key, v); }
  /// If there is no such key, inserts it with a value that is made of `args`, as V(args...) or V{args...}. Returns
  /// whether it did. The value is made without a lock, and not if the key is there at the call. O(1).
  template <class... Args>
  bool try_emplace(const key_type& key, Args&&... args) const {
    const std::uint64_t h = key_of::hash(key);
    if (this->has(h, key)) return false;
    if constexpr (std::is_constructible_v<argument, Args...>)
      return insert_hashed(h, key, argument(std::forward<Args>(args)...));
    else
      return insert_hashed(h, key, argument{std::forward<Args>(args)...});
  }
  /// A copy of the value of `key`, const, so that no write to it is lost. If there is no such key, calls `make_value()`
  /// and inserts its result. It runs without a lock and may use the heap and other maps. If another thread inserts the
  /// key meanwhile, the result is that thread's value. O(1).
  template <class Make>
  const mapped_type get_or_insert(const key_type& key, Make&& make_value) const {
    const std::uint64_t h = key_of::hash(key);
    if (auto known = look_up(h, key); known.has_value()) return std::move(*known);
    mapped_type value = std::forward<Make>(make_value)();
    this->insert_absent(h, key, value, [&](const writing&, const place& where) {
      value = element::load(where.at->values[where.index]);
    });
    return value;
  }
  /// Calls f(value&) with a copy of the value and stores it back, while no other thread changes this key: others wait
  /// until it is done. Returns false if there is no such key. `f` is called once, and without a lock that another key or
  /// container may need. If it uses a managed map, set or queue, that throws scope_misuse. If it throws, or the value
  /// cannot be stored afterwards, the map is unchanged. O(1).
  template <class F>
  bool update(const key_type& key, F&& f) const {
    return update_key(key_of::hash(key), key, f);
  }
  /// The same for the key that equals `key`, if Hash and Equal are transparent.
  template <class Q, class F>
  requires detail::transparent<K, Hash, Equal>
  bool update(const Q& key, F&& f) const { return update_key(table::hash_as(key), key, f); }
  /// Removes `key` and returns its value, as find does. Of several threads that extract a key, one gets the value. To put
  /// it back, insert it: an entry has no object of its own that could be moved from map to map. O(1).
  find_result extract(const key_type& key) const { return extract_key(key_of::hash(key), key); }
  /// The same for the key that equals `key`, if Hash and Equal are transparent.
  template <class Q>
  requires detail::transparent<K, Hash, Equal> find_result extract(const Q& key)
  const { return extract_key(table::hash_as(key), key); }

 private:
  bool insert_hashed(std::uint64_t h, const key_type& key, const argument& v) const {
    return this->insert_absent(h, key, v, [](const writing&, const place&) {});
  }
  template <class Q>
  find_result look_up(std::uint64_t h, const Q& key) const {
    find_result result;
    if constexpr (!table::compares_in_place) {
      for (auto& [stored_key, value] : this->copy_with(h))
        if (Equal{}(stored_key, key)) return find_result(std::move(value));
    } else {
      detail::read_shard(this->slot(), detail::shard_of(h), [&](const snapshot& seen) {
        place where;
        if (!shards::locate(this->slot(), h, key, seen, where)) return false;
        if (where.at)
          result = element::load(where.at->values[where.index]);
        else
          result = {};
        return seen.holds();
      });
    }
    return result;
  }
  template <class Q>
  find_result extract_key(std::uint64_t h, const Q& key) const {
    find_result taken;
    writing lock(this->slot(), detail::shard_of(h), h);
    this->remove(lock, h, this->stored_as(lock, h, key),
                 [&](const place& where) { taken = element::load(where.at->values[where.index]); });
    return taken;
  }
  template <class Q, class F>
  bool update_key(std::uint64_t h, const Q& key, F& f) const {
    writing lock(this->slot(), detail::shard_of(h), h);
    const auto& sought = this->stored_as(lock, h, key);
    std::optional<mapped_type> changed;
    {
      const detail::user_section in_section;
      const place where = this->locate(h, sought, lock);
      if (!where.at) return false;
      changed = element::load(where.at->values[where.index]);
    }
    {
      const detail::key_update running(lock, this->slot(), {h});
      f(*changed);
    }
    // The key is still there, perhaps elsewhere: buckets may have been split or merged meanwhile.
    const detail::user_section in_section;
    const place where = this->locate(h, sought, lock);
    FM_CHECK(where.at, "a key goes while it is updated");
    table::replace(lock, *detail::object_to_write<page>(where.slot), where.index, *changed);
    return true;
  }
};

}  // namespace fm
