// Who holds the memory of a cache: threads, open scopes, pins, and objects that are not written home yet. The text of
// cache_full is made of it.
//
// Invariant: counting for an error changes nothing. It looks at a bounded number of frames, between two steps of
// eviction, and makes none of them warm.
#pragma once

#include <string>

namespace fm::detail {

class object_cache;

/// A line for an error: threads and what they lease, the places of open scopes, pins, unwritten objects by agent, and
/// segments by state. With or without a section; no lock of the cache is held.
std::string describe_holders(object_cache& cache);

/// When the heap is closed and nobody may use it: if pins are left, says so in the log, and keeps what they hold mapped
/// for the rest of the process. A pin that outlives its heap reads what it read, and its end writes into nobody's memory.
void keep_what_is_pinned(object_cache& cache) noexcept;

}  // namespace fm::detail
