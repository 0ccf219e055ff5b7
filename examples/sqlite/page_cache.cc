// See page_cache.h, and "Application Defined Page Cache" in sqlite3.h for what each function has to do.
#include "page_cache.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <unordered_map>

namespace fm::example {

namespace {

std::pmr::memory_resource* contents = nullptr;

/// One database's pages. SQLite uses it from one thread at a time.
class page_cache {
 public:
  page_cache(int page_bytes, int extra_bytes, bool purgeable)
      : page_bytes_(std::size_t(page_bytes)), extra_bytes_(std::size_t(extra_bytes)), purgeable_(purgeable) {}
  ~page_cache() {
    for (auto& [key, p] : pages_) give_back(*p);
  }
  page_cache(const page_cache&) = delete;
  page_cache& operator=(const page_cache&) = delete;

  void limit(int pages) noexcept { limit_ = std::size_t(pages < 0 ? 0 : pages); }
  [[nodiscard]] int count() const noexcept { return int(pages_.size()); }

  sqlite3_pcache_page* fetch(unsigned key, bool create) {
    const auto found = pages_.find(key);
    if (found != pages_.end()) return &found->second->shared;
    if (!create) return nullptr;
    auto fresh = std::make_unique<page>();
    fresh->key = key;
    fresh->extra = std::make_unique<std::byte[]>(extra_bytes_);  // zero, as SQLite wants it
    auto& place = pages_[key];
    last_ = std::max(last_, key);
    try {
      fresh->shared = {contents->allocate(page_bytes_, page_bytes_), fresh->extra.get()};
    } catch (...) {
      pages_.erase(key);
      throw;
    }
    place = std::move(fresh);
    return &place->shared;
  }
  void unpin(sqlite3_pcache_page* p, bool discard) {
    // A page of a file is kept while there is room. What has no file is never unpinned but to be discarded.
    if (discard || (purgeable_ && pages_.size() > limit_)) erase(page_of(p)->key);
  }
  void rekey(sqlite3_pcache_page* p, unsigned from, unsigned to) {
    erase(to);
    auto node = pages_.extract(from);
    node.key() = page_of(p)->key = to;
    last_ = std::max(last_, to);
    pages_.insert(std::move(node));
  }
  // After every transaction that was rolled back, and most often in vain.
  void truncate(unsigned first) {
    for (unsigned key = first; key <= last_; ++key) erase(key);
    last_ = std::min(last_, first - 1);
  }

 private:
  struct page {
    sqlite3_pcache_page shared{};  ///< first: what SQLite has a pointer to
    unsigned key = 0;
    std::unique_ptr<std::byte[]> extra;
  };
  static page* page_of(sqlite3_pcache_page* p) noexcept { return reinterpret_cast<page*>(p); }
  void give_back(const page& p) noexcept { contents->deallocate(p.shared.pBuf, page_bytes_, page_bytes_); }
  void erase(unsigned key) {
    const auto at = pages_.find(key);
    if (at == pages_.end()) return;
    give_back(*at->second);
    pages_.erase(at);
  }

  const std::size_t page_bytes_, extra_bytes_;
  const bool purgeable_;
  std::size_t limit_ = 0;
  unsigned last_ = 0;  ///< no key is above it
  std::unordered_map<unsigned, std::unique_ptr<page>> pages_;
};

page_cache* cache_of(sqlite3_pcache* c) noexcept { return reinterpret_cast<page_cache*>(c); }

// The functions that SQLite calls: what is out of memory is said by a null pointer.

int start_cache(void*) { return SQLITE_OK; }
void end_cache(void*) {}
sqlite3_pcache* create(int page_bytes, int extra_bytes, int purgeable) {
  return reinterpret_cast<sqlite3_pcache*>(new (std::nothrow) page_cache(page_bytes, extra_bytes, purgeable != 0));
}
void set_limit(sqlite3_pcache* c, int pages) { cache_of(c)->limit(pages); }
int count(sqlite3_pcache* c) { return cache_of(c)->count(); }
sqlite3_pcache_page* fetch(sqlite3_pcache* c, unsigned key, int create_flag) {
  try {
    return cache_of(c)->fetch(key, create_flag != 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void unpin(sqlite3_pcache* c, sqlite3_pcache_page* p, int discard) { cache_of(c)->unpin(p, discard != 0); }
void rekey(sqlite3_pcache* c, sqlite3_pcache_page* p, unsigned from, unsigned to) { cache_of(c)->rekey(p, from, to); }
void truncate(sqlite3_pcache* c, unsigned first) { cache_of(c)->truncate(first); }
void destroy(sqlite3_pcache* c) { delete cache_of(c); }
void shrink(sqlite3_pcache*) {}

}  // namespace

sqlite3_pcache_methods2 page_cache_methods(std::pmr::memory_resource& pages) {
  contents = &pages;
  return {1, nullptr, start_cache, end_cache, create, set_limit, count, fetch, unpin, rekey, truncate, destroy, shrink};
}

}  // namespace fm::example
