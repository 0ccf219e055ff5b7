// Taking members out of replica sets while they live: a backup is dropped, and a primary hands the tablet over to a backup
// that has everything. Draining, rebalancing and fewer replicas are made of these and of new members (replication.h).
//
// Handing over. It is the promotion of rehoming.h, with an old primary that goes on answering. So the tablet is closed to
// those who would ask it; who wants an object of the tablet waits until it is open again, and nobody else notices.
//   1  The tablet is closed (tablet_info::handovers is odd). Nothing of it is copied out from then on.
//   2  Every batch that the old primary was sent is settled, at all of its members. Until then an answer of the new one can
//      be older than what it is about to be sent, and would hide the newer copy as a hint.
//   3  Who reads at home has ended: who looked before has installed what it read. Threads that wait for this tablet inside
//      of sections read nothing.
//   4  Addresses leave words and clean frames (address_sweep.h). A fetch that a word names is waited for.
//   5  The backup is told that it is the primary.
//   6  The set is stored with it as the primary, and without the old one; the tablet is open.
//   7  The old primary is told to forget the tablet.
// Until step 5 everything can be taken back by opening the tablet again: words that hold no address cost a question.
//
// A tablet without objects needs none of this (renew). Its slots are withdrawn from their source first, so that nothing is
// made in it. No word of it holds an address, and no batch names it: a slot is free when all members have released it.
//
// Invariant owned here: no collection begins while two agents may take themselves for the primary of a tablet
// (forget_left): each would take references to its objects for its own, and the other's would be freed.
//
// The collector's thread alone calls it, between two collections, outside of sections.
#pragma once

#include "cache/replicas/address_sweep.h"
#include "cache/tablets/replica_set.h"
#include <cstdint>
#include <vector>

namespace fm::detail {

class handover {
 public:
  handover(object_cache& cache, const std::atomic<bool>& stopping) noexcept : cache_(cache), sweep_(cache, stopping) {}

  /// `to`, a backup that has everything, becomes the primary, and the agent that was is no member any more. False: nothing
  /// has changed, but that `to` is no member any more if it did not answer. Throws bad_alloc; then the same.
  bool run(std::uint32_t tablet, std::uint32_t to);
  /// The backup is no member any more. Throws bad_alloc before anything has changed.
  void drop(std::uint32_t tablet, std::uint32_t backup);
  enum class renewed : std::uint8_t {
    in_use,  ///< an object is in the tablet, and nothing has changed
    failed,  ///< not all of the new members have answered: the set has those that have, or is what it was
    done
  };
  /// If no object is in the tablet, these are its members from now on, and nothing is copied. Throws bad_alloc; then it is
  /// as after a failure.
  renewed renew(std::uint32_t tablet, const replica_set& next);
  /// Agents that were members forget what they had. False: some have not answered yet. O(tablets that were left).
  bool forget_left() noexcept;

  struct counters {
    std::atomic<std::uint64_t> handed_over{0}, dropped{0}, renewed{0}, failed{0};
  } counts;

 private:
  struct leaver {
    std::uint32_t tablet, agent;
    std::uint64_t batch;  ///< the last one that can name the tablet there
  };
  bool hand_over(std::uint32_t tablet, std::uint32_t to);
  // Each of these adds to left_ at most once, where room for it has been reserved.
  /// False. The agent is no member any more: it may have taken the tablet over all the same.
  bool refused(std::uint32_t tablet, std::uint32_t by, errc why) noexcept;
  /// It knows that it is the primary. The last batch that can name the tablet at the old one, which is no member any more.
  /// Throws bad_alloc; then the new one is none.
  std::uint64_t make_primary(std::uint32_t tablet, std::uint32_t to);
  void take_out(std::uint32_t tablet, std::uint32_t member) noexcept;
  bool settle(std::uint32_t agent, duration within) noexcept;
  bool forget_addresses(std::uint32_t tablet);
  bool forgets(const leaver& l) noexcept;

  object_cache& cache_;
  address_sweep sweep_;
  std::vector<leaver> left_;
  std::uint32_t in_vain_ = 0;  ///< handovers in a row that waited too long for sections
};

}  // namespace fm::detail
