// A full cycle, from the snapshot to the return of slots. Every object of the heap that was unreachable at the snapshot
// dies.
//
//   snapshot   pause: the SATB log is on; what is allocated is noted (snapshot.h)
//   scan       beside the program: roots, and frames that are dirty or being written. The agents hear of these, and may
//              trace only then
//   mark       by the agents, or by this node (agent_marking.h, local_marking.h)
//   final      marks are read; pause: what was logged and is not marked keeps marking going, otherwise marking ends
//   sweep      words of the dead are free, frames dropped, weak cells null (sweep.h); the agents forget the slots, and
//              only then may they be used again
//
// Soundness: nobody reads a reference field older than the snapshot. A frame that is dirty, or may be, is traced by the
// owner, which tells the agents so before they trace. A frame or home copy that is newer than the snapshot is fine,
// because what was overwritten since is in the SATB log.
//
// Invariant owned here: every slot whose home copy may be older than the snapshot is noted as dirty, and its agent
// knows, before anybody traces. A slot that is not noted was clean, and not being written, at a moment after the
// snapshot: its home copy is what its frame was then, or newer.
//
// A failure ends the cycle and nothing else: the marks are thrown away, and nothing is freed that was not proven dead.
// Run by the collector's thread, one at a time in a process. Evacuation follows it (evacuation.h).
#pragma once

#include "collector/cycle_agents.h"
#include "collector/marking/agent_marking.h"
#include "collector/marking/local_marking.h"
#include "collector/snapshot.h"
#include "collector/verify_cycle.h"
#include <memory>
#include <span>
#include <vector>

namespace fm::detail {

class full_cycle {
 public:
  full_cycle(collector& owner, cycle_report& report);
  full_cycle(const full_cycle&) = delete;
  full_cycle& operator=(const full_cycle&) = delete;
  /// Fills the report in. Throws nothing.
  void run() noexcept;

 private:
  void run_steps();
  /// Finds the roots and what is dirty, and chooses who marks.
  void scan();
  void sweep_dead();
  /// The agent forgets the slots.
  void release(const cycle_agents::agent& a, const std::vector<slot_page>& freed);
  void release_at_backups(std::span<const protocol::slot_bits> pages);

  collector& owner_;
  object_cache& cache_;
  cycle_report& report_;
  const tracing who_;
  snapshot snapshot_;
  cycle_agents agents_;
  cycle_verifier verifier_;
  std::unique_ptr<slot_marks> second_marks_;     ///< with tracing::both
  std::unique_ptr<local_marking> by_this_node_;  ///< unless only the agents trace
  std::unique_ptr<agent_marking> by_agents_;     ///< unless only this node traces
};

}  // namespace fm::detail
