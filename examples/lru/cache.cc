// The list of entries; see cache.h.
#include "cache.h"

namespace fm::example {

lru_cache::lru_cache(fm::heap& h, std::uint64_t capacity) : heap_(h), entries_(h), capacity_(capacity) {}

void lru_cache::insert(std::uint64_t key, std::span<const char> value) {
  const auto bytes = heap_.array(value);
  const auto e = heap_.make<cache_entry>({.key = key, .value = bytes});
  entries_.insert_or_assign(key, e);
  link_newest(e);
  ++size_;
  operations_ += 3;
  if (size_ <= capacity_) return;
  const fm::ptr<cache_entry> last = oldest_;
  unlink(last);
  entries_.erase(last->key);
  --size_;
  ++evicted_;
  operations_ += 2;
}

void lru_cache::unlink(const fm::ptr<cache_entry>& e) {
  operations_ += 3;
  const fm::ptr<cache_entry> newer = e->newer, older = e->older;
  if (newer)
    newer.write()->older = older;
  else
    newest_ = older;
  if (older)
    older.write()->newer = newer;
  else
    oldest_ = newer;
}

void lru_cache::link_newest(const fm::ptr<cache_entry>& e) {
  operations_ += 2;
  {
    const auto w = e.write();
    w->newer = nullptr;
    w->older = newest_;
  }
  if (newest_)
    newest_.write()->newer = e;
  else
    oldest_ = e;
  newest_ = e;
}

bool lru_cache::consistent() const {
  std::uint64_t count = 0;
  fm::ptr<cache_entry> last;
  for (fm::ptr<cache_entry> e = newest_; e && count <= size_; e = e->older.root()) {
    if (e->newer != last || entries_.find(e->key) != e) return false;
    last = e;
    ++count;
  }
  return count == size_ && entries_.size() == size_ && last == oldest_;
}

}  // namespace fm::example
