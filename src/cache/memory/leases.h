// What threads have of their own of a heap: pieces of segments, runs of slots, a staging buffer, fetch records. Each is
// leased, in portions that shrink as the budget is used up, and comes back from threads that do not use it.
//
// Taking back. A thread uses what it leases in sections only, and looks each time at a limit: bump::limit,
// mutator::slot_limit, staging and fetches. Null says that it is not, or perhaps not, its own any more. New objects are
// written outside of sections, where no pause waits for that: the thread says so before it looks at the limit of its
// piece, and until it has entered a section (mutator::writes_new). That counts as a section here.
//
//   a round    sets the limits of the threads that leased longest ago to null; one heavy fence; then it takes all that
//              a thread leases which is outside of every section and whose limits are null still. The others get their
//              limits back
//   a thread   that finds null takes the lock, has what is left restored, and leases anew
//
// A thread may leave its section half way, to wait (section_break.h): it is outside of every section then, and is taken
// from. What it has in hand stays. Its segment counts a frame that it has bumped (segment::inflight). Its waited fetch
// has `posted_at` set from before that, as long as the read comes into the staging buffer; rounds read it after the
// epoch. A fetch record is busy. docs/internals/cache.md has the interleavings.
//
// Invariants owned here
//   - Nobody takes from a thread that may be using what it leases. A section that began before the fence shows in the
//     thread's epoch. One that began after it finds null, and waits for the lock. A limit that a section in between
//     has restored is not null, and is seen to be so.
//   - What all threads lease is at most the budget, a part of the cache (limits::lease_share). When it is used up, a
//     thread gets exactly the frame or the slot that it needs, and nothing is left over to be private.
//   - A limit that is null is set under the lock alone; one that is not, by its thread.
//   - Pieces, tails and fillers change under the lock. It is taken before the arena's, and after a source of slots;
//     with it, a source is only tried.
//
// Allocation, misses and fetches call it when they are out of something; eviction calls it when memory is short.
#pragma once

#include "cache/cache_options.h"
#include "cache/frames/shared_segments.h"
#include "cache/mutator.h"
#include <boost/intrusive/list.hpp>
#include <memory>
#include <mutex>
#include <vector>

namespace fm::detail {

class lease_book {
 public:
  lease_book(object_cache& cache, const cache_options& options);
  ~lease_book();

  /// The thread has come, or come again with what another one has left.
  void begin(mutator& m, thread_state& of) noexcept;
  /// The thread ends.
  void end(mutator& m) noexcept;

  // ---- in sections, when a limit was reached ----
  /// `bytes` for a frame, from a new piece if need be; null when there is no memory. `leave`: see arena::take; `in_turn`:
  /// null, too, if another thread is to have memory first.
  char* room(bump& b, std::uint64_t bytes, std::uint32_t leave, bool in_turn);
  /// A buffer for elastic reads; null when the budget has none.
  std::byte* staging(mutator& m) noexcept;
  /// More records for detached fetches; false when there are no more to be had.
  bool more_fetches(mutator& m) noexcept;
  /// The thread's own slots are its own again, if nobody has taken them. Whether there are any.
  bool restore_slots(mutator& m) noexcept;

  // ---- slots ----
  /// How many slots the thread's next run should have, a power of two; `together`: objects that it is about to make.
  std::uint64_t slots_wanted(mutator& m, std::uint64_t together) noexcept;
  /// They are on offer again. In a section; their source is locked.
  void return_slots(mutator& m) noexcept;
  /// It has a page of free slots, or a run. In a section; the source is locked.
  void lease_slots(mutator& m, const slot_page& free, slot_t first, slot_t end, std::uint64_t filling) noexcept;

  // ---- taking back ----
  /// The thread's own pieces can be evicted.
  void give_back_pieces(mutator& m) noexcept;
  void give_back(bump& b) noexcept;
  /// From all who are outside of sections; and segments that nobody fills enter their queues.
  void take_back_all() noexcept;
  /// Segments that nobody fills enter their queues.
  void close_segments() noexcept;
  /// The pieces of all threads, whatever they do: when nobody may use the heap any more.
  void take_all_pieces() noexcept;
  /// As take_back_all, of pieces alone, if segments are held up by pieces. Whether any of these is not any more. A
  /// round in vain costs a fence: the evictor rests between two of them.
  bool take_back_lingering() noexcept;

  struct counts {
    std::uint64_t bytes = 0;       ///< leased now
    std::uint64_t lessees = 0;     ///< threads that lease
    std::uint64_t taken_back = 0;  ///< times that a thread was taken from
  };
  [[nodiscard]] counts count() noexcept;

  /// All records, whoever has them. Records stay where they are.
  template <class Visit>
  void for_each_fetch(Visit&& visit) {
    const std::lock_guard lock(mutex_);
    for (auto& c : chunks_)
      for (fetch& f : c->records) visit(f);
  }
  template <class Visit>
  void for_each_staging(Visit&& visit) {
    const std::lock_guard lock(mutex_);
    for (auto& s : buffers_) visit(s.get());
  }

  /// Lends all buffers to one more agent, and adds it with `add`: a buffer that is made later is lent to it as to others.
  template <class Lend, class Add>
  void lend_staging(Lend&& lend, Add&& add) {
    const std::lock_guard lock(mutex_);
    for (auto& s : buffers_) lend(s.get());
    add();
  }

 private:
  using lessees = boost::intrusive::list<mutator, boost::intrusive::base_hook<lessee_hook>,
                                         boost::intrusive::constant_time_size<true>>;

  // All with mutex_ held.
  [[nodiscard]] std::uint64_t left() const noexcept;
  std::uint64_t portion(std::uint64_t need) noexcept;
  void account(mutator& m, bool is_newest) noexcept;
  void round_of_idle() noexcept;
  void round(std::size_t at_most, bool only_lingering) noexcept;
  void take_pieces(mutator& m) noexcept;
  bool take(mutator& m) noexcept;
  void end_run(mutator& m) noexcept;
  static void announce(mutator& m) noexcept;
  static bool idle(const mutator& m) noexcept;
  static void restore(mutator& m) noexcept;

  object_cache& cache_;
  std::mutex mutex_;
  shared_segments segments_;
  lessees lessees_;  ///< who leased longest ago comes first
  std::uint64_t leased_ = 0;
  std::size_t threads_ = 0;     ///< that use the heap ...
  std::size_t filling_ = 0;     ///< ... and of those, with pieces
  std::uint64_t leases_ = 0;    ///< made so far ...
  std::uint64_t round_at_ = 0;  ///< ... and when the next round is worth it
  std::uint64_t taken_back_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::vector<std::byte*> free_buffers_;
  std::vector<std::unique_ptr<fetch_chunk>> chunks_;
  std::vector<fetch_chunk*> free_chunks_;
};

}  // namespace fm::detail
