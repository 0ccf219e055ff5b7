// Re-homing: the tablets of an agent that is lost get new agents among those that are left. Resident objects become dirty
// and go to their new home by ordinary write-back; every other object of these tablets is lost (losses.h).
//
// The order, and what each step is for
//   1  The loss is final: the session has ended, so nobody posts to the agent again (agent_session::lost).
//   2  Survivors grant the tablets. One whose answer did not come may have granted them, and is asked again and no
//      other: two agents that hold one tablet would each take references to it for their own.
//   3  The agent's batches end as failed (evictor::end_batches). A late acknowledgement would make an object clean,
//      with an address of the old agent under the new one.
//   4  A pause. Whoever looked at the session before it was lost has left its section; whoever looks from now on posts
//      nothing, and puts no hint anywhere. The pause also tells which slots are free.
//   5  Every word of the tablets is looked at: hints become unknown, and their objects are lost; clean frames become
//      dirty. A word that says `fetching` is waited for: its fetch may put the old hint back, or succeed late.
//   6  Only then do the tablets name their new agents, all at once: a neighbour that came from the old agent is
//      installed while its fetch's own word says `fetching`, so none is left when step 5 has ended.
//
// Words hold regions and generations of their tablet's agent, so a hint that survived could name another object's bytes
// at the new one, or an old copy of the very slot. The sweep of step 5 costs 512 KiB of words a tablet, once a loss. An
// owner's own numbering of regions would spare it, at the price of another load on each miss.
//
// Invariants owned here
//   - A tablet names a new agent only when no word of it names an address of the old one, and nobody is left who could
//     put one there.
//   - No collection runs meanwhile: marking fixes the tablets' agents at its beginning.
//
// The collector's thread alone calls it, between two collections, outside of sections.
#pragma once

#include "placement.h"
#include "slot_marks.h"
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fm::detail {

class object_cache;

/// What an attempt came to.
struct rehomed {
  struct from {
    std::uint32_t number;  ///< of the heap's agents
    std::string agent;
    std::uint64_t tablets, lost_objects;
  };
  bool again = false;      ///< tablets are left without an agent, and survivors may take them later
  std::vector<from> left;  ///< agents that have no tablets any more
};

/// Tablets that go to one agent.
struct tablet_move {
  static constexpr std::uint32_t nobody = ~0u;
  std::uint32_t first, count;
  std::uint32_t to = nobody;
  bool granted = false;
};

class rehoming {
 public:
  /// `stopping`: the heap closes, and nothing is waited for any more.
  rehoming(object_cache& cache, const std::atomic<bool>& stopping) noexcept : cache_(cache), stopping_(stopping) {}
  /// Leaves all agents that are lost, as far as survivors take their tablets. Waits for answers, and for sections.
  rehomed run() noexcept;

 private:
  bool leave(std::uint32_t agent, rehomed& out);
  bool find_homes(std::uint32_t agent);
  bool find_home(std::uint32_t agent, tablet_move& m);
  std::unique_ptr<slot_marks> stop_threads();
  void open_pages_aside(std::uint32_t agent);
  std::uint64_t sweep_tablet(std::uint32_t agent, std::uint32_t tablet, const slot_marks& allocated);
  /// False when the word belongs to a fetch.
  static bool sweep_word(slot_t slot, bool& gone) noexcept;
  void await_fetch(slot_t slot) noexcept;

  [[nodiscard]] bool ends() const noexcept;

  object_cache& cache_;
  const std::atomic<bool>& stopping_;
  std::map<std::uint32_t, std::vector<tablet_move>> moves_;  ///< by the agent that is being left
  std::vector<bool> left_;                                   ///< by agent
  placement homes_;                                          ///< survivors get tablets by room
};

}  // namespace fm::detail
