// What becomes of the tablets of an agent that is lost. Where it was a backup, the set goes on without it. Where it was the
// primary, the first live backup takes its place: promotion. A tablet without a backup gets a new agent among those that
// are left, and that is re-homing: resident objects become dirty and go there by ordinary write-back, and every other
// object of it is lost (losses.h).
//
// Promotion. No thread sees an error; those that want an object of the tablet wait for step 5 (lost_agents::await_replica).
//   1  The loss is final, as in step 1 below. Every batch that was to go to the lost agent is settled, at all of its members
//      (evictor::end_batches). Until then an answer of the new primary can be older than what it is about to be sent: as a
//      hint it would hide the newer copy.
//   2  The backup is told that it is the primary.
//   3  Who reads at home has ended: whoever looked at the session before it was lost has installed what it read, or has
//      failed. Threads that wait inside of sections for the promotion itself read nothing (reading_nothing).
//   4  Hints become unknown, and so do the home addresses of clean frames, which stay clean: eviction forgets them, and the
//      next access asks by slot. A page at a time, while eviction is held back: it takes addresses from frames to words.
//   5  The tablets name their new primaries: at once those that threads wait for, which are swept first
//      (promotion_queue.h), and together all others. Nobody can put an address of the old agent anywhere since step 3: who
//      brings neighbours of an object, of other tablets perhaps, looks at the session again before it installs them.
// A pause is not needed: no slot is lost, so nobody has to tell which ones are in use.
// Tablets of all lost agents are promoted before one is re-homed: the pause of that waits for sections in which a thread
// may be waiting for a promotion. A backup that does not answer holds up the tablets that only it can take.
//
// Re-homing. The order, and what each step is for
//   1  The loss is final: the session has ended, so nobody posts to the agent again (agent_session::lost).
//   2  The agent's batches end as failed (evictor::end_batches). A late acknowledgement would make an object clean,
//      with an address of the old agent under the new one.
//   3  Survivors grant the tablets. One whose answer did not come may have granted them, and is asked again and no
//      other: two agents that hold one tablet would each take references to it for their own.
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

#include "cache/replicas/address_sweep.h"
#include "cache/tablets/placement.h"
#include "cache/tablets/slot_marks.h"
#include "cache/tablets/tablet_home.h"
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
    std::uint64_t tablets, promoted, lost_objects;  ///< `promoted` of the tablets were taken over with all objects
  };
  bool again = false;      ///< tablets are left without an agent, and survivors may take them later
  std::vector<from> left;  ///< agents that have no tablets any more
};

class rehoming {
 public:
  /// `stopping`: the heap closes, and nothing is waited for any more.
  rehoming(object_cache& cache, const std::atomic<bool>& stopping) noexcept : cache_(cache), sweep_(cache, stopping) {}
  /// Leaves all agents that are lost, as far as survivors take their tablets. Waits for answers, and for sections.
  rehomed run() noexcept;

 private:
  /// Its tablets that have a live backup are that one's. False when it is to be tried again.
  bool take_over(std::uint32_t agent);
  /// Those that have none are a survivor's.
  bool leave(std::uint32_t agent, rehomed& out);
  /// The sets that it is a backup of go on without it.
  void leave_sets(std::uint32_t agent);
  /// Of its tablets that have a live backup; false when it is to be tried again. Adds up how many.
  bool promote(std::uint32_t agent, std::uint64_t& tablets);
  [[nodiscard]] std::vector<tablet_move> promotions(std::uint32_t agent);
  bool find_homes(std::uint32_t agent);
  bool find_home(std::uint32_t agent, tablet_move& m);
  std::unique_ptr<slot_marks> stop_threads();
  std::uint64_t sweep_tablet(std::uint32_t agent, std::uint32_t tablet, const slot_marks& allocated);
  /// False when the word belongs to a fetch.
  static bool sweep_word(slot_t slot, bool& gone) noexcept;

  object_cache& cache_;
  address_sweep sweep_;
  std::map<std::uint32_t, std::vector<tablet_move>> moves_;  ///< by the agent that is being left
  std::map<std::uint32_t, std::uint64_t> promoted_;          ///< tablets, by the agent that is being left
  std::vector<bool> left_;                                   ///< by agent
  placement homes_;                                          ///< survivors get tablets by room
};

}  // namespace fm::detail
