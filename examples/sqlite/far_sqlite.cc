// The heap's half of the configuration; see far_sqlite.h.
#include "far_sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <new>

#include "page_cache.h"

namespace fm::example {

namespace {

std::pmr::memory_resource* far_memory = nullptr;

/// Before every allocation: SQLite frees without saying how large it was.
struct alignas(16) allocation_head {
  int bytes;
};

allocation_head* head_of(void* p) { return static_cast<allocation_head*>(p) - 1; }

void* allocate(int bytes) {
  try {
    auto* const head = static_cast<allocation_head*>(
        far_memory->allocate(sizeof(allocation_head) + std::size_t(bytes), alignof(allocation_head)));
    head->bytes = bytes;
    return head + 1;
  } catch (const std::bad_alloc&) {
    return nullptr;  // SQLite says SQLITE_NOMEM then
  }
}

void release(void* p) {
  if (p == nullptr) return;
  allocation_head* const head = head_of(p);
  far_memory->deallocate(head, sizeof(allocation_head) + std::size_t(head->bytes), alignof(allocation_head));
}

void* reallocate(void* p, int bytes) {
  const int before = head_of(p)->bytes;
  if (bytes <= before && bytes > before / 2) return p;
  void* const fresh = allocate(bytes);
  if (fresh == nullptr) return nullptr;
  std::memcpy(fresh, p, std::size_t(std::min(bytes, before)));
  release(p);
  return fresh;
}

int size_of(void* p) { return p == nullptr ? 0 : head_of(p)->bytes; }
int rounded(int bytes) { return (bytes + 7) & ~7; }
int start_heap(void*) { return SQLITE_OK; }
void end_heap(void*) {}

void expect_ok(int code, const char* what) {
  if (code != SQLITE_OK) throw error(errc::refused, fmt::format("{}: {}", what, sqlite3_errstr(code)));
}

}  // namespace

far_sqlite::far_sqlite(std::pmr::memory_resource& memory) {
  far_memory = &memory;
  static const sqlite3_mem_methods heap_methods{allocate, release,    reallocate, size_of,
                                                rounded,  start_heap, end_heap,   nullptr};
  static sqlite3_pcache_methods2 cache_methods = page_cache_methods(memory);
  cache_methods.pArg = &memory;
  expect_ok(sqlite3_config(SQLITE_CONFIG_MALLOC, &heap_methods), "SQLITE_CONFIG_MALLOC");
  expect_ok(sqlite3_config(SQLITE_CONFIG_PCACHE2, &cache_methods), "SQLITE_CONFIG_PCACHE2");
  expect_ok(sqlite3_initialize(), "sqlite3_initialize");
}

far_sqlite::~far_sqlite() {
  sqlite3_shutdown();
  far_memory = nullptr;
}

}  // namespace fm::example
