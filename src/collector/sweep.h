// The part of reclaiming that full cycles and young collections share: weak handles to the dead become null, and the
// words of the dead become free. Dead is what was allocated at the snapshot and is not marked.
//
//   begin    weak cells of the dead get other versions
//   free     one tablet after the other, if find_dead finds any: the words of the dead are free, their frames dropped
//   finish   eviction may copy everything out again
//
// Whether an agent has to forget a freed slot before it is used again is the caller's matter.
//
// Invariants owned here
//   - No weak handle names a slot that may be used again.
//   - The marks are withdrawn from weak handles before any slot is free: an object that gets one must not be judged by
//     them.
//
// Used by full_cycle and young_collection, on the collector's thread, after the final pause.
#pragma once

#include "collector/snapshot.h"
#include <vector>

namespace fm::detail {

class sweep {
 public:
  sweep(object_cache& cache, cycle_report& report, snapshot& of);

  void begin();
  /// Notes the dead slots of marks().tablets()[tablet], and counts them; whether there are any.
  bool find_dead(std::size_t tablet);
  /// Frees them, and returns the slots that can be used again: good until the next call. An object that is being
  /// written or fetched, or is pinned, stays; in a young collection one that is not young any more stays, too.
  const std::vector<slot_page>& free(std::size_t tablet, generation of);
  void finish() noexcept;

 private:
  object_cache& cache_;
  cycle_report& report_;
  snapshot& snapshot_;
  slot_marks& marks_;
  std::vector<std::uint64_t> dead_;  ///< of the tablet that find_dead looked at last
  std::vector<slot_page> freed_;
};

}  // namespace fm::detail
