// Objects of one shape that were allocated together: consecutive slots, payloads at one stride.
//
// Invariant: as new_object, it keeps the section open in which the slots were taken, so that no snapshot lies between
// that and rooting them. Made by object_cache::allocate_together alone.
#pragma once

#include "table/table.h"
#include <cstdint>

namespace fm::detail {

/// Slots and frames that go together.
struct taken_slots {
  slot_t first;
  std::uint64_t count;
  char* payload;  ///< of the first
  std::uint64_t stride;
};

/// What is to live is rooted, or referred to from what is rooted, while this lives.
class [[nodiscard]] new_objects {
 public:
  explicit new_objects(const taken_slots& taken) noexcept : taken_(taken) {}
  ~new_objects() { epochs::leave(); }
  new_objects(const new_objects&) = delete;
  new_objects& operator=(const new_objects&) = delete;

  [[nodiscard]] slot_t first() const noexcept { return taken_.first; }
  [[nodiscard]] std::uint64_t count() const noexcept { return taken_.count; }
  [[nodiscard]] char* payload(std::uint64_t i) const noexcept { return taken_.payload + i * taken_.stride; }

 private:
  taken_slots taken_;
};

}  // namespace fm::detail
