// The description of a managed type: enough to size a home copy and to find its references. Reflection makes
// descriptors (describe.h). They live for ever, and are found by number (the header's 24 bits) without a lock. Used by
// the cache, the collector and the agents.
//
// Shapes.  object: payload = the struct, rounded up to 8 bytes.
//          array:  payload = 8-byte length (elements), then the elements, rounded up to 8 bytes.
#pragma once

#include <cstdint>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <span>
#include <string>
#include <vector>

namespace fm::detail {

enum class type_kind : std::uint32_t { object = 0, array = 1 };

struct type_descriptor {
  std::uint32_t id = 0;  ///< 24 bits, from 1, in order of first use in this process
  type_kind kind = type_kind::object;
  std::uint32_t bytes = 0;                 ///< sizeof the struct, or of one element
  std::uint64_t layout_hash = 0;           ///< equal on two processes exactly when the layouts are
  std::vector<std::uint32_t> ref_offsets;  ///< ascending, within the object or one element
  std::string name;                        ///< the type's name as the program spells it, stable between builds
  std::string layout;                      ///< readable layout, for layout_mismatch messages

  /// Payload bytes for an object (length ignored) or for an array of `length` elements.
  [[nodiscard]] constexpr std::uint64_t payload_bytes(std::uint64_t length = 0) const {
    return kind == type_kind::object ? round_up(bytes, 8) : 8 + round_up(length * bytes, 8);
  }
};

/// Descriptor by number; null for a number that nobody registered. Lock-free, O(1).
const type_descriptor* find_type(std::uint32_t id) noexcept;
/// Highest number registered so far; numbers 1..type_count() are all present. Thread-safe.
std::uint32_t type_count() noexcept;
/// Registers a description (the id is filled in) and returns the permanent copy; the same name and kind with the same
/// layout gives the descriptor that is there already, with another layout throws fm::errc::layout_mismatch.
const type_descriptor& register_type(type_descriptor d);
/// Gives the types of a heap that another process has stored the numbers 1, 2 and so on that they have there. The program's
/// own descriptions join them when they are registered. Throws layout_mismatch if a type has another layout or number here.
void register_stored_types(std::span<const type_descriptor> types);
/// Throws wrong_type: an object is of type number `is`, and not what was `wanted`.
[[noreturn]] void throw_wrong_type(std::uint32_t is, std::string_view wanted);

}  // namespace fm::detail
