// Tracing on the compute node. It has two uses:
//   - In every cycle, of what is newer here than at home: the agents cannot trace it. A slot is either newer, and scanned here,
//     or its agent's; one whose frame has been written back and evicted meanwhile becomes its agent's.
//   - Of everything, through the cache: the baseline that tracing on the agents has to beat, and a second tracer to compare
//     with it. Only collector::trace_by, which tests and benchmarks call, asks for that.
//
// As the baseline it is as good as it can be made without the agents: a bounded stack with overflow to lists of tablets to scan
// again, words and frames prefetched ahead, and objects that are away fetched many at a time. What is resident is looked at and
// not touched, so that only what has to be fetched takes room in the cache.
//
// Soundness: a reference is read from the frame, or from the home copy through a fetch, so it is never older than what the
// program sees, and hence not older than the snapshot; what was overwritten since is logged. Objects die in the sweep only,
// which comes later. A section lasts for one object, or one fetch.
#pragma once

#include "collector/collector.h"

#include <vector>

namespace fm::detail {

/// Who traces what is not newer here. Both may be told of the same slot more than once.
class tracing_elsewhere {
 public:
  virtual ~tracing_elsewhere() = default;
  /// A slot that is not newer here was met.
  virtual void refers_to(slot_t slot) = 0;
  /// One that was newer is no longer here, so that its home copy is as new as the snapshot. It is marked.
  virtual void went_home(slot_t slot) = 0;
};

class compute_tracer {
 public:
  static constexpr std::size_t near_stack_slots = 1 << 20;  ///< for what is newer here

  /// Marks in `marks`, on one thread. With `elsewhere` only what is newer here is marked and traced.
  compute_tracer(object_cache& cache, slot_marks& marks, std::size_t stack_max, tracing_elsewhere* elsewhere = nullptr);

  /// Marks the slot, and queues it, if it was allocated at the snapshot and is not marked.
  void add(slot_t slot);
  /// Objects that were scanned.
  [[nodiscard]] std::uint64_t traced() const noexcept { return traced_; }
  /// A bounded piece of tracing; false when all that was added is traced. Throws what an access throws.
  bool step();

 private:
  static constexpr std::uint32_t ring_items = 128;     ///< on their way at the same time
  static constexpr std::uint32_t looked_items = 64;    ///< of those, with the frame being prefetched or fetched
  static constexpr std::uint32_t together_items = 24;  ///< fewer are not worth a post
  static constexpr std::uint32_t step_objects = 512;

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
  slot_t ring_[ring_items];
  std::uint32_t popped_ = 0, looked_ = 0, scanned_ = 0;  ///< numbers of items so far; the ring holds [scanned, popped)
  std::vector<slot_t> away_, refs_;
};

}  // namespace fm::detail
