// Which agents are to store a tablet, and the next step from those that do: a new member (replication.h), or one less
// (handover.h).
//
//   short of members        a new one joins: the next one of the ring, or, of a heap without replicas, the one with most room
//   a member is leaving     it goes when the set is whole without it; a primary hands over first. A set that has no field
//                           left for one more member is short of one for as long as that takes
//   more members than told  the one on the fullest agent goes
//   no object is in it      agents that stay, and new ones, are its members at once; nothing is copied
//   all sets are whole      an agent that is leaving, and is in none, is left: its heap there is closed
//   agents unevenly full    a member of the fullest joins on the emptiest, and is then one too many (rebalancing)
//   an agent is overloaded  one that is less busy becomes the primary of some of its tablets (rebalancing, too)
//
// A tablet at a time, so that a collection that is wanted has its turn in between.
//
// Rebalancing goes by the memory that agents say is in use, and what was moved from one shows there only after a collection
// and the cleaning behind it. So a round moves what makes two agents equal, and the next one waits for a collection, or for
// an agent that is full. That one need not be a limit for objects of which it is one member among others.
//
// Rebalancing by load (agent_loads.h) moves primaries, since those are what is asked for objects. Room comes first: nothing is
// moved by load that rebalancing by room would move back. Which tablets move is chance: no count says how often
// objects of a tablet are fetched.
//
// Invariant owned here: a set has as many members that stay as it should have before one that is leaving goes, unless it
// has no field for another. Then one at a time goes.
//
// The collector's thread alone calls it, between two collections, outside of sections.
#pragma once

#include "cache/replicas/agent_loads.h"
#include "cache/replicas/handover.h"
#include "cache/replicas/replication.h"
#include "cache/tablets/replica_set.h"
#include <functional>
#include <optional>

namespace fm::detail {

class set_members {
 public:
  /// `stopping`: the heap closes, and nothing is waited for any more.
  set_members(object_cache& cache, const std::atomic<bool>& stopping) noexcept
      : cache_(cache), replication_(cache, stopping), handover_(cache, stopping) {}

  enum class outcome : std::uint8_t {
    settled,   ///< nothing is to be done
    moved,     ///< a step was made; perhaps there are more
    postponed  ///< something is to be done, and cannot be now
  };
  /// One step, for one tablet. Waits for agents. O(tablets).
  outcome step() noexcept;
  /// Agents that have left a set have forgotten the tablet. No collection begins before.
  bool forget_left() noexcept { return handover_.forget_left(); }
  /// A collection has told how full agents are, or one is full, or there is a new one. From any thread.
  void look_at_room() noexcept { room_is_new_.store(true, std::memory_order_relaxed); }
  /// A seam for tests: in place of limits::load_look_every and load_misses_least. From any thread.
  void watch_load(duration every, double misses_least = limits::load_misses_least) noexcept {
    look_at_load_every_.store(every.count(), std::memory_order_relaxed);
    load_misses_least_.store(misses_least, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t looks_at_load() const noexcept { return looks_at_load_.load(std::memory_order_relaxed); }
  /// Who is told of an agent that was left.
  std::function<void(std::uint32_t agent)> on_left;

  std::atomic<std::uint64_t> moved_for_load{0};  ///< tablets
  [[nodiscard]] const replication::counters& joined() const noexcept { return replication_.counts; }
  [[nodiscard]] const handover::counters& moved() const noexcept { return handover_.counts; }

 private:
  enum class mended : std::uint8_t { nothing, done, not_now };
  mended mend(std::uint32_t tablet);
  /// The set as it should be, for a tablet without objects; none if no agent can be its primary.
  [[nodiscard]] std::optional<replica_set> without_leavers(const replica_set& set) const;
  mended take_out(std::uint32_t tablet, const replica_set& set, std::uint32_t member);
  [[nodiscard]] std::uint32_t next_for(const replica_set& set) const;
  [[nodiscard]] std::uint32_t fullest_of(const replica_set& set) const;
  [[nodiscard]] bool stays(std::uint32_t agent) const noexcept;
  [[nodiscard]] double used_share(std::uint32_t agent) const noexcept;
  /// False: one that is leaving is a member of some set yet.
  bool leave_agents();
  bool rebalance();
  bool rebalance_by_room();
  /// The fullest and the emptiest agent, if they are far apart.
  bool find_uneven() noexcept;
  bool rebalance_by_load();
  /// Whether the time for it has come. Then what agents say of their load has been looked at.
  bool look_at_load();
  bool find_overloaded();
  [[nodiscard]] bool may_take_over(const replica_set& set, std::uint32_t from, std::uint32_t to) const;
  /// `to` becomes the tablet's primary, in place of another one. It may have to join before.
  bool move_primary(std::uint32_t tablet, std::uint32_t to);
  /// Whether a tablet of the set may go from one agent to the other without two members in one zone that were in two.
  [[nodiscard]] bool is_apart(const replica_set& set, std::uint32_t from, std::uint32_t to) const;

  object_cache& cache_;
  replication replication_;
  handover handover_;
  std::size_t next_ = 0;  ///< where the search for a tablet goes on
  std::atomic<bool> room_is_new_{false};
  struct {
    std::uint32_t from = 0, to = 0;
    std::uint64_t bytes = 0;  ///< that are still to be moved
  } uneven_;
  agent_loads loads_;
  agent_loads::shift shift_;
  std::uint64_t shift_left_ = 0;  ///< tablets that are still to be moved
  std::atomic<duration::rep> look_at_load_every_{duration(limits::load_look_every).count()};
  std::atomic<double> load_misses_least_{limits::load_misses_least};
  std::atomic<std::uint64_t> looks_at_load_{0};
  time_point looked_at_load_{};
  std::uint64_t misses_then_ = 0;
  double misses_a_second_ = 0;  ///< between the last two looks
};

}  // namespace fm::detail
