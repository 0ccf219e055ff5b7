// The object in a frame, read through the type that its header names: how many bytes its home copy has, and what it
// refers to. Nothing here changes a frame or makes it warm.
//
// The caller keeps the frame where it is: with_frame (busy_word.h), the section that resolved it, or because nothing
// runs.
#pragma once

#include "object/object.h"
#include <farmem/detail/barriers/frame.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace fm::detail {

/// Bytes of the home copy that a header and the first payload word describe; 0 when they describe nothing that exists.
std::uint64_t home_bytes(std::uint64_t header, const char* payload, std::uint64_t bytes_at_hand) noexcept;
/// The same of what is in a frame.
std::uint64_t home_bytes_of(char* payload) noexcept;

/// The first reference of a whole home copy that leads to no slot of `heap`; 0 when there is none. Nobody changes the
/// copy meanwhile. O(references).
std::uint64_t foreign_reference(std::uint64_t header, const char* payload, const object_cache* heap) noexcept;

/// Calls `f(slot)` for the references in a payload of the type that `h` names, as they are now, null ones left out:
/// those of up to `elements` of its elements from `from` on. The payload stays meanwhile. How many elements it has: 1
/// unless it is an array, 0 for a type without references.
template <class F>
std::uint64_t for_each_ref(std::uint64_t h, const char* payload, std::uint64_t from, std::uint64_t elements, F&& f) {
  const type_descriptor* type = find_type(header::type(h));
  if (!type || type->ref_offsets.empty()) return 0;
  std::uint64_t length = 1;
  if (type->kind == type_kind::array) {
    std::memcpy(&length, payload, sizeof length);
    payload += sizeof length;
  }
  const std::uint64_t end = from < length ? from + std::min(elements, length - from) : from;
  for (std::uint64_t i = from; i < end; ++i)
    for (const std::uint32_t at : type->ref_offsets)
      if (const slot_t s =
              __atomic_load_n(reinterpret_cast<const std::uint64_t*>(payload + i * type->bytes + at), __ATOMIC_ACQUIRE);
          s != 0)
        f(s);
  return length;
}

/// All of them into `out`, in place of what it had; false for a type without references.
inline bool read_refs(std::uint64_t h, const char* payload, std::vector<slot_t>& out) {
  out.clear();
  return for_each_ref(h, payload, 0, ~std::uint64_t{0}, [&](slot_t s) { out.push_back(s); }) != 0;
}
inline bool read_refs(char* payload, std::vector<slot_t>& out) {
  return read_refs(frame::prefix(payload).header.load(std::memory_order_relaxed), payload, out);
}

}  // namespace fm::detail
