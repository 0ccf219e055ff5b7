// When a collection is due: how many bytes are allocated between two full cycles, and between two young collections.
// The cache reports when so much was allocated (collection_requests::when_allocated); the collector then asks here
// which of both is due.
//
// Invariant owned here: a full cycle is due early enough that half of the room that the agents have is left for what is
// allocated while it runs.
//
// due() and hurried() are called by any thread, the others by the collector's thread.
#pragma once

#include "base/limits.h"
#include "cache/object_cache.h"
#include "collector/options.h"
#include <atomic>
#include <farmem/heap/collect.h>

namespace fm::detail {

class collection_triggers {
 public:
  enum class kind : std::uint8_t { none, young, full };

  collection_triggers(object_cache& cache, const collector_options& options) : cache_(cache), options_(options) {}

  /// A collection of this kind begins.
  void begins(generation of) noexcept;
  /// Decides when the next one is wanted: after a full cycle (and at first, with an empty report), and after a young
  /// collection.
  void arm(const cycle_report& r) noexcept;
  void arm_young(const cycle_report& r) noexcept;

  /// Decides which kind is due now. Unless that is a full cycle, the cache is asked to report again. `young_wanted`: a
  /// young collection is asked for already.
  kind due(bool young_wanted) noexcept;
  /// Cycles follow each other because there is little room, as of the last one.
  [[nodiscard]] bool short_of_room() const noexcept { return short_of_room_.load(std::memory_order_relaxed); }
  /// So much was allocated since the running collection began that the next one is near.
  [[nodiscard]] bool hurried() const noexcept;

 private:
  /// Bytes that the agents of the heap give it together. O(agents²).
  [[nodiscard]] std::uint64_t quota_of_all() const noexcept;
  void arm_next() noexcept;
  /// Bytes between young collections: before a cycle is due, where little may be allocated between cycles.
  [[nodiscard]] std::uint64_t young_base() const noexcept;
  /// Whether large objects have an interval of their own: in a cache of which `young_share` is more than that.
  [[nodiscard]] bool looks_for_large() const noexcept;
  [[nodiscard]] bool are_large() const noexcept;
  /// Bytes that were allocated and not freed as young ones, about: threads report what they allocate now and then.
  [[nodiscard]] std::uint64_t grown() const noexcept;

  object_cache& cache_;
  const collector_options& options_;
  std::atomic<std::uint64_t> between_{limits::least_between};  ///< bytes between the last cycle and the next
  std::atomic<std::uint64_t> young_between_{0};                ///< the same of young collections ...
  std::atomic<std::uint64_t> large_between_{0};                ///< ... where objects are large
  std::atomic<std::uint64_t> begun_at_{0};  ///< bytes that were allocated when the last one of either kind began ...
  std::atomic<std::uint64_t> objects_begun_at_{0};  ///< ... and objects ...
  std::uint64_t since_ = 0;                         ///< ... and of them, since the one before began
  time_point young_armed_at_{};                     ///< the last young collection was over
  std::atomic<std::uint64_t> young_freed_{0};       ///< bytes
  std::atomic<bool> short_of_room_{false};
  std::atomic<std::uint64_t> due_at_{0};  ///< of grown(): a cycle is due
  std::atomic<std::uint64_t> hurry_at_{0};
};

}  // namespace fm::detail
