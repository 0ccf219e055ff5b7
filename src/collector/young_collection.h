// A collection of young objects. They die without a message and without having been written home, and their slots are
// used again at once. This is the one place that says why that is sound; the files named below keep the conditions.
//
// An object is *young* from its allocation until it, or anything that refers to it, is copied out for the first time.
// The bits are in table/young_bits.h.
//
// Conditions
//   1. A frame that equals its home copy names no young object. So only a root, a pin, a waiting thread or a dirty frame
//      refers to one. The home copy of a dirty frame may name its slot: the slot was used again after the reference was
//      overwritten. No agent follows that copy, since the frame is newer.
//      Write-back keeps this (cache/writeback.cc, cache/young.h): all that a copy refers to ceases to be young before
//      the copy's batch can be acknowledged. Until then the copy's frame is `writing`, so a scan shows it as dirty.
//   2. A page of the table whose card is clean has no dirty frame in any pause. The card is set after a word became
//      dirty, in the same section (farmem/detail/barriers/indirection_table.h). Only scan_cards clears it (cache/collection.cc):
//      before it looks at the page's words, and for good only if none of them is dirty.
//   3. An object that ceases to be young while a young collection marks is logged (young_objects::grew_up). A scan may
//      have shown it as young, and the frame that refers to it as clean a moment later.
//   4. Dead is only what the scan showed as young, and it is freed only if it is young still
//      (collector_view::free_dead).
//
// Proof. Take a young object that is reachable at the snapshot, and the way to it from a root, a pin or a waiting
// thread. If the way leads over young objects only, it begins at a root of this collection. Otherwise let x be the last
// object on it that is not young. It refers to a young one, so by (1) x was dirty in the snapshot's pause, and by (2)
// its card was dirty. Then one of three holds:
//   - The scan finds x dirty still, and takes what it refers to for roots.
//   - x was copied out since the pause. By (1) what it refers to ceased to be young, and by (3) it was logged.
//   - The reference was overwritten since the pause. Its old value is in the SATB log.
// From there on the way leads over young objects. Their frames are all in the cache, and the collector's thread traces
// them.
//
// The model test/model/young.pml checks it for every interleaving of a small heap, and what each step is needed for.
//
// Work: the words of pages with dirty cards, and the young objects that live.
//
// Run by the collector's thread, one collection at a time in a process, between full cycles. A failure frees nothing
// that was not proven dead.
#pragma once

#include "collector/marking/local_marking.h"
#include "collector/snapshot.h"
#include "collector/verify_cycle.h"
#include <memory>
#include <vector>

namespace fm::detail {

class young_collection {
 public:
  young_collection(collector& owner, cycle_report& report);
  young_collection(const young_collection&) = delete;
  young_collection& operator=(const young_collection&) = delete;
  /// Fills the report in. Throws nothing.
  void run() noexcept;

 private:
  void run_steps();
  /// Finds the roots, and what is young.
  void scan();
  void mark();
  void sweep_dead();

  collector& owner_;
  object_cache& cache_;
  cycle_report& report_;
  snapshot snapshot_;
  cycle_verifier verifier_;
  std::vector<bool> lost_;  ///< agents, before it began
  std::unique_ptr<local_marking> marking_;
};

}  // namespace fm::detail
