// Decoding frames of stream transports; see wire.h. Allocates nothing, keeps no state, and takes nothing on trust: what
// it accepts follows the table in wire.h. Lanes, connections and the fuzzer call it.
#include "wire.h"
#include "request.h"

#include <algorithm>
#include <cstring>

namespace fm::fabric::wire {
namespace {

constexpr decoded bad(const char* reason) { return {errc::bad_frame, reason}; }

/// What a type of frame may carry. Fields that are not allowed must be zero.
struct rules {
  receiver to;
  std::uint32_t length_min, length_max;
  std::uint8_t flags;
  bool op, address, offset, bytes, status;
};

bool rules_of(frame_type type, std::uint32_t message_max, rules& r) noexcept {
  constexpr std::uint32_t atomic = sizeof(atomic_body);
  switch (type) {
    case frame_type::hello:
      r = {receiver::server, sizeof(hello_body), sizeof(hello_body), 0, false, false, false, false, false};
      return true;
    case frame_type::welcome:
      r = {receiver::client, sizeof(welcome_body), sizeof(welcome_body), 0, false, false, false, false, true};
      return true;
    case frame_type::read: r = {receiver::server, 0, 0, flag_fence, true, true, true, true, false}; return true;
    case frame_type::write:
      r = {receiver::server, 0, chunk_bytes, flag_fence, true, true, true, false, false};
      return true;
    case frame_type::compare_swap:
    case frame_type::fetch_add:
      r = {receiver::server, atomic, atomic, flag_fence, true, true, true, false, false};
      return true;
    case frame_type::message:
      r = {receiver::server, 0, message_max, flag_fence, true, false, false, false, false};
      return true;
    case frame_type::answer:
      r = {receiver::client, 0, std::max(message_max, chunk_bytes), flag_key | flag_fd, true, false, true, false, true};
      return true;
    case frame_type::notice: r = {receiver::client, 0, message_max, 0, false, false, false, false, false}; return true;
    case frame_type::notice_ack: r = {receiver::server, 0, 0, 0, false, false, false, true, false}; return true;
  }
  return false;
}

}  // namespace

decoded decode_header(std::span<const std::byte, sizeof(frame_header)> bytes, receiver to,
                      std::uint32_t message_bytes_max, frame_header& out) noexcept {
  frame_header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.magic != magic) return bad("no farmem frame");
  if (h.major != version_major) return {errc::version_mismatch, "another major version"};
  rules r;
  if (!rules_of(static_cast<frame_type>(h.type), std::min(message_bytes_max, message_bytes_limit), r))
    return bad("unknown frame type");
  if (r.to != to) return bad("a frame of the other direction");
  if ((h.flags & ~r.flags) != 0) return bad("reserved flags are set");
  for (const std::uint8_t z : h.zero)
    if (z != 0) return bad("reserved bytes are set");
  if (h.length > r.length_max) return {errc::too_large, "payload over its cap"};
  if (h.length < r.length_min) return bad("payload too short");
  if (!r.op && h.op != 0) return bad("op id where none belongs");
  if (!r.address && (h.region != 0 || h.generation != 0)) return bad("region where none belongs");
  if (!r.offset && h.offset != 0) return bad("offset where none belongs");
  if (!r.bytes && h.bytes != 0) return bad("byte count where none belongs");
  if (h.bytes > (h.type == std::uint8_t(frame_type::notice_ack) ? notices_max : chunk_bytes))
    return {errc::too_large, "byte count over its cap"};
  if (!r.status && h.status != 0) return bad("status where none belongs");
  if (h.status > status_last) return bad("unknown status");
  if (h.length != 0 && h.type == std::uint8_t(frame_type::answer) && h.status != 0)
    return bad("an error with a payload");
  if ((h.flags & flag_fd) != 0 && (h.flags & flag_key) == 0) return bad("a descriptor without a key");
  const bool atomic = h.type == std::uint8_t(frame_type::compare_swap) || h.type == std::uint8_t(frame_type::fetch_add);
  if (atomic && h.offset % 8 != 0) return bad("an atomic that is not aligned");
  out = h;
  return {};
}

decoded decode_hello(std::span<const std::byte> payload, hello_body& out) noexcept {
  hello_body b;
  if (payload.size() != sizeof b) return bad("hello of a wrong size");
  std::memcpy(&b, payload.data(), sizeof b);
  if (b.lane > lane_stream) return bad("unknown lane");
  if (b.zero != 0) return bad("reserved bytes are set");
  if (b.generation == 0) return bad("generation 0");
  if (b.message_bytes_max > message_bytes_limit) return {errc::too_large, "message_bytes_max over the limit"};
  const bool first = b.token[0] == 0 && b.token[1] == 0;
  if (first && b.lane != std::uint16_t(lane::control)) return bad("a session begins with its control lane");
  out = b;
  return {};
}

decoded decode_welcome(std::span<const std::byte> payload, welcome_body& out) noexcept {
  welcome_body b;
  if (payload.size() != sizeof b) return bad("welcome of a wrong size");
  std::memcpy(&b, payload.data(), sizeof b);
  if ((b.features & ~features_known) != 0) return bad("features that nobody asked for");
  if (b.message_bytes_max > message_bytes_limit) return {errc::too_large, "message_bytes_max over the limit"};
  out = b;
  return {};
}

errc status_of(const frame_header& h) noexcept {
  return h.status <= status_last ? static_cast<errc>(h.status) : errc::bad_frame;
}

}  // namespace fm::fabric::wire
