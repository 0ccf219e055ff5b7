// An agent inside its owner's process, for `local:` URLs: the one door of the agent for the library (heaps, pools,
// paged ranges). Nothing else under agent/ is included from src/.
//
// It is the same agent as the program's, but its owner reaches it by calls. It serves nobody else, so it never connects
// to other agents. The one for tests is served to others, and so has the program's options.
#pragma once

#include "fabric/server/server.h"

#include <cstdint>
#include <memory>

namespace fm::agent {

/// Who it is for, which decides what its threads do and how much of the memory they may keep for themselves.
enum class embedded_for : std::uint8_t { heap, pool, pages, tests };

struct embedded_options {
  embedded_for use = embedded_for::heap;
  std::uint64_t memory_bytes = 0;
  std::uint64_t region_bytes = 0;
};

/// Starts one; destruction stops it, when every session with it is closed. Throws fm::error (invalid_argument) naming
/// the option that is out of its range.
std::unique_ptr<fabric::service> start_embedded(const embedded_options& options);

}  // namespace fm::agent
