// The arena: the cache's memory, cut into segments, and the queues that segments move through.
//
//   unbacked -> free -> filling -> filled -> trial | active -> sweeping -> free
//                                     \------------^             \-> writing -> sweeping
//
//   unbacked   address space without memory
//   free       memory that nothing uses; taken last-in-first-out. Objects larger than a segment take a run of these
//              that was released as one, or else a run of unbacked ones, or of both
//   filling    threads bump-allocate in it, each in a piece of its own (shared_segments.h)
//   filled     full, and words into it may be warm. The evictor cools it: every word into it gets its cold bit, before
//              the stamp in cold_stamp. From then on a touch is seen. Threads cool what they fetch by themselves, a piece
//              at a time, and a segment that is cold already enters its queue at once
//   trial      cooled; what was fetched, and is to be used again before it is at the queue's end
//   active     cooled; what was made, or used again, or promoted by luck
//   sweeping   the evictor is at it
//   dead       a collection has freed every frame in it, and it was never cooled: a grace period later it is free
//   writing    what is left in it waits for acknowledgements, or was used and was cooled again: it moves on when that
//              stamp has passed
//
// Invariants
//   - Backed segments never exceed the capacity. It grows at once. It shrinks by what is available: a segment of address
//     space stays, its memory goes.
//   - The queues' lock is taken once per segment, not per object.
//
// frame_space takes and retires segments, the evictor moves them on, and collections note the frames that they freed.
// Which queue the next segment to be swept comes from: policy.h.
#pragma once

