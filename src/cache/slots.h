// Where slots come from: the tablets that the agents have granted, the pages of slots whose objects died, and the runs
// that threads take from both.
//
// Invariants owned here
//   - A slot is allocated from the section that takes it from a thread's run and publishes its word. So in a pause
//     every slot of the heap's tablets is allocated, or free: in a run, in a page of free slots, or in a tablet's rest.
//   - A slot is on offer once at most: in one agent's source, or in one thread's run.
//
// Allocation refills runs, the collector returns slots and holds the sources still for its snapshot, and the heap asks
// for the tablets.
#pragma once

#include "base/growing_list.h"
#include "base/replica_limits.h"
#include "cache/tablets/placement.h"
#include "cache/tablets/slot_marks.h"
#include "cache/tablets/tablet_home.h"
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace fm::detail {

class object_cache;
class replica_set;
class mutator;
class mutator_list;

class slot_sources {
 public:
  explicit slot_sources(object_cache& cache) noexcept : cache_(cache) {}
  /// A source for one more of the heap's agents, before anybody can see that. Throws bad_alloc.
  void add_agent();

  /// Gives the thread a run of slots. May wait for an agent to grant tablets, so outside of sections when avoidable.
  /// Throws agent_lost, agent_full, quota_exceeded, slots_exhausted.
  /// `together`: objects that the thread is about to make. It may have a run already.
  void refill(mutator& m, std::uint64_t together);
  /// The thread has a slot, or gets the next of those that it has leased. In the section that takes it.
  bool next_run(mutator& m) noexcept;
  /// Free slots of an agent that is lost go back: nothing new is placed there.
  void leave_lost(mutator& m);
  /// The objects of the thread's run have become larger than those before: together they are too much for one agent. In
  /// a section.
  [[nodiscard]] bool outgrew_run(const mutator& m) const noexcept;
  /// The rest of the thread's run goes back. Outside of sections.
  void leave_run(mutator& m);
  /// Tablets of an agent that is lost; there will be no others.
  [[nodiscard]] std::vector<std::uint32_t> tablets_of(std::uint32_t lost_agent);
  /// The tablets have other primaries from now on, which are no backups any more. Agents that are lost are no members any
  /// more. Their free slots stay with `from`, which allocates nothing, until move_tablets is called. O(tablets).
  void name_primaries(std::uint32_t from, std::span<const tablet_move> moves);
  /// The same, and free slots of tablets that are not those of `from` any more are on offer at their primaries. Without
  /// memory for that, the next collection finds that there are no objects. O(tablets + free pages).
  /// Objects that were copied out before are in batches of at most the number that is returned.
  std::uint64_t move_tablets(std::uint32_t from, std::span<const tablet_move> moves);
  /// The thread's run and its free slots are on offer again, with the lock of leases.h. False: they stay for now,
  /// because the source is in use.
  bool take_back(mutator& m) noexcept;
  /// The same, with the source locked, too, and room made in it.
  void offer(mutator& m) noexcept;
  /// These slots may be allocated again: their agent has forgotten them, or never heard of them.
  void return_slots(std::uint32_t agent, std::span<const slot_page> pages);
  /// All slots of the tablet, which nobody can allocate then until they are returned; none if one of them is not free. By
  /// the collector's thread, between two collections. Throws bad_alloc; then the same.
  [[nodiscard]] std::vector<slot_page> withdraw(std::uint32_t tablet);
  /// What withdraw gave is on offer at the tablet's primary, and is allocated last. Without memory for that, the next
  /// collection finds that there are no objects. By the same thread.
  void return_unused(std::span<const slot_page> pages) noexcept;
  /// Tablets of a heap that another process has stored, with their sets, before anybody uses this one. All of their slots
  /// count as allocated: the first collection finds those that are free. Throws slots_exhausted.
  void adopt(std::uint32_t first, std::uint32_t count, const replica_set& set);
  /// Tablets in use.
  [[nodiscard]] std::vector<std::uint32_t> tablets() const;

  /// The agent has too much to do, or not any more: it gets fewer new objects. Thread-safe.
  void set_overloaded(std::uint32_t agent, bool is) noexcept {
    const std::lock_guard lock(placement_mutex_);
    placement_.set_overloaded(agent, is);
  }

  /// The heap closes: nobody finds it by its slots from now on ...
  void disown() noexcept;
  /// ... and when nobody uses its words any more, the numbers of its tablets may be another heap's.
  void give_back() noexcept;

 private:
  friend class slot_hold;
  void take_run(mutator& m, std::uint64_t together);
  /// The agent that the next new objects, so many bytes, go to: by free room, so that agents of different sizes are full
  /// together. None: there is one alone, or all are full.
  std::optional<std::uint32_t> place(std::uint64_t bytes) noexcept;
  /// It got so many bytes more, or fewer.
  void charge(std::uint32_t agent, std::int64_t bytes) noexcept;
  /// The thread has a run of the agent's, on which `most` bytes are to be placed at most.
  void begin_run(mutator& m, std::uint32_t agent, std::uint64_t expected, std::uint64_t most) noexcept;
  /// Its run has ended: corrects what was expected of it.
  void settle_run(mutator& m) noexcept;
  std::optional<slot_t> slot_of_run(mutator& m) noexcept;
  /// Bytes that are placed on an agent by one run at most.
  [[nodiscard]] std::uint64_t run_bytes_most() const noexcept;
  /// Makes agents the backups of tablets that are about to be granted to the primary: as many as there are.
  void grant_backups(std::uint32_t primary, std::uint32_t first, std::uint32_t count) noexcept;
  void set_dumped(std::uint32_t first, std::uint32_t count) const noexcept;
  struct slot_source;
  std::uint64_t store_primaries(std::span<const tablet_move> moves);
  static void make_room(slot_source& source);
  static void end_first_use(slot_source& source) noexcept;
  static void offer_page(slot_source& source, const slot_page& page) noexcept;
  static slot_page take_page(slot_source& source, std::uint64_t slots);

  struct slot_source {
    slot_t next = 0, end = 0;           ///< of the tablet that is being used for the first time
    std::vector<slot_page> free_pages;  ///< slots whose objects died
    std::mutex mutex;
  };
  object_cache& cache_;
  growing_list<slot_source> sources_{limits::agents_max};  ///< one per agent
  std::mutex placement_mutex_;                             ///< no other lock is taken with it
  placement placement_;
  mutable std::mutex tablets_mutex_;
  std::vector<std::uint32_t> tablets_;
};

/// Holds the sources of slots still, so that a pause can tell what is allocated. Waits for threads that are being
/// granted tablets.
class slot_hold {
 public:
  slot_hold(slot_sources& sources, mutator_list& mutators);
  ~slot_hold();
  slot_hold(const slot_hold&) = delete;
  slot_hold& operator=(const slot_hold&) = delete;

  /// In a pause: notes the threads' runs. O(threads).
  void note_runs() noexcept;
  /// Afterwards: everything of the tablets is allocated except what was free. With `only_dirty`, of the tablets that
  /// have a dirty card (collector_view::has_dirty_card).
  [[nodiscard]] std::unique_ptr<slot_marks> allocated(bool only_dirty = false);

 private:
  mutator_list& mutators_;
  std::vector<std::unique_lock<std::mutex>> locks_;
  std::vector<std::uint32_t> tablets_;
  std::vector<slot_page> free_pages_;
  struct run {
    slot_t first, end;
  };
  std::vector<run> free_runs_;
};

}  // namespace fm::detail
