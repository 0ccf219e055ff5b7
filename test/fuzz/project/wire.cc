// Bytes that a stream connection brings, as both sides decode them. Whatever is accepted must be safe to act on: inside
// its caps, of the right direction, with nothing set that its type does not carry; and it must encode to itself.
#include "fabric/wire/wire.h"
#include "fabric/client/client.h"
#include "fabric/server/server.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace {

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::wire;

void check_refusal(const decoded& d) {
  FM_CHECK(d.reason != nullptr, "a refusal without a reason");
  FM_CHECK(d.code == errc::bad_frame || d.code == errc::version_mismatch || d.code == errc::too_large,
           "a refusal of an odd kind");
}

void check_header(const frame_header& h, receiver to, std::uint32_t cap, const std::byte* raw) {
  FM_CHECK(std::memcmp(&h, raw, sizeof h) == 0, "a header changed by decoding");
  const auto type = static_cast<frame_type>(h.type);
  const bool from_server = type == frame_type::welcome || type == frame_type::answer || type == frame_type::notice;
  FM_CHECK(from_server == (to == receiver::client), "a frame of the other direction was accepted");
  const std::uint32_t message_max = std::min(cap, message_bytes_limit);
  FM_CHECK(h.length <= std::max({message_max, chunk_bytes, std::uint32_t{sizeof(hello_body)}}),
           "a length over every cap");
  if (type == frame_type::message || type == frame_type::notice)
    FM_CHECK(h.length <= message_max, "a message over its cap");
  if (type == frame_type::read) FM_CHECK(h.length == 0 && h.bytes <= chunk_bytes, "a read over its cap");
  if (type == frame_type::write) FM_CHECK(h.length <= chunk_bytes, "a write over its cap");
  if (type == frame_type::compare_swap || type == frame_type::fetch_add)
    FM_CHECK(h.length == sizeof(atomic_body) && h.offset % 8 == 0, "an atomic that cannot be carried out");
  if (type == frame_type::answer && h.status != 0) FM_CHECK(h.length == 0, "an error with a payload was accepted");
  (void)to_string(status_of(h));
}

}  // namespace

// One input is a connection's stream: frames, or what claims to be, one after the other.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes < 2) return 0;
  const receiver to = (data[0] & 1) != 0 ? receiver::client : receiver::server;
  const bool usual = (data[0] & 2) != 0;  // most inputs would fail at the magic number otherwise
  const std::uint32_t cap = std::uint32_t{data[1]} << (data[0] >> 3);
  auto stream = std::as_bytes(std::span(data, bytes)).subspan(2);
  while (stream.size() >= sizeof(frame_header)) {
    std::byte raw[sizeof(frame_header)];
    std::memcpy(raw, stream.data(), sizeof raw);
    if (usual) {
      const frame_header good = make_header(frame_type::read);
      std::memcpy(raw, &good, offsetof(frame_header, minor));
    }
    stream = stream.subspan(sizeof raw);
    frame_header h{};
    if (const decoded d = decode_header(raw, to, cap, h); d.code != errc::ok) {
      check_refusal(d);
      if (!usual) return 0;
      continue;
    }
    check_header(h, to, cap, raw);
    const auto payload = stream.first(std::min<std::size_t>(h.length, stream.size()));
    stream = stream.subspan(payload.size());
    if (h.type == std::uint8_t(frame_type::hello)) {
      hello_body b{};
      if (const decoded d = decode_hello(payload, b); d.code != errc::ok)
        check_refusal(d);
      else
        FM_CHECK(b.lane <= lane_stream && b.generation != 0 && b.message_bytes_max <= message_bytes_limit &&
                     std::memcmp(&b, payload.data(), sizeof b) == 0,
                 "a hello that cannot be acted on");
    } else if (h.type == std::uint8_t(frame_type::welcome)) {
      welcome_body b{};
      if (const decoded d = decode_welcome(payload, b); d.code != errc::ok)
        check_refusal(d);
      else
        FM_CHECK((b.features & ~features_known) == 0 && b.message_bytes_max <= message_bytes_limit,
                 "a welcome of too much");
    }
  }
  return 0;
}
