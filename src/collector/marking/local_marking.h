// Marking by the collector's own thread, until nothing is left: of young objects, whose frames are all in the cache,
// and of everything as the baseline that agents are compared with (compute_tracer.h says when). Used by
// young_collection and full_cycle.
#pragma once

#include "collector/marking/compute_tracer.h"
#include "collector/marking/mark_strategy.h"

namespace fm::detail {

class snapshot;

class local_marking final : public mark_strategy {
 public:
  /// Marks in `marks`. With `elsewhere` only what is dirty is marked and traced.
  local_marking(snapshot& of, object_cache& cache, slot_marks& marks, std::size_t stack_max,
                tracing_elsewhere* elsewhere = nullptr)
      : snapshot_(of), cache_(cache), tracer_(cache, marks, stack_max, elsewhere) {}

  void add(slot_t slot) override { tracer_.add(slot); }
  void mark() override;
  /// Objects that were scanned.
  [[nodiscard]] std::uint64_t traced() const noexcept { return tracer_.traced(); }

 private:
  snapshot& snapshot_;
  object_cache& cache_;
  compute_tracer tracer_;
};

}  // namespace fm::detail
