// fm::hash_set<K>: a managed set that may be larger than local memory, for concurrent use. It is the table of
// fm::hash_map with values of one byte.
//
//   fm::hash_set<std::uint64_t> seen(h);              fm::hash_set<fm::string> words(h);
//   if (seen.insert(7)) visit(7);                     if (words.contains("far")) …
#pragma once

#include <farmem/detail/hash/table.h>

namespace fm {

/// A handle to a managed set. Copies of the handle name the same set. K, Hash, Equal, threads and errors as for
/// fm::hash_map. A key takes one byte more than itself.
template <class K, class Hash, class Equal>
class hash_set : public hash_table<hash_set<K, Hash, Equal>, K, detail::no_value, Hash, Equal> {
  using handle = ptr<hash_set>;
  using table = hash_table<hash_set, K, detail::no_value, Hash, Equal>;
  using shards = detail::hash_shards<K, detail::no_value, Hash, Equal>;
  using key_of = typename shards::key_of;

 public:
  using key_type = typename key_of::lookup;  ///< type that keys are looked up with

  /// A null handle.
  constexpr hash_set() noexcept = default;
  /// A null handle.
  constexpr hash_set(std::nullptr_t) noexcept {}
  /// Makes an empty set: one object. O(1). Throws as fm::heap::make.
  explicit hash_set(heap& h) : table(table::make(h)) {}
  /// Another handle to the set of `p`. O(1).
  hash_set(handle p) noexcept : table(std::move(p)) {}
  /// A handle to the set that a field refers to. O(1).
  hash_set(const ref<hash_set>& r) : table(r.root()) {}

  /// Adds `key`. Returns false if it was there. O(1).
  bool insert(const key_type& key) const {
    return this->insert_absent(key_of::hash(key), key, {},
                               [](const detail::shard_writing&, const typename shards::place&) {});
  }
};

}  // namespace fm