#include "cache/frames/policy.h"
#include "os/os.h"
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/frame.h>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace fm::detail {

enum class segment_state : std::uint8_t { unbacked, free, filling, filled, trial, active, sweeping, writing, dead };

/// What a segment is filled with.
enum class fill_kind : std::uint8_t {
  made,     ///< new objects
  fetched,  ///< objects that were remote: they are on trial
  kept,     ///< objects that were used again; the evictor moves them there, cold
};

/// Where the memory of all arenas of the process lies, for detail::is_managed. Entries are added and taken by arenas as
/// they come and go, without a lock. The memory of an abandoned arena keeps its entry.
class arena_ranges {
 public:
  void add(std::uintptr_t begin, std::uintptr_t end) noexcept;
  void remove(std::uintptr_t begin) noexcept;
  [[nodiscard]] bool contains(std::uintptr_t at) const noexcept;

 private:
  struct range {
    std::atomic<std::uintptr_t> begin{0}, end{0};
  };
  range all_[2 * heaps_max];
  std::atomic<std::size_t> used_{0};     ///< entries from here on have never been used
  std::atomic<bool> overflowed_{false};  ///< one arena had no entry
};

struct segment : boost::intrusive::list_base_hook<> {
  std::atomic<std::uint64_t> cold_stamp{0};  ///< epoch stamp of its cooling; 0 while it is not cooled
  std::atomic<std::uint32_t> inflight{0};    ///< frames that a fetch in flight will fill: not to be swept
  std::atomic<std::uint64_t> held_until{0};  ///< epoch of a section that may give a frame its word yet: see end_hold
  std::atomic<std::uint32_t> writing{0};     ///< objects in batches that are not acknowledged
  std::atomic<segment_state> state{segment_state::unbacked};
  std::uint32_t span = 1;    ///< segments in the run; the others of a run stay `filling` without use
  std::uint32_t rounds = 0;  ///< times it was swept, one after the other, without becoming empty
  bool swept = false;        ///< since it was filled
  fill_kind kind = fill_kind::made;
  bool on_trial = false;    ///< what leaves it becomes a ghost
  std::uint64_t used = 0;   ///< end of its last frame, when filling has ended
  std::uint64_t freed = 0;  ///< of those, bytes of frames that collections have freed
  bool noted = false;       ///< in arena::freed_
  // While it is filled: see shared_segments.h, which writes `used` as it cuts.
  std::uint32_t pieces = 0, tails = 0;  ///< that bumps have, and that nobody has
  bool closing = false;
  bool warm = false;                       ///< words into it may be warm: the evictor cools it when it is full
  std::uint64_t filler = 0;                ///< of `used`, bytes of frames that nobody filled
  std::atomic<std::uint32_t> returned{0};  ///< of `used`, bytes of frames whose objects were ghosts
  char* base = nullptr;

  /// In the section that has bumped a frame here: it may be left before the frame has a word.
  void hold() noexcept { inflight.fetch_add(1, std::memory_order_relaxed); }
  /// In another section, which gives the frame its word, or gives the frame up. The segment may have been cooled before
  /// that began, and nothing is swept before it has ended.
  void end_hold() noexcept {
    const std::uint64_t now = epochs::current.load(std::memory_order_seq_cst);
    for (std::uint64_t seen = held_until.load(std::memory_order_relaxed);
         seen < now && !held_until.compare_exchange_weak(seen, now, std::memory_order_relaxed);) {
    }
    inflight.fetch_sub(1, std::memory_order_release);
  }
};

class arena {
 public:
  /// `capacity` bytes of memory at most, in segments of `segment_bytes` (power of two); it may grow to `capacity_most`.
  /// Throws out_of_memory. `dumped`: core dumps have it.
  arena(std::uint64_t capacity, std::uint64_t capacity_most, std::uint64_t segment_bytes, bool dumped);
  ~arena();

  /// All of its address space, and: `give_up` is called before memory of it goes back to the system, by whole segments
  /// that nothing uses. Set before the first take(); called under the queues' lock.
  [[nodiscard]] std::byte* address_space() noexcept { return memory_.base(); }
  [[nodiscard]] std::uint64_t address_space_bytes() const noexcept {
    return static_cast<std::uint64_t>(segments_.size()) << shift_;
  }
  void before_discard(std::function<void(std::byte*, std::uint64_t)> give_up) { before_discard_ = std::move(give_up); }

  /// Takes a run of `span` segments, leaving at least `leave` free; null when there is not enough. O(1) for one
  /// segment.
  segment* take(std::uint32_t span, std::uint32_t leave);
  /// More is on trial than the policy wants: what has been used again leaves room.
  [[nodiscard]] bool trial_overflows() const noexcept {
    return on_trial_.load(std::memory_order_relaxed) > 2 * replacement_policy::trial_target(capacity_segments());
  }
  /// The share of bytes that were used, of what was at active's old end when it was looked at: 0 to 1, a mean over the
  /// last segments.
  [[nodiscard]] double wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  /// A segment of active was looked at for the first time. By the evictor alone.
  void note_wanted(std::uint64_t used_again, std::uint64_t of) noexcept {
    const double share =
        std::min(1.0, static_cast<double>(used_again) / static_cast<double>(std::max<std::uint64_t>(of, 1)));
    const double mean = wanted();
    wanted_.store(mean + (share - mean) / limits::segments_of_wanted, std::memory_order_relaxed);
  }
  /// Ends filling: the segment is filled, and if all words into it are cold, it enters its queue at once. `used` is the
  /// end of the last frame. `promoted`: fetched objects in it are not on trial.
  void retire(segment& s, std::uint64_t used, bool promoted);
  /// Gives an empty segment back and wakes who waits for memory.
  void release(segment& s);

  [[nodiscard]] segment& of(const void* payload) noexcept {
    return segments_[(static_cast<std::size_t>(static_cast<const char*>(payload) - base_)) >> shift_];
  }
  [[nodiscard]] bool contains(const void* p) const noexcept {
    return static_cast<const char*>(p) >= base_ && static_cast<const char*>(p) < base_ + (segments_.size() << shift_);
  }
  [[nodiscard]] std::uint64_t segment_bytes() const noexcept { return std::uint64_t{1} << shift_; }
  [[nodiscard]] std::uint32_t capacity_segments() const noexcept { return capacity_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return std::uint64_t{capacity_segments()} << shift_; }
  [[nodiscard]] std::uint32_t capacity_most() const noexcept { return capacity_most_; }
  /// What the capacity is to become. At most capacity_most. A larger one is there at once; a smaller one when shrink has
  /// been called often enough, and while it is not, eviction goes on.
  void set_capacity(std::uint32_t segments);
  [[nodiscard]] std::uint32_t wanted_capacity() const noexcept {
    return wanted_capacity_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_shrinking() const noexcept { return wanted_capacity() < capacity_segments(); }
  /// Takes what is available beyond `keep` away, as far as the capacity is to shrink. Whether there was any.
  bool shrink(std::uint32_t keep);
  /// The capacity stays what it is by now, if it was to become `segments` still.
  void stop_shrinking(std::uint32_t segments);
  /// Free or not yet backed segments, within the capacity. Wait-free.
  [[nodiscard]] std::uint32_t available() const noexcept { return available_.load(std::memory_order_relaxed); }

  // ---- for the evictor, which is one thread at a time ----
  /// The segment that was filled first, out of its queue, if no frame in flight holds it; it becomes `sweeping`.
  segment* next_to_cool();
  /// Every word into it has been made cold before `stamp`.
  void enter_cooled(segment& s, std::uint64_t stamp);
  /// The oldest of the queue that is to give one up, or else of the other one, that no frame in flight holds and whose
  /// stamp is below `passed_below`; it becomes `sweeping`. `trial_first`: nothing can leave the other queue, perhaps.
  segment* next_to_sweep(std::uint64_t passed_below, bool trial_first);
  /// A stamp at which next_to_sweep, or next_written, would have something; 0 when there is nothing that waits for one.
  std::uint64_t awaited_stamp();
  /// A swept segment that waits for acknowledgements, and for its stamp.
  void enter_writing(segment& s);
  /// A `writing` segment without unacknowledged objects whose stamp is below `passed_below`, back to `sweeping`; null
  /// when there is none.
  segment* next_written(std::uint64_t passed_below);
  /// `writing` segments that wait for their stamp alone: those whose stamp is not below `passed_below`.
  std::uint32_t await_stamp(std::uint64_t passed_below);
  /// To active's young end: it holds objects that could not leave, and are cold since before `stamp`, or warm.
  void enter_active(segment& s, std::uint64_t stamp);

  // ---- for collections; nobody evicts meanwhile ----
  /// The object in this frame is dead, and no word names the frame any more.
  void note_freed(char* payload) noexcept {
    segment& s = of(payload);
    s.freed += frame::total_bytes_of(payload);
    if (!std::exchange(s.noted, true)) freed_.push_back(&s);
  }
  /// Segments of which every frame was noted, and that were never swept, so that no object has moved out of them: they
  /// wait for `stamp`, which is later, and are then to be released by who gets them from next_dead. Whether there are
  /// any.
  bool set_dead_aside(std::uint64_t stamp) noexcept;
  segment* next_dead(std::uint64_t passed_below) noexcept;
  /// The latest stamp that such segments wait for; 0 when there are none. Wait-free.
  [[nodiscard]] std::uint64_t newest_dead() const noexcept { return newest_dead_.load(std::memory_order_relaxed); }

  /// Sleeps until a segment is released or the deadline. Returns false on the deadline.
  bool wait_released(std::uint32_t seen, time_point deadline);
  [[nodiscard]] std::uint32_t release_count() const noexcept { return released_.load(std::memory_order_acquire); }
  void wake_waiters();
  /// Whether somebody waits for a segment to be released. Wait-free.
  [[nodiscard]] bool awaited() const noexcept { return waiters_.load(std::memory_order_relaxed) != 0; }

  struct counts {
    std::uint32_t free, filled, trial, active, writing;  ///< `writing` with segments that wait for a stamp alone
    std::uint32_t backed;                                ///< segments with memory, free or not
  };
  counts queue_lengths();
  /// Of its own records.
  [[nodiscard]] std::uint64_t record_bytes() const noexcept { return segments_.size() * sizeof(segment); }
  /// Visits every segment that holds frames, under the queues' lock. For verify and stats, when nothing moves.
  template <class Visit>
  void for_each(Visit&& visit) {
    const std::lock_guard lock(mutex_);
    for (auto& s : segments_)
      if (s.state.load() != segment_state::unbacked && s.state.load() != segment_state::free) visit(s);
  }

  // ---- for the end, when nobody uses it any more ----
  /// Visits the first segment of every run that holds frames. The others of a run say nothing of themselves.
  template <class Visit>
  void for_each_run(Visit&& visit) const {
    for (std::size_t i = 0; i < segments_.size();) {
      const segment& s = segments_[i];
      const auto state = s.state.load(std::memory_order_relaxed);
      const bool holds = state != segment_state::unbacked && state != segment_state::free;
      if (holds) visit(s);
      i += holds ? s.span : 1;
    }
  }
  /// All memory stays mapped for the rest of the process. What runs hold that are not `in_use` goes back to the system.
  /// Only the destructor may follow.
  template <class InUse>
  void abandon(InUse&& in_use) {
    for_each_run([&](const segment& s) {
      if (!in_use(s)) os::reservation::discard(s.base, std::uint64_t{s.span} << shift_);
    });
    memory_.abandon();
  }

  /// Below this many available segments the heap counts as short of memory (epochs::gate_memory).
  void set_gate_level(std::uint32_t segments) {
    gate_wanted_.store(segments, std::memory_order_relaxed);
    gate_level_.store(segments, std::memory_order_relaxed);
  }
  /// As set_gate_level, later: a level that was given up stays so until it is reached.
  void change_gate_level(std::uint32_t segments);
  /// A level that was given up counts again.
  void rearm_gate_level();
  /// The level cannot be reached now, such as because of pins: the next thread is not to wait for it in vain. It is set
  /// again by the release that reaches it.
  void give_up_gate_level();
  [[nodiscard]] std::uint32_t gate_level() const noexcept { return gate_level_.load(std::memory_order_relaxed); }
  /// Takes this heap out of the count of heaps that are short of memory, for good.
  void leave_gate();

 private:
  using queue = boost::intrusive::list<segment>;

  void discard(char* from, std::uint64_t bytes) noexcept;

  os::reservation memory_;
  std::function<void(std::byte*, std::uint64_t)> before_discard_;
  char* base_ = nullptr;
  int shift_ = 0;
  std::uint32_t capacity_most_ = 0;
  std::atomic<std::uint32_t> capacity_{0};         ///< segments, changed with mutex_ held, as what is wanted
  std::atomic<std::uint32_t> wanted_capacity_{0};  ///< less than capacity_: it shrinks
  std::vector<segment> segments_;
  std::mutex mutex_;
  queue free_, filled_, trial_, active_, writing_, dead_;
  std::atomic<std::uint32_t> on_trial_{0};  ///< segments of the runs in trial_
  std::atomic<double> wanted_{0};           ///< see wanted()
  std::vector<segment*> freed_;             ///< noted since the last set_dead_aside; room for all
  /// Runs that were released one after the other, and have their memory still; some may have been taken apart
  /// meanwhile.
  struct run {
    std::uint32_t first, span;
  };
  std::vector<run> free_runs_;
  segment* take_free_run(std::uint32_t span) noexcept;
  segment* take_any_run(std::uint32_t span);
  segment* take_run(run r);
  void discard_free(std::uint32_t backed_most);
  std::uint32_t backed_ = 0;  ///< segments with memory: everything but unbacked
  std::uint32_t next_unbacked_ = 0;
  std::atomic<std::uint32_t> available_{0};
  std::atomic<std::uint64_t> newest_dead_{0};
  std::atomic<std::uint32_t> released_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<std::uint32_t> gate_level_{0}, gate_wanted_{0};
  bool left_gate_ = false;        ///< for good
  bool short_of_memory_ = false;  ///< counted in the process-wide gate, under the lock
  void update_gate();
  void reach_gate_level();
  void enter(segment& s, segment_state state, queue& to);
  void leave(segment& s, queue& from);
  segment* oldest_passed(queue& from, std::uint64_t passed_below);
};

}  // namespace fm::detail
