// When the cache asks for a collection: after so many bytes were allocated, and when the agents are full.
//
// Invariants owned here
//   - The collector is called at most once for each when_allocated, and once for full agents until it says collected().
//   - Collections that make no room take a tenth of a core at most, however many threads ask for one.
//   - The call does not block, and comes from any thread.
//
// Allocation reports what threads have allocated, whoever waits for memory asks for room, and the collector of the heap
// sets the next threshold and says what its cycles achieved.
#pragma once

#include "cache/mutator.h"
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace fm::detail {

/// How long collections rest after those that were in vain: so long that they take a tenth of a core at most, and twice
/// as long each time. But not longer than half of what a thread waits for memory, so that one that begins to wait when
/// garbage has come about sees a collection.
class collection_rest {
 public:
  duration after(bool made_room, duration took, duration memory_within) noexcept {
    if (made_room) return rest_ = {};
    const duration least = limits::rest_after_vain_cycle * took;
    return rest_ = std::clamp(rest_ * 2, least, std::max(least, memory_within / 2));
  }

 private:
  duration rest_{};
};

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
  /// A cycle begins. By the collector's thread.
  void cycle_begins() noexcept { begun_.fetch_add(1, std::memory_order_release); }
  /// Cycles that have begun so far: who waits for one remembers it as its wait begins.
  [[nodiscard]] std::uint32_t cycles_begun() const noexcept { return begun_.load(std::memory_order_acquire); }
  /// Whether a cycle has ended that began after `begun` of them had begun.
  [[nodiscard]] bool has_collected_since(std::uint32_t begun) const noexcept {
    return static_cast<std::int32_t>(ended_.load(std::memory_order_acquire) - begun) > 0;
  }
  /// A cycle has ended that took so long. `made_room`: on the agents, as far as is worth waiting for another one. After
  /// one that did not, and was asked for by a thread that waits or for want of room (`is_short`), comes a rest: see
  /// collection_rest.
  void collected(bool made_room, bool is_short, duration took, duration memory_within) noexcept;
  /// A cycle has just been in vain: the next one is not due yet, however little room there is.
  [[nodiscard]] bool rests() const noexcept {
    return clock::now().time_since_epoch().count() < rest_until_.load(std::memory_order_relaxed);
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
  collection_rest rest_;  ///< the collector's thread
  std::atomic<clock::rep> rest_until_{0};
  std::atomic<bool> awaited_{false};
  std::atomic<std::uint32_t> in_vain_{0};
  std::atomic<std::uint32_t> begun_{0}, ended_{0};  ///< cycles, one after the other: the nth to begin is the nth to end
  std::atomic<std::uint64_t> allocated_bytes_{0}, allocated_objects_{0};
  std::atomic<std::uint64_t> tell_at_{~std::uint64_t{0}};  ///< of allocated_bytes_
  void (*tell_)(void*) noexcept = nullptr;                 ///< set once
  void* context_ = nullptr;
};

}  // namespace fm::detail
