// A least-recently-used cache of values, all of it managed objects: a map from key to entry, and a doubly linked list through the
// entries from the newest to the oldest. What an insertion pushes out is not freed by anybody: it becomes garbage, and the heap's
// collector finds it.
//
// Invariant: the entries in the map are those in the list, and no more than the capacity. For one thread.
#pragma once

#include <cstdint>
#include <farmem/farmem.h>
#include <span>

namespace fm::example {

struct cache_entry {
  std::uint64_t key = 0;
  fm::ref<char[]> value;
  fm::ref<cache_entry> newer, older;  ///< null at the ends
};

class lru_cache {
 public:
  lru_cache(fm::heap& h, std::uint64_t capacity);

  /// Calls f(std::span<const char>) with the value of `key`, which becomes the newest; false when it is not cached. Throws as
  /// fm::ptr's ->.
  template <class F>
  bool find(std::uint64_t key, F&& f) {
    const fm::ptr<cache_entry> e = entries_.find(key);
    if (!e) return false;
    if (e != newest_) {
      unlink(e);
      link_newest(e);
    }
    operations_ += 3;
    const auto value = e->value.root().read();
    f(std::span<const char>(value->data(), value->size()));
    return true;
  }
  /// Adds a key that is not cached; the oldest leaves when there are too many. Throws as fm::heap::make and fm::ptr's ->.
  void insert(std::uint64_t key, std::span<const char> value);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t evicted() const noexcept { return evicted_; }
  /// Accesses to entries, values and pages of the map so far.
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }
  /// Walks the list both ways; false when it is not what the map says. O(size).
  [[nodiscard]] bool consistent() const;

 private:
  void unlink(const fm::ptr<cache_entry>& e);
  void link_newest(const fm::ptr<cache_entry>& e);

  fm::heap& heap_;
  fm::hash_map<std::uint64_t, fm::ref<cache_entry>> entries_;
  fm::ptr<cache_entry> newest_, oldest_;
  std::uint64_t capacity_, size_ = 0, evicted_ = 0, operations_ = 0;
};

}  // namespace fm::example
