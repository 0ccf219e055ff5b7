// The collector of one heap: a thread that runs full cycles (full_cycle.h) and young collections (young_collection.h),
// one at a time, and the callers who wait for them. Triggers decide when one is due (triggers.h).
//
// Objects are traced where they are stored (Mako, section 5). The owner contributes what only it knows: the
// roots, its dirty frames, and which slots were allocated at the snapshot.
//
// Invariants owned here
//   - One collection runs at a time in a process: the SATB log is one for all of its heaps. They take turns in the order
//     in which they came, and one that holds up somebody of another heap does not rest.
//   - Marks that a section may be looking at are kept until it has ended.
//
// Called by heap_core. Its collections and evacuation use the part at the end of the public section.
#pragma once

#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "cache/replicas/members.h"
#include "cache/replicas/rehoming.h"
#include "collector/options.h"
#include "collector/roots/notices.h"
#include "collector/stored_types.h"
#include "collector/triggers.h"
#include <condition_variable>
#include <farmem/detail/barriers/barrier.h>
#include <farmem/heap/collect.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fm {

namespace detail {

class collector {
 public:
  /// Starts the heap's collector thread.
  collector(object_cache& cache, const collector_options& options);
  ~collector();
  collector(const collector&) = delete;
  collector& operator=(const collector&) = delete;

  /// Runs a cycle, or waits for the one that is running and then runs another: what was unreachable at the call is gone
  /// at the return, if the report is ok and has as many freed as dead. An object that is being written or fetched when
  /// its turn comes is left, and then another cycle follows, up to four; the report is the last one's, with what all of them
  /// freed. Not inside a section.
  cycle_report collect(std::string_view why, evacuate what = evacuate::sparse);
  /// The same of young objects only: what was young and unreachable at the call is gone at the return, but for what was
  /// being written home just then.
  cycle_report collect_young(std::string_view why);
  /// Asks for a cycle and does not wait for it. Thread-safe.
  void ask(std::string_view why);
  /// The report of the last cycle, or of the last collection of young objects.
  [[nodiscard]] cycle_report last(generation of = generation::all) const;
  [[nodiscard]] death_notices& notices() noexcept { return notices_; }
  /// Who traces in the cycles that begin from now on, and with room for how many slots on this node. Internal: for
  /// tests and benchmarks.
  void trace_by(tracing who, std::size_t stack_slots = 1 << 20) noexcept {
    trace_stack_.store(stack_slots, std::memory_order_relaxed);
    tracing_.store(who, std::memory_order_release);
  }
  /// An agent is idle or has remote references for the owner.
  void traced() noexcept;
  /// An agent is lost: its tablets are to have others. From any thread.
  void agent_lost() noexcept;
  /// Agents or what is wanted of replica sets has changed: they are looked at now. From any thread.
  void look_at_members() noexcept;
  /// Throws scope_misuse if the caller is a notice: `what` waits until all of them have ended.
  void refuse_notice(const char* what);
  /// Runs `what` on the collector's thread, between two collections, and waits for it; from other threads, outside of
  /// sections. False: the heap closes, and it does not run. What it throws comes out here.
  bool run_between(const std::function<void()>& what);
  /// The same, while no notice runs. Not by a notice.
  bool run_alone(const std::function<void()>& what);
  /// The same, and if `what` does not throw, no collection and no notice comes after it: as after stop().
  bool run_last(const std::function<void()>& what);
  /// The number of the last cycle. On the collector's thread.
  [[nodiscard]] std::uint64_t cycles_begun() const noexcept { return begun_; }
  /// Ends the thread; a cycle that runs is given up.
  void stop() noexcept;

  struct counters {
    std::atomic<std::uint64_t> cycles{0}, failed{0}, freed_objects{0}, freed_bytes{0};
    std::atomic<std::uint64_t> evacuated_objects{0}, evacuated_bytes{0}, emptied_regions{0};
    std::atomic<std::uint64_t> young_cycles{0}, young_failed{0}, young_freed_objects{0}, young_freed_bytes{0};
  } counts;
  histogram pause_ns;  ///< pauses that succeeded, from the closing of the gate to its opening

  // ---- for what the collector runs: full_cycle, young_collection, evacuation; on its thread ----

