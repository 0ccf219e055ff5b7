// A page cache for SQLite (sqlite3_pcache_methods2) that keeps apart what is large and what is asked for often: the contents of
// pages are in the memory resource, each on pages of its own, while SQLite's notes about them, and where each is, stay in
// ordinary memory. So looking a page up, or walking the list of changed ones, touches nothing that may be remote.
#pragma once

#include <sqlite3.h>

#include <memory_resource>

namespace fm::example {

/// `pages` must outlive all caches; there is one for the process.
sqlite3_pcache_methods2 page_cache_methods(std::pmr::memory_resource& pages);

}  // namespace fm::example
