// The collector of one heap: leads the agents through a cycle (Mako, section 5; src/gc/collector.cc for when, src/gc/cycle.cc
// for how). Objects are traced where they are stored; the owner contributes what only it knows: the roots, what its frames
// have newer than the home copies, and what was allocated at the snapshot.
//
// Soundness: nobody reads a reference field older than the snapshot. A frame that is newer than its home copy, or may be, is
// traced by the owner, which tells the agents so before tracing starts; a frame or home copy that is newer than the snapshot is
// fine, because what was overwritten since is logged (barrier/satb.h).
#pragma once

#include "cache/evictor.h"
#include "cache/object_cache.h"
#include <condition_variable>
#include <farmem/collect.h>
#include <farmem/detail/barrier.h>
#include <farmem/detail/weak_cell.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fm {

namespace detail {

/// Bytes allocated between two cycles, where there is room for that; collections of young objects not counted, and what they
/// freed taken off.
constexpr std::uint64_t least_between = 32ull << 20;
/// Of the cache, allocated between two collections of young objects: so that they are over before what is young has to be
/// evicted.
constexpr std::uint64_t young_share = 8;
/// A collection that frees less than this part of what was allocated since the last one was in vain, and the next comes later.
constexpr std::uint64_t young_worth = 4;
/// Bytes of an object, on average, from which on they begin however much of the cache is free, and when so much was allocated: what
/// fits in a processor's cache, so that memory is used again while it is warm, and new memory is not taken for what dies at once.
constexpr std::uint64_t young_large = 1024;
constexpr std::uint64_t young_large_between = 8ull << 20;

constexpr std::uint64_t least_between_continuous = 1ull << 20;

struct collector_options {
  bool automatic = true;    ///< start cycles when much was allocated since the last one
  std::uint64_t every = 0;  ///< bytes allocated between cycles; 0: from what is live and what the agents have
  bool young = true;        ///< if automatic: collections of young objects in between
  bool continuous = false;  ///< if automatic: at most least_between_continuous, and no longer than a second
  double share = 1;         ///< of a core, while nothing waits for the cycle
  std::uint64_t quota = 0;  ///< bytes of all agents together
  bool verify = false;      ///< before, within and after every cycle: src/gc/verify_cycle.cc
  bool agents_talk = true;  ///< agents send references to each other's objects to each other, where they can
  evacuation_options evacuation;
  duration call_within = std::chrono::seconds(10);   ///< one message; an agent that makes no progress for so long
  duration pause_within = std::chrono::seconds(10);  ///< all attempts at one pause together
};

/// Who traces. Anything but `agents` is for tests and benchmarks (src/gc/compute_tracer.h).
enum class tracing : std::uint8_t {
  agents,
  compute_node,  ///< the collector's thread, through the cache
  both,          ///< one after the other, and a difference is a fault; only while the program is still
};

class collector {
 public:
  /// Starts the heap's collector thread.
  collector(object_cache& cache, const collector_options& options);
  ~collector();
  collector(const collector&) = delete;
  collector& operator=(const collector&) = delete;

  /// Runs a cycle, or waits for the one that is running and then runs another: what was unreachable at the call is gone at
  /// the return, if the report is ok and has as many freed as dead. What is being written or fetched when its turn comes is
  /// left, and then another cycle follows, up to four; the report is the last one's, with what all of them freed. Not inside a
  /// section.
  cycle_report collect(std::string_view why, evacuate what = evacuate::sparse);
  /// The same of young objects only: what was young and unreachable at the call is gone at the return, but for what was being
  /// written home just then.
  cycle_report collect_young(std::string_view why);
  /// Asks for a cycle and does not wait for it. Thread-safe.
  void ask(std::string_view why);
  /// The report of the last cycle, or of the last collection of young objects.
  [[nodiscard]] cycle_report last(generation of = generation::all) const;
  /// Calls `notice` once, on the collector's thread, after a cycle has found the object dead. Thread-safe. Throws
  /// out_of_memory.
  void on_dead(slot_t slot, std::function<void()> notice);
  /// Who traces in the cycles that begin from now on, and with room for how many slots on this node. Internal: for tests and
  /// benchmarks.
  void trace_by(tracing who, std::size_t stack_slots = 1 << 20) noexcept {
    trace_stack_.store(stack_slots, std::memory_order_relaxed);
    tracing_.store(who, std::memory_order_release);
  }
  /// An agent is idle or has ghosts.
  void traced() noexcept;
  /// Ends the thread; a cycle that runs is given up.
  void stop() noexcept;

