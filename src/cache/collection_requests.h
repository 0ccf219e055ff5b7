// When the cache asks for a collection: after so many bytes were allocated, and when the agents are full.
//
// Invariants owned here
//   - The collector is called at most once for each when_allocated, and once for full agents until it says collected().
//   - The call does not block, and comes from any thread.
//
// Allocation reports what threads have allocated, whoever waits for memory asks for room, and the collector of the heap
// sets the next threshold and says what its cycles achieved.
#pragma once

#include "mutator.h"
#include <atomic>
#include <cstdint>

namespace fm::detail {

class collection_requests {
 public:
  /// Who collects; set once, before anything is allocated. `f(context)` is called from any thread and must not block;
  /// null when nothing that is asked for would come.
  void collect_with(void (*f)(void*) noexcept, void* context) noexcept {
    tell_ = f;
    context_ = context;
  }

  /// Calls it once when the heap has allocated `bytes` more. It is called besides when the agents are full, once until
  /// collected().
  void when_allocated(std::uint64_t bytes) noexcept {
    tell_at_.store(allocated_bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  }
  /// Whether a thread waits for a cycle, because the agents are full; until the next one has ended.
  [[nodiscard]] bool awaits_collection() const noexcept { return awaited_.load(std::memory_order_acquire); }
  /// A cycle has ended. `made_room`: on the agents, as far as is worth waiting for another one.
  void collected(bool made_room) noexcept {
    if (!made_room) in_vain_.fetch_add(1, std::memory_order_acq_rel);
    awaited_.store(false, std::memory_order_relaxed);
  }
  /// Cycles so far that made no room.
  [[nodiscard]] std::uint32_t collected_in_vain() const noexcept { return in_vain_.load(std::memory_order_acquire); }

  /// The agents are full: garbage can make room. Once until collected(). False: none would help, or comes by itself.
  bool ask_for_room() noexcept;
  /// The heap hears of what a thread has allocated since it last reported.
  void report(mutator& m) noexcept;
  /// As reported. Threads report now and then, so this lags behind.
  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept {
    return allocated_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t allocated_objects() const noexcept {
    return allocated_objects_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> awaited_{false};
  std::atomic<std::uint32_t> in_vain_{0};
  std::atomic<std::uint64_t> allocated_bytes_{0}, allocated_objects_{0};
  std::atomic<std::uint64_t> tell_at_{~std::uint64_t{0}};  ///< of allocated_bytes_
  void (*tell_)(void*) noexcept = nullptr;                 ///< set once
  void* context_ = nullptr;
};

}  // namespace fm::detail
