// fm::set<K>: a managed set in the order of its keys that may be larger than local memory, for concurrent use. It is the
// tree of fm::map with values of one byte.
//
//   fm::set<std::uint64_t> seen(h);                    fm::set<fm::string> words(h);
//   if (seen.insert(7)) visit(7);                      for (const fm::string& w : words.range("a", "b")) …
#pragma once

#include <farmem/detail/tree/table.h>

namespace fm {

/// A handle to a managed set in the order of its keys. Copies of the handle name the same set. K, Compare, threads and
/// errors as for fm::map. A key takes two bytes more than itself.
template <class K, class Compare>
class set : public tree_table<set<K, Compare>, K, detail::no_value, Compare> {
  using handle = ptr<set>;
  using table = tree_table<set, K, detail::no_value, Compare>;
  using reader = detail::tree_reader<K, detail::no_value, Compare>;

 public:
  using key_type = typename reader::key_of::lookup;  ///< type that keys are looked up with

  /// A null handle.
  constexpr set() noexcept = default;
  /// A null handle.
  constexpr set(std::nullptr_t) noexcept {}
  /// Makes an empty set: one object. O(1). Throws as fm::heap::make.
  explicit set(heap& h) : table(table::make(h)) {}
  /// Another handle to the set of `p`. O(1).
  set(handle p) noexcept : table(std::move(p)) {}
  /// A handle to the set that a field refers to. O(1).
  set(const ref<set>& r) : table(r.root()) {}

  /// Adds `key`. Returns false if it was there. O(log n).
  bool insert(const key_type& key) const {
    return this->insert_absent(key, {}, false, [](typename reader::leaf&, std::size_t) {});
  }
};

}  // namespace fm
