// Tracing on the compute node: a bounded mark stack, words and frames prefetched ahead. It has two uses:
//   - In every collection, of what is dirty here: no agent can trace it. A slot is either dirty and scanned here, or
//     somebody else's (tracing_elsewhere). A slot whose frame has been written back and evicted meanwhile becomes its
//     agent's.
//   - Of everything, through the cache: the baseline that tracing on the agents has to beat, and a second tracer to
//     compare with it. Only collector::trace_by, which tests and benchmarks call, asks for that.
//
// As the baseline it is as good as it can be made without the agents: the stack overflows to lists of tablets to scan
// again, and remote objects are fetched many at a time. Resident objects are looked at and not touched, so only fetched
// ones take room in the cache.
//
// Invariant owned here: no reference is read that is older than the snapshot. It is read from the frame, or from the
// home copy through a fetch, so it is never older than what the program sees; what was overwritten since is in the SATB
// log. Objects die in the sweep only, which comes later. A section lasts for one object, or one fetch.
//
// Used by local_marking and agent_marking, on the collector's thread.
#pragma once

#include "base/limits.h"
#include "collector/collector.h"

#include <vector>

namespace fm::detail {

/// Who traces what is not dirty here. Both functions may be called for the same slot more than once.
class tracing_elsewhere {
 public:
  virtual ~tracing_elsewhere() = default;
  /// A reference to a slot that is not dirty here was met.
  virtual void refers_to(slot_t slot) = 0;
  /// A slot that was dirty is no longer here, so its home copy is as new as the snapshot. It is marked.
  virtual void went_home(slot_t slot) = 0;
};

class compute_tracer {
 public:
  /// Marks in `marks`, on one thread. With `elsewhere` only what is dirty here is marked and traced.
  compute_tracer(object_cache& cache, slot_marks& marks, std::size_t stack_max, tracing_elsewhere* elsewhere = nullptr);

  /// Marks the slot, and queues it, if it was allocated at the snapshot and is not marked.
  void add(slot_t slot);
  /// Objects that were scanned.
  [[nodiscard]] std::uint64_t traced() const noexcept { return traced_; }
  /// A bounded piece of tracing; false when all that was added is traced. Throws what an access throws.
  bool step();

 private:
  [[nodiscard]] slot_t next_slot();
  void fill();
  void look_ahead();
  void scan(slot_t slot);
  /// Waits for the fetch of this thread that the word named; false when it takes long.
  bool await(slot_t slot);

  object_cache& cache_;
  slot_marks& marks_;
  const std::size_t stack_max_;
  tracing_elsewhere* const elsewhere_;
  std::uint64_t traced_ = 0;
  std::vector<slot_t> stack_;
  std::vector<std::size_t> rescans_;  ///< positions in marks_.tablets(): some of their marked slots were not queued
  std::vector<bool> in_rescans_;
  std::size_t rescan_tablet_ = 0;
  std::size_t rescan_word_ = slot_marks::tablet_words;
  std::uint64_t rescan_bits_ = 0;
  slot_t ring_[limits::ring_items];
  std::uint32_t popped_ = 0, looked_ = 0, scanned_ = 0;  ///< numbers of items so far; the ring holds [scanned, popped)
  std::vector<slot_t> remote_, refs_;
};

}  // namespace fm::detail
