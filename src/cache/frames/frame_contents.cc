// Sizes and references of home copies; see frame_contents.h.
//
// Invariant: nothing of the bytes is trusted. An unknown type, or a length that no object can have, gives 0.
#include "frame_contents.h"

namespace fm::detail {

std::uint64_t home_bytes(std::uint64_t h, const char* payload, std::uint64_t bytes_at_hand) noexcept {
  const type_descriptor* type = find_type(header::type(h));
  if (!type) return 0;
  std::uint64_t length = 0;
  if (type->kind == type_kind::array) {
    if (bytes_at_hand < 16) return 0;
    std::memcpy(&length, payload, 8);
    if (type->bytes != 0 && length > home_address::offset_limit / type->bytes) return 0;
  }
  return header::bytes + type->payload_bytes(length);
}

std::uint64_t home_bytes_of(char* payload) noexcept {
  return home_bytes(frame::prefix(payload).header.load(std::memory_order_relaxed), payload,
                    frame::total_bytes_of(payload) - sizeof(frame_prefix) + header::bytes);
}

// References of one object are mostly of one tablet, which is then looked up once.
std::uint64_t foreign_reference(std::uint64_t h, const char* payload, const object_cache* heap) noexcept {
  const type_descriptor* type = find_type(header::type(h));
  if (!type || type->ref_offsets.empty()) return 0;
  std::uint64_t length = 1;
  if (type->kind == type_kind::array) {
    std::memcpy(&length, payload, sizeof length);
    payload += sizeof length;
  }
  std::uint64_t known = ~std::uint64_t{0};
  for (std::uint64_t i = 0; i < length; ++i, payload += type->bytes)
    for (const std::uint32_t at : type->ref_offsets) {
      std::uint64_t s = 0;
      std::memcpy(&s, payload + at, sizeof s);
      if (s == 0 || s / tablet_slots == known) continue;
      if (s >= hit.slots || tablet_info_of(s).heap.load(std::memory_order_acquire) != heap) return s;
      known = s / tablet_slots;
    }
  return 0;
}

}  // namespace fm::detail
