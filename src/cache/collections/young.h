// Young objects (table/young_bits.h): when they cease to be young, and who hears of it.
//
// Invariants owned here
//   - When a batch is acknowledged, nothing that a copy in it refers to is young. Until then the frames of those copies
//     are `writing`, so that collector_view::scan_cards shows them as dirty.
//   - An object that ceases to be young while a collection of young objects marks is logged. A scan may have shown it
//     as young and, a moment later, the frame that refers to it as clean.
//
// These are conditions 1 and 3 of the proof in collector/young_collection.h. The evictor calls it for what it copies
// out; the collector sets `marking`.
#pragma once

#include "table/table.h"
#include <atomic>

namespace fm::detail {

class object_cache;

class young_objects {
 public:
  explicit young_objects(object_cache& cache) noexcept : cache_(cache) {}
  /// Whom to tell; set once, before anything is allocated. `log(slot)`, in a section, when an object ceases to be young
  /// while a collection of young objects marks.
  void log_with(void (*log)(slot_t) noexcept) noexcept { log_ = log; }

  /// What a copy refers to that is not acknowledged yet is not young any more: of an array `elements` elements from
  /// `from` on. In a section. Returns where to go on; 0 when that was all. The references are not trusted.
  std::uint64_t end_youth(std::uint64_t h, const char* payload, std::uint64_t from, std::uint64_t elements) noexcept;
  /// It has ceased to be young, just now in this section.
  void grew_up(slot_t slot) noexcept;

  /// A collection of young objects marks: what ceases to be young is logged. Changes in pauses, and at the end of one
  /// that was given up. In other cycles it would keep garbage that is written home just then.
  std::atomic<bool> marking{false};

 private:
  void no_longer_young(slot_t slot) noexcept;

  object_cache& cache_;
  void (*log_)(slot_t) noexcept = nullptr;
};

}  // namespace fm::detail