  struct counters {
    std::atomic<std::uint64_t> cycles{0}, failed{0}, freed_objects{0}, freed_bytes{0};
    std::atomic<std::uint64_t> evacuated_objects{0}, evacuated_bytes{0}, emptied_regions{0};
    std::atomic<std::uint64_t> young_cycles{0}, young_failed{0}, young_freed_objects{0}, young_freed_bytes{0};
  } counts;
  histogram pause_ns;  ///< pauses that succeeded, from the closing of the gate to its opening

 private:
  friend class cycle;
  friend class evacuation;
  void run() noexcept;
  /// Decides when the next one is wanted, after a cycle and after a collection of young objects.
  void arm(const cycle_report& r) noexcept;
  void arm_young(const cycle_report& r) noexcept;
  void arm_next() noexcept;
  /// Enough was allocated for one of both, or the agents are full.
  void ask_as_due() noexcept;
  cycle_report run_cycle(const std::string& why, evacuate what);
  cycle_report run_young(const std::string& why);
  void run_timed(cycle_report& r, std::uint64_t between);
  [[nodiscard]] std::uint64_t young_base() const noexcept;
  /// Whether large objects have an interval of their own: in a cache of which an eighth is more than that.
  [[nodiscard]] bool looks_for_large() const noexcept { return young_base() > young_large_between; }
  [[nodiscard]] bool are_large() const noexcept;
  /// Bytes that were allocated and not freed as young ones, about: threads tell of what they allocate now and then.
  [[nodiscard]] std::uint64_t grown() const noexcept;
  void tell_dead() noexcept;
  /// Marks that sections may be looking at: lock() of a weak handle, eviction. They stay until those have ended.
  void keep_for_readers(std::unique_ptr<slot_marks> marks) noexcept;
  /// Whether somebody waits for the cycle: a caller of collect, or an allocation because the agents are full; or whether so
  /// much was allocated meanwhile that the next one is near.
  [[nodiscard]] bool urgent() const noexcept;
  /// Sleeps until an agent said something after `seen`, or for `at_most`.
  void wait_traced(std::uint32_t seen, duration at_most) noexcept;

  object_cache& cache_;
  const collector_options options_;
  std::atomic<bool> stopping_{false};
  std::atomic<tracing> tracing_{tracing::agents};
  std::atomic<std::size_t> trace_stack_{0};
  std::atomic<std::uint32_t> traced_{0};
  std::atomic<std::uint32_t> callers_{0};  ///< in collect
  // Set by the collector's thread.
  std::atomic<std::uint64_t> between_{least_between};  ///< bytes allocated between the last cycle and the next
  std::atomic<std::uint64_t> young_between_{0};        ///< the same of collections of young objects ...
  std::atomic<std::uint64_t> large_between_{0};        ///< ... where objects are large
  std::atomic<std::uint64_t> begun_at_{0};  ///< bytes that were allocated when the last one of either kind began ...
  std::atomic<std::uint64_t> objects_begun_at_{0};  ///< ... and objects ...
  std::uint64_t since_ = 0;                         ///< ... and of them, since the one before began
  time_point young_armed_at_{};                     ///< the last collection of young objects was over
  bool young_last_ = false;                         ///< that was one of young objects
  std::atomic<std::uint64_t> young_freed_{0};       ///< bytes
  std::atomic<std::uint64_t> due_at_{0};            ///< of grown(): a cycle is due
  std::atomic<std::uint64_t> hurry_at_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string wanted_;  ///< why a cycle is wanted; empty: it is not
  evacuate wanted_evacuation_ = evacuate::sparse;
  std::string young_wanted_;
  std::uint64_t begun_ = 0, ended_ = 0;              ///< cycles
  std::uint64_t young_begun_ = 0, young_ended_ = 0;  ///< collections of young objects
  std::uint32_t young_callers_ = 0;                  ///< in collect_young
  cycle_report last_, last_young_;

  struct outlived {
    std::uint64_t stamp;
    std::unique_ptr<slot_marks> marks;
  };
  std::vector<outlived> outlived_;  ///< the collector's thread's

  struct watched {
    root_cell* weak;
    std::function<void()> notice;
  };
  std::mutex watched_mutex_;
  std::vector<watched> watched_;

  std::thread thread_;
};

}  // namespace detail
}  // namespace fm
