// The snapshot that a collection marks from: which slots are allocated at one moment, and what is reachable then. Full
// cycles and young collections share it. It holds the pauses, the roots, the SATB log and the marks.
//
//   take           a pause: the SATB log is on, and what is allocated is noted
//   find_roots     beside the program: handles, and slots that waiting threads are about to reach. A snapshot_scan adds
//                  what frames refer to
//   add_found      hands them to the mark strategies
//   end_marking    a pause: what was logged and is not marked keeps marking going; otherwise the log is off, and the
//                  marks are published to eviction and to weak handles
//   end            the marks are withdrawn, also after a failure
//
// Invariants owned here
//   - The SATB log is on from the pause of take() until the pause in which all that it holds is marked.
//   - Marks that a section may be looking at outlive that section (collector::keep_for_readers).
//   - Nothing is allocated or sent in a pause.
//
// Called by the collector's thread.
#pragma once

#include "cache/collections/collection.h"
#include "collector/collector.h"
#include "collector/marking/mark_strategy.h"
#include <memory>
#include <span>
#include <vector>

namespace fm::detail {

/// In what the snapshots of the two kinds of collections differ.
struct snapshot_kind {
  bool young;    ///< only tablets that have a dirty card, and what grows up is logged as well (young_collection.h)
  double share;  ///< of a core, while nobody waits for the collection
  duration pause_within;  ///< all attempts at one pause together
};

class snapshot {
 public:
  snapshot(collector& owner, cycle_report& report, const snapshot_kind& kind);
  ~snapshot();
  snapshot(const snapshot&) = delete;
  snapshot& operator=(const snapshot&) = delete;

  /// Throws timed_out when the threads could not be stopped.
  void take();
  void find_roots();
  /// The slot is reachable: kept for add_found.
  void found(slot_t slot);
  /// Hands what was found to the mark strategies.
  void add_found();
  /// From now on `by` gets every reachable slot. It lives until marking has ended.
  void mark_by(mark_strategy& by) { strategies_.push_back(&by); }
  /// The slot is reachable: tells the mark strategies.
  void add(slot_t slot);
  /// Adds what full logs hold; whether there was anything.
  bool take_logged();
  /// Marking ends in a pause in which everything that was logged is marked. False: it has to go on, with what is left
  /// over.
  bool end_marking();
  /// Withdraws all that take() and end_marking() set.
  void end() noexcept;

  /// From take() to end().
  [[nodiscard]] slot_marks& marks() noexcept { return *marks_; }
  /// Rests when a slice of time has been used. Not inside a section, nor with a lock.
  void pace() noexcept;
  /// Throws heap_closed when the heap is being closed.
  void check_stop() const;

 private:
  /// Runs `work(*this)` in a pause. False when the threads could not be stopped; `attempt` says how often that was so
  /// already.
  bool pause(std::uint32_t attempt, void (*work)(snapshot&), std::uint64_t& took_ns);
  /// After an attempt at a pause that failed.
  void wait_after_attempt(duration& backoff, time_point deadline);
  /// Notes the slots that threads are about to reach which wait for memory outside of sections; in the snapshot's
  /// pause. False: they are more than there is room for.
  bool note_waiting() noexcept;

  collector& owner_;
  object_cache& cache_;
  cycle_report& report_;
  const snapshot_kind kind_;
  std::unique_ptr<slot_hold> hold_;
  /// Marked are, before the agents' marks are read, what is traced here and what was sent: each slot is sent once.
  std::unique_ptr<slot_marks> marks_;
  std::vector<mark_strategy*> strategies_;
  std::vector<slot_t> found_;  ///< to be added when it is known what is dirty
  std::vector<slot_t> waiting_;
  std::uint64_t slice_from_ = 0;
  bool marking_ = false;
  bool left_over_ = false;  ///< the last pause of end_marking() found slots that are not marked
  bool published_ = false;  ///< sections may be looking at marks_
};

/// A scan of frames that finds roots: what the frames that frame() asks for refer to, and what is pinned.
class snapshot_scan : public frame_visitor {
 public:
  void references(slot_t, std::span<const slot_t> refs) final {
    for (const slot_t r : refs) snapshot_.found(r);
  }
  void pinned(slot_t slot) final { snapshot_.found(slot); }
  void between_pages() final;

 protected:
  explicit snapshot_scan(snapshot& of) noexcept : snapshot_(of) {}
  snapshot& snapshot_;

 private:
  std::uint64_t pages_passed_ = 0;
};

inline std::uint64_t collection_ns(time_point since) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - since).count());
}

/// Says why a collection failed: without memory for the text, the code alone.
inline void report_failure(cycle_report& report, errc why, const char* text) noexcept {
  report.status = why;
  try {
    report.failure = text;
  } catch (const std::bad_alloc&) {
    report.failure.clear();
  }
}

/// Runs the steps of a collection; whether they completed. A failure is in the report, and frees nothing more.
template <class Steps>
bool run_reported(cycle_report& report, const Steps& steps) noexcept {
  try {
    steps();
    return true;
  } catch (const error& e) {
    report_failure(report, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    report_failure(report, errc::out_of_memory, "no memory for the collection itself");
  }
  return false;
}

}  // namespace fm::detail
