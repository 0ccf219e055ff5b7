// Detached fetches: posted and left alone, for prefetching and for objects that a thread awaits. They complete in
// whichever thread polls.
//
// Invariants owned here
//   - The record and the frame belong to the fetch until its request is done, whatever has become of whoever asked for
//     it.
//   - A fetch holds its segment by segment::inflight, so that no sweep walks over a frame that is just being written.
//   - It holds a region's retirement by fetch::posted_at: from posting to installing counts as one section.
//
// Prefetches (src/heap/prefetch.cc), coroutines (src/tasks/run.cc) and the collector's own tracing call it.
#pragma once

#include "cache/mutator.h"
#include "cache/tablets/tablet_home.h"
#include <array>
#include <utility>

namespace fm::detail {

class detached_fetches {
 public:
  explicit detached_fetches(object_cache& cache) noexcept : cache_(cache) {}

  /// Starts fetching what is remote, without waiting; returns how many fetches were posted. Stops when its records are
  /// all in flight. Never throws for an object that cannot be had: the access that needs it will.
  std::size_t prefetch(const slot_t* slots, std::size_t n);

  /// Posts fetches for those of one heap that are remote, as their first looks would, in one call for each agent; what
  /// is not posted is left to those looks. Returns how many are on their way now. Outside of sections.
  static std::size_t post_together(std::span<awaited* const> all) noexcept;

  /// One look at an object that the caller awaits: its payload, resident, warm and pinned (the caller's pin now), or
  /// null while it is on its way (awaited::why says what for); the first look posts its fetch. Waits for nothing,
  /// except for one answer by slot when nothing is known of the object or what is known is old. Throws what resolve
  /// throws, timed_out and cache_full when the look comes after the deadline. Outside of sections.
  static char* look_for(awaited& a);
  /// Handles what has come for any fetch of this heap, without blocking; returns how much that was.
  std::size_t poll() noexcept;
  /// Detached fetches of this thread that have ended, for sleep_until_completed.
  std::uint32_t completions();
  /// Sleeps until one more has ended than `seen`, or until `deadline`.
  void sleep_until_completed(std::uint32_t seen, time_point deadline);

 private:
  /// What is to be posted at once. There is room for all records of a thread: nothing may fail once a word says
  /// `fetching`.
  struct posted_list {
    struct posted {
      remote::agent_session* link;
      fabric::request* request;
    };
    std::array<posted, limits::fetches_max> requests;  // without contents: nothing may be written for those that hit
    std::size_t n = 0;
  };
  enum class posting : std::uint8_t { posted, changed, unreadable, no_record, no_memory };
  /// Posts a fetch for a remote word, leaving `leave` segments; or adds it to `together`, which the caller posts in the
  /// same section. Inside a section.
  posting post_detached(mutator& m, const tablet_home& home, slot_t slot, std::atomic<word_t>& word, word_t seen,
                        std::uint32_t leave, posted_list* together = nullptr);
  /// All that go to one agent at once: one call into the kernel over TCP, one doorbell over RDMA.
  void post(const posted_list& together) noexcept;
  std::size_t post_here(std::span<awaited* const> all);
  fetch* free_record(mutator& m);
  char* look_here(awaited& a);
  static void detached_done(fabric::request& r) noexcept;
  static void finish_detached(fetch& f) noexcept;

  object_cache& cache_;
};

}  // namespace fm::detail
