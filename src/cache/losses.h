// What the loss of an agent means to the cache: whose tablets wait for a new home, and which objects are gone for good.
//
// States of an agent, as the cache sees it
//   fine      its session lives
//   stranded  its session has ended for good (agent_session::lost), and its tablets still name it: what is resident is
//             used as ever, everything else of them answers agent_lost at once, and nothing new is placed there
//   left      its tablets have other agents (rehoming.h); nobody asks it anything again, even if it answers
//
// An access to a stranded tablet that has a backup does not fail: it waits until the backup is the primary. So does one
// to a tablet that is being handed over.
//
// Invariant owned here: an object that is neither resident nor stored at its tablet's agent is on the list of the lost
// until a collection has found it dead. The list is the owner's, and not the new agent's: it costs one bit a slot of
// lost tablets, no message asks for it, and a page of the table that was given back forgets no loss.
//
// Misses and allocation ask; the sessions tell of a loss; rehoming lists what is lost; the collector strikes out what
// it frees.
#pragma once

#include "base/replica_limits.h"
#include "cache/tablets/slot_marks.h"
#include "cache/tablets/tablet_home.h"
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

namespace fm::detail {

class object_cache;

class lost_agents {
 public:
  explicit lost_agents(object_cache& cache) noexcept : cache_(cache) {}

  /// The tablet's agent is lost, and no other has it yet.
  [[nodiscard]] bool stranded(slot_t slot) const noexcept;
  /// Whether another agent that lives stores the slot's object, too. O(1).
  [[nodiscard]] bool has_replica(slot_t slot) const noexcept;
  /// An access failed that saw the slot's tablet at `home`. If its agent is lost, and a replica is left, or if the tablet
  /// is being handed over, waits until the slot has a home, outside of sections where it can: true. False: the access has
  /// failed for good, or it takes too long. Throws heap_closed.
  bool await_home(slot_t slot, const tablet_home& home);
  /// An agent is lost, and re-homing is to hear of it. From any thread.
  void note_loss() noexcept { noted_.fetch_add(1, std::memory_order_acq_rel); }
  /// Re-homing looks at all agents now. By the collector's thread.
  void begin_look() noexcept { looked_at_ = noted_.load(std::memory_order_acquire); }
  /// Re-homing is to look again: what else the collector's thread does is to be given up. By that thread.
  [[nodiscard]] bool is_look_due() const noexcept { return noted_.load(std::memory_order_relaxed) != looked_at_; }
  /// Tablets have other agents: those who wait look again.
  void note_moved() noexcept;
  /// A tablet that a thread waits for in await_home, each time it is noted: a hint which is to be next. Wait-free.
  [[nodiscard]] std::optional<std::uint32_t> take_awaited() noexcept;
  /// Whether each object that the agent stores is on another agent that answers. O(tablets).
  [[nodiscard]] bool is_replaceable(std::uint32_t agent) const noexcept;
  /// Tablets that fewer agents store than cache_options::replicas says. O(tablets).
  [[nodiscard]] std::uint64_t degraded_tablets() const;
  /// An agent is left that could take tablets.
  [[nodiscard]] bool survivors() const noexcept;
  /// Throws agent_lost, with the name of the agent that had it, if the object is gone for good. O(1).
  void check(slot_t slot);

  /// No agent is left, and a clean object becomes dirty, which can never be stored: false when such frames take
  /// capacity / stranded_share of the cache already.
  [[nodiscard]] bool may_change(slot_t slot) const noexcept;
  /// It has become dirty: counted if its agent is lost. Each thread may exceed the limit by the frame that it changes.
  void note_changed(slot_t slot, char* payload) noexcept;

  /// These slots of a tablet held objects that `agent` took along. By the collector's thread.
  void add(std::uint32_t tablet, std::uint32_t agent, std::span<const std::uint64_t, slot_marks::tablet_words> slots);
  /// The slot is free: what was lost there is dead. O(1).
  void forget(slot_t slot) noexcept;

  /// Objects that are gone for good, and not found dead yet.
  [[nodiscard]] std::uint64_t objects() const noexcept { return objects_.load(std::memory_order_acquire); }

 private:
  struct lost_bits {
    std::uint32_t agent = 0;  ///< that had them last
    std::uint64_t count = 0;
    std::array<std::uint64_t, slot_marks::tablet_words> bits{};
  };
  object_cache& cache_;
  std::atomic<std::uint32_t> noted_{0};  ///< losses
  std::uint32_t looked_at_ = 0;          ///< of noted_; the collector's thread's
  std::atomic<std::uint32_t> moved_{0};  ///< how often tablets got other agents; futex
  /// Tablets that are waited for, each at a place of its number, as the number and one: one may hide another until the
  /// other's thread looks again.
  std::array<std::atomic<std::uint32_t>, limits::awaited_tablets> awaited_{};
  std::atomic<std::uint64_t> objects_{0};
  std::atomic<std::uint64_t> changed_bytes_{0};  ///< of frames that became dirty when no agent was left
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::unique_ptr<lost_bits>> tablets_;
};

}  // namespace fm::detail
