// The interface between a heap and the collection cycle that runs in it: the heap keeps the cycle, ends it, and counts
// its memory.
// agent/tracing/tracer.h implements it, so that heaps know nothing of how a cycle marks.
// Called by agent/heaps only. A cycle ends before its heap does.
#pragma once

#include <cstdint>
#include <optional>

namespace fm::agent {

class heap_cycle {
 public:
  explicit heap_cycle(std::uint64_t n) : cycle(n) {}
  heap_cycle(const heap_cycle&) = delete;
  heap_cycle& operator=(const heap_cycle&) = delete;
  virtual ~heap_cycle() = default;

  const std::uint64_t cycle;  ///< its number

  /// Nobody enters any more; those inside leave soon. Thread-safe.
  virtual void abandon() noexcept = 0;
  /// Abandons, and waits until nobody is inside. Bounded by the time between two looks of a worker.
  virtual void end() noexcept = 0;

  // ---- for reports ----
  [[nodiscard]] virtual std::uint64_t marked() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t faults() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t tracing_ns() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
  /// Whether as many bits are set in all tablets as were counted; null while somebody is at work, who may be in
  /// between. Nobody begins meanwhile. The heap's mutex is held. O(tablets).
  [[nodiscard]] virtual std::optional<bool> marks_add_up() const = 0;
};

}  // namespace fm::agent
