// Frames for objects: where threads bump-allocate them, how one moves, and how much memory stays in reserve.
//
// Invariants owned here
//   - A frame between `base + 8` and `used` of its segment has a prefix that says how long it is, from bump_frame on:
//     sweeps walk over it whether or not it was ever installed.
//   - A frame is bumped, and its word published, in one section, or in one that begins before another thread can take
//     the piece (bump_leased). So its thread may lose the piece that it lies in
//     (leases.h), but the segment is not swept before the section has ended. If the section is left in between, the
//     segment counts the frame as being fetched (segment::inflight) from before that until after it was entered again.
//     A read into the frame prolongs that to its own end. The segment is not swept before the section has ended in
//     which the count ends (segment::end_hold).
//   - A frame moves only while the caller owns its word (busy, or in a pause), and never while it is pinned.
//
// The other parts of the cache and the evictor call it.
#pragma once

#include "cache/cache_options.h"
#include "cache/frames/arena.h"
#include "cache/mutator.h"
#include <algorithm>
#include <mutex>

namespace fm::detail {

class frame_space {
 public:
  /// Throws invalid_argument when the capacity is less than 8 segments, and out_of_memory.
  frame_space(object_cache& cache, const cache_options& options);

  arena& memory() noexcept { return arena_; }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return arena_.capacity_bytes(); }
  /// What it is to become.
  [[nodiscard]] std::uint64_t wanted_bytes() const noexcept {
    return arena_.wanted_capacity() * arena_.segment_bytes();
  }
  /// Segments that are left for misses inside sections that cannot wait.
  [[nodiscard]] std::uint32_t reserve() const noexcept { return reserve_.load(std::memory_order_relaxed); }
  /// Segments that are left by what is new: the reserve, and the readers' share. Dirty frames cannot leave while an agent
  /// refuses what is written back, and clean ones must have somewhere to go then.
  /// The least share is kept only then: a cache of few segments has none to spare.
  [[nodiscard]] std::uint32_t reserve_of_new() const noexcept {
    const std::uint32_t share = arena_.capacity_segments() / limits::read_share;
    return reserve() + (keeps_for_reads() ? std::max(limits::read_segments_min, share) : share);
  }
  /// Segments that are left by what is read. While an agent refuses, clean frames go round in the readers' share and in a
  /// part of the reserve, as it was before: threads that come later make it no larger than what dirty frames have left.
  [[nodiscard]] std::uint32_t reserve_of_reads() const noexcept {
    if (!keeps_for_reads()) return reserve();
    const std::uint32_t all = reserve_before_.load(std::memory_order_relaxed);
    return std::min(all / 2, all - std::min(all, span_most()));
  }
  [[nodiscard]] bool keeps_for_reads() const noexcept { return refusing_.load(std::memory_order_relaxed) != 0; }
  /// An agent refuses from now on what is written back, or has ended to. Each begins before it ends.
  void note_refusing(bool begins) noexcept;
  /// So many threads use the heap, and of these so many fill pieces now: each may need room inside a section that cannot
  /// wait.
  void expect_threads(std::size_t threads, std::size_t filling) noexcept;
  /// The arena has another capacity.
  void note_capacity() noexcept;
  /// Objects of that size are used: a user's section begins only with room for one of them, until the cache has turned
  /// over without one.
  void expect_large(std::uint64_t payload_bytes) noexcept;
  /// Segments that the largest of them takes.
  [[nodiscard]] std::uint32_t span_most() const noexcept { return span_most_.load(std::memory_order_relaxed); }
  /// Segments that a frame of that size may take, at most.
  [[nodiscard]] std::uint32_t span_of(std::uint64_t payload_bytes) const noexcept {
    return static_cast<std::uint32_t>((frame::total_bytes(payload_bytes) + 8) / arena_.segment_bytes() + 1);
  }

  /// A frame in `b`, leasing pieces as needed; null when there is no memory, or when it is another thread's turn to get
  /// some (pressure.h): who makes room (fill_kind::kept), or cannot queue, need not be in turn. Sets the shape. In a
  /// section, or a pause.
  char* bump_frame(bump& b, std::uint64_t payload_bytes, std::uint32_t leave, bool in_turn = true);
  /// The same from what the thread leases already: null when that is not enough. Between mutator::begin_new and
  /// end_new, without a section: the piece is the thread's meanwhile, so its segment is in no queue.
  char* bump_leased(bump& b, std::uint64_t payload_bytes) noexcept;
  /// Takes back the frame that bump_frame gave last, or leaves it dead.
  void unbump(bump& b, char* payload) noexcept;
  /// Lets a run for a large object enter its queue, once its frame is published.
  void settle(bump& b) noexcept {
    if (b.large) [[unlikely]]
      settle_large(b);
  }
  /// An access to a cold object, the first since it was cooled: it becomes warm. `seen` is cold and not busy. In a
  /// section.
  void touch(mutator& m, std::atomic<word_t>& word, word_t seen);
  /// Makes cold what was fetched into the piece, but for what is on its way: then the evictor cools the segment. In a
  /// section, or a pause.
  static void cool(piece& p) noexcept;
  enum class relocated : std::uint8_t { moved, touched, no_memory };
  /// Moves the object of a word that is cold since a grace period and unpinned, and stays cold, to a frame of `to`.
  /// `seen` is not busy; touched: it is warm, or busy, by now. In a section of the evictor.
  relocated relocate(std::atomic<word_t>& word, word_t seen, bump& to, std::uint32_t leave);
  /// Moves bytes, prefix and flags to `to`; the caller owns the word exclusively and publishes it.
  void move_frame(char* from, char* to) noexcept;

 private:
  /// The cold half of bump_frame: where the frame begins.
  char* room_for(bump& b, std::uint64_t total, std::uint32_t leave, bool in_turn);
  void settle_large(bump& b) noexcept;
  void reserve_for_threads() noexcept;
  void set_reserve() noexcept;
  /// Below so many available segments a user's section waits before it begins. Those that only read go round in less
  /// while an agent refuses: they would wait there for what does not come.
  [[nodiscard]] std::uint32_t wanted_at_gate() const noexcept { return reserve_of_reads(); }

  object_cache& cache_;
  arena arena_;
  std::mutex reserve_mutex_;
  std::size_t threads_ = 0, filling_ = 0;          ///< see expect_threads, under the lock
  std::uint32_t for_threads_ = 0, for_large_ = 0;  ///< parts of the reserve, under the lock
  std::uint32_t at_gate_ = 0;                      ///< wanted_at_gate that the arena knows, under the lock
  std::atomic<std::uint32_t> large_until_{0};      ///< arena::release_count at which for_large_ ends
  std::atomic<bool> expects_large_{false};
  std::atomic<std::uint32_t> reserve_{1};
  std::atomic<std::uint32_t> reserve_before_{1};  ///< the least since an agent began to refuse
  std::atomic<std::uint32_t> span_most_{1};
  std::atomic<std::uint32_t> refusing_{0};  ///< agents
};

}  // namespace fm::detail
