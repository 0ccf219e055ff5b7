// Resident objects by type: the owner's half of counting objects (heap_core::count_types). Concurrent with everything;
// the frames are looked at and not touched.
//
// Invariant: pages of the table must be held (collector_view::hold_pages): words only return to the table meanwhile, so
// an object that stays resident is listed at least once when list_aside comes first. Statistics and the verification of
// cycles call it.
#pragma once

#include "table/table.h"
#include <string>
#include <vector>

namespace fm::detail {

class object_cache;

/// The type as the program spells it; an array of T is "T[]".
std::string name_of_type(std::uint32_t type);

/// An object that has a frame, as list_resident shows it.
struct resident_object {
  slot_t slot = 0;
  slot_t in_frame = 0;  ///< the slot that its frame's header names; the same
  std::uint32_t type = 0;
  std::uint64_t bytes = 0;  ///< that its home copy has, or would have; 0 when the header is damaged
};

/// Adds the resident objects whose words are aside. They may come to the table meanwhile, and nothing goes aside.
void list_aside(object_cache& cache, std::vector<resident_object>& out);
/// Adds those that the words of `slots` slots from `first` on name, whole pages, in the order of their slots.
void list_resident(object_cache& cache, slot_t first, std::uint64_t slots, std::vector<resident_object>& out);

}  // namespace fm::detail
