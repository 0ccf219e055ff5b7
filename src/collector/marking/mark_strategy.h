// The interface of marking: who finds out which objects are reachable. A collection chooses one or two of
//   agent_marking   objects are traced where they are stored (Mako, section 5); full cycles
//   local_marking   the collector's thread traces, in the cache or through it; young collections, and the baseline
// and registers them with its snapshot, which passes on whatever is reachable.
//
// Invariant of every implementation: when mark() returns, all that is reachable from what was added is marked, or was
// written to the SATB log since.
#pragma once

#include <farmem/detail/barriers/word.h>

namespace fm::detail {

class mark_strategy {
 public:
  virtual ~mark_strategy() = default;
  /// The slot is reachable. It belongs to a tablet of the snapshot; it may be added more than once.
  virtual void add(slot_t slot) = 0;
  /// Marks all that was added and what it refers to, and takes what is logged meanwhile. Throws fm::error.
  virtual void mark() = 0;
};

}  // namespace fm::detail
