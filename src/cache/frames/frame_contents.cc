// Sizes of home copies; see frame_contents.h.
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

}  // namespace fm::detail