  [[nodiscard]] object_cache& cache() noexcept { return cache_; }
  [[nodiscard]] const collector_options& options() const noexcept { return options_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  [[nodiscard]] tracing who_traces() const noexcept { return tracing_.load(std::memory_order_acquire); }
  [[nodiscard]] std::size_t trace_stack_slots() const noexcept { return trace_stack_.load(std::memory_order_relaxed); }
  /// Another collection is asked for.
  [[nodiscard]] bool is_wanted() const noexcept;
  /// Whether somebody waits for a collection of this heap: a caller of collect, an allocation because the agents are
  /// full, or who closes it; or whether so much was allocated meanwhile that the next one is near.
  [[nodiscard]] bool is_waited_for() const noexcept;
  /// The same of this heap, or of another one whose collection waits for the end of this one's.
  [[nodiscard]] bool urgent() const noexcept;
  /// How often agents said something, for wait_traced.
  [[nodiscard]] std::uint32_t times_traced() const noexcept { return traced_.load(std::memory_order_acquire); }
  /// Sleeps until an agent said something after `seen`, or for `at_most`.
  void wait_traced(std::uint32_t seen, duration at_most) noexcept;
  /// Sleeps until an agent says something, or for `at_most`.
  void rest(duration at_most) noexcept { wait_traced(times_traced(), at_most); }
  /// Gives the tablets of lost agents others. Between two collections.
  void rehome() noexcept;
  [[nodiscard]] set_members& members() noexcept { return members_; }
  /// Marks that sections may be looking at: lock() of a weak handle, eviction. They stay until those have ended.
  void keep_for_readers(std::unique_ptr<slot_marks> marks) noexcept;

 private:
  void run() noexcept;
  /// One step towards the replica sets that are wanted; when the next one is due.
  time_point keep_members() noexcept;
  void run_errands(std::unique_lock<std::mutex>& lock) noexcept;
  /// Enough was allocated for a collection, or the agents are full.
  void ask_as_due() noexcept;
  cycle_report run_cycle(std::string why, evacuate what) noexcept;
  cycle_report run_young(std::string why) noexcept;
  template <class Collection>
  void run_timed(cycle_report& r);

  object_cache& cache_;
  const collector_options options_;
  std::atomic<bool> stopping_{false};
  std::atomic<tracing> tracing_{tracing::agents};
  std::atomic<std::size_t> trace_stack_{0};
  std::atomic<std::uint32_t> traced_{0};
  std::atomic<std::uint32_t> callers_{0};  ///< in collect
  std::atomic<bool> agent_lost_{false};    ///< since the last look
  collection_triggers triggers_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string wanted_;  ///< why a cycle is wanted; empty: it is not
  evacuate wanted_evacuation_ = evacuate::sparse;
  std::string young_wanted_;
  time_point rehome_at_ = time_point::max();         ///< when tablets of lost agents are looked at (again)
  std::uint64_t begun_ = 0, ended_ = 0;              ///< cycles
  std::uint64_t young_begun_ = 0, young_ended_ = 0;  ///< collections of young objects
  std::uint32_t young_callers_ = 0;                  ///< in collect_young
  cycle_report last_, last_young_;
  time_point members_at_ = time_point::max();  ///< when replica sets are looked at
  struct errand {
    const std::function<bool()>& what;  ///< true: as after stop()
    std::exception_ptr failure;
    bool done = false;
  };
  bool run_errand(errand mine);
  bool run_told(const std::function<void()>& what, bool is_last);
  std::vector<errand*> errands_;          ///< of those who wait in run_between
  rehoming rehoming_{cache_, stopping_};  ///< the collector's thread's
  set_members members_{cache_, stopping_};
  bool sets_are_whole_ = true;  ///< the collector's thread's
  stored_types types_{cache_};  ///< the collector's thread's
  bool young_last_ = false;     ///< the last collection was of young objects; the collector's thread's

  struct outlived {
    std::uint64_t stamp;
    std::unique_ptr<slot_marks> marks;
  };
  std::vector<outlived> outlived_;  ///< the collector's thread's

  death_notices notices_;
  std::thread thread_;
};

}  // namespace detail
}  // namespace fm
