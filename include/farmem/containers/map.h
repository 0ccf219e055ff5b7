// fm::map<K, V>: a managed map in the order of its keys that may be larger than local memory, for concurrent use. A
// B+tree with nodes of a page. Readers take no lock and write nothing that others see. A writer takes the lock of one
// leaf. A leaf that is full is split, and one that is almost empty merged, beside readers.
//
// Invariant: a function of the program runs under no lock of a tree (detail/tree/locks.h). How trees are read, written
// and reshaped, and what holds then, is in detail/tree/nodes.h and beside it.
//
//   fm::map<std::uint64_t, record> m(h);               fm::map<fm::string, fm::ref<term>> d(h);
//   m.insert_or_assign(7, {.id = 7});                  d.insert_or_assign("far", t);
//   if (auto r = m.find(7)) use(*r);                   if (fm::ptr<term> t = d.find("far")) use(t->count);
//   for (const auto& [id, r] : m.range(10, 20)) …      if (auto least = d.first()) use(least->first.str());
#pragma once

#include <farmem/detail/tree/table.h>

namespace fm {

/// A handle to a managed map in the order of its keys. Copies of the handle name the same map. K is a trivially copyable
/// managed type, or fm::string, which is looked up with a std::string_view. V is a trivially copyable managed type, or
/// fm::ref<X>.
///
/// Compare is std::less<K> unless another is given: a strict weak order without state, which must give the same in every
/// process that reaches the map. It is part of the map's layout. Text is ordered by its bytes. For text, another Compare
/// takes two std::string_view and is constexpr. Two keys of which none is before the other are the same key.
///
/// If Compare has a member type `is_transparent`, find, contains, update, erase, extract, lower_bound, upper_bound and
/// range take what it accepts in place of a key. For the first five, one key at most is equivalent to it.
///
/// Compare runs under no lock that another key or container may need. If it is constexpr, or the library's, the map is
/// faster: otherwise a lookup copies a leaf.
///
/// Threads: any number of threads may call all members at once. Each call sees, or makes, one change of its key as a
/// whole; fm::tree_iterator says what a walk sees. Writers of one leaf take turns, and readers may after many failed
/// attempts; scopes are left meanwhile. Changes of other leaves do not wait, except for a split or merge.
///
/// Errors: as fm::ptr's -> and fm::heap::make. The map is then unchanged, or changed as requested; erase_if says what
/// else may be.
///
/// A B+tree (Bayer and McCreight, Acta Informatica 1972; Comer, ACM Computing Surveys 1979). A node is about 4 KiB: for
/// many small maps, sorted vectors need less memory.
template <class K, class V, class Compare>
class map : public tree_table<map<K, V, Compare>, K, V, Compare> {
  using handle = ptr<map>;
  using table = tree_table<map, K, V, Compare>;
  using reader = detail::tree_reader<K, V, Compare>;
  using key_of = typename reader::key_of;
  using element = typename reader::element;
  using leaf = typename reader::leaf;

 public:
  using key_type = typename key_of::lookup;     ///< type that keys are looked up with
  using mapped_type = typename element::value;  ///< type that values are read as
  using argument = typename element::argument;  ///< type that is stored as a value
  /// Result of find: std::optional<V>, or fm::found for references.
  using find_result = std::conditional_t<detail::is_ref<V>, found<mapped_type>, std::optional<mapped_type>>;
  /// The same, const where it holds a copy of the value: what is written to it is lost.
  using found_copy = std::conditional_t<detail::is_ref<V>, find_result, const find_result>;

  /// A null handle.
  constexpr map() noexcept = default;
  /// A null handle.
  constexpr map(std::nullptr_t) noexcept {}
  /// Makes an empty map: one object. O(1). Throws as fm::heap::make.
  explicit map(heap& h) : table(table::make(h)) {}
  /// Another handle to the map of `p`. O(1).
  map(handle p) noexcept : table(std::move(p)) {}
  /// A handle to the map that a field refers to. O(1).
  map(const ref<map>& r) : table(r.root()) {}

  /// The value of `key`: a std::optional<V>; for references a handle, null if there is no such key. It is a copy: to
  /// change the value, call update or insert_or_assign. O(log n).
  [[nodiscard]] found_copy find(const key_type& key) const { return this->template look_up<find_result>(key); }
  /// The value of the key that is equivalent to `key`, if Compare is transparent. As above.
  template <class Q>
  requires detail::transparent_order<K, Compare>
  [[nodiscard]] found_copy find(const Q& key) const { return this->template look_up<find_result>(key); }

  /// Sets the value of `key`. Returns whether the key is new. O(log n).
  bool insert_or_assign(const key_type& key, const argument& v) const {
    return this->insert_absent(key, v, true, [&](leaf& l, std::size_t i) { table::writes::replace(l, i, v); });
  }
  /// Sets the value of `key` if there is no such key. Returns whether it did. O(log n).
  bool insert(const key_type& key, const argument& v) const {
    return this->insert_absent(key, v, false, [](leaf&, std::size_t) {});
  }
  /// If there is no such key, inserts it with a value that is made of `args`, as V(args...) or V{args...}. Returns
  /// whether it did. The value is made without a lock, and not if the key is there at the call. O(log n).
  template <class... Args>
  bool try_emplace(const key_type& key, Args&&... args) const {
    if (this->contains(key)) return false;
    if constexpr (std::is_constructible_v<argument, Args...>)
      return insert(key, argument(std::forward<Args>(args)...));
    else
      return insert(key, argument{std::forward<Args>(args)...});
  }
  /// A copy of the value of `key`, const, so that no write to it is lost. If there is no such key, calls `make_value()`
  /// and inserts its result. It runs without a lock and may use the heap and other maps. If another thread inserts the
  /// key meanwhile, the result is that thread's value. O(log n).
  template <class Make>
  const mapped_type get_or_insert(const key_type& key, Make&& make_value) const {
    if (auto known = this->template look_up<find_result>(key); known.has_value()) return std::move(*known);
    mapped_type v = std::forward<Make>(make_value)();
    this->insert_absent(key, v, false, [&](leaf& l, std::size_t i) { v = element::load(l.values[l.order[i]]); });
    return v;
  }
  /// Calls f(value&) with a copy of the value and stores it back, while no other thread changes this key: others wait
  /// until it is done. Returns false if there is no such key. `f` is called once, and without a lock that another key or
  /// container may need. If it uses a managed map, set or queue, that throws scope_misuse. If it throws, or the value
  /// cannot be stored afterwards, the map is unchanged. O(log n).
  template <class F>
  bool update(const key_type& key, F&& f) const {
    return this->update_key(key, f);
  }
  /// The same for the key that is equivalent to `key`, if Compare is transparent.
  template <class Q, class F>
  requires detail::transparent_order<K, Compare>
  bool update(const Q& key, F&& f) const { return this->update_key(key, f); }
  /// Removes `key` and returns its value, as find does. Of several threads that extract a key, one gets the value. To put
  /// it back, insert it: an entry has no object of its own that could be moved from map to map. O(log n).
  find_result extract(const key_type& key) const { return extract_key(key); }
  /// The same for the key that is equivalent to `key`, if Compare is transparent.
  template <class Q>
  requires detail::transparent_order<K, Compare> find_result extract(const Q& key)
  const { return extract_key(key); }

 private:
  template <class Q>
  find_result extract_key(const Q& key) const {
    find_result taken;
    this->erase_key_if(key, [&](leaf& l, std::size_t i) {
      taken = element::load(l.values[l.order[i]]);
      return true;
    });
    return taken;
  }
};

}  // namespace fm
