// The peer of allocation: mimalloc. `fresh` starts from memory that the process does not have yet, `reused` from
// blocks that were freed just before: the two ends of what a program sees.
#pragma once

#include <cstddef>

namespace fm::bench {

/// Allocates `count` objects of 64 bytes, constructs them and links them so that all stay reachable, and gives the
/// time in nanoseconds per object. Freeing is not timed.
double mimalloc_64(std::size_t count, bool fresh);

/// Name and version of the allocator, for the report.
const char* mimalloc_name();

}  // namespace fm::bench
