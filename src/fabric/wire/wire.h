// The bytes that stream transports (tcp://, shm://) put on a connection: frames of one fixed header and a payload.
// Little-endian packed structs; decoding is pure, takes nothing on trust and allocates nothing, so that a fuzzer can
// drive it.
//
//   byte  0        4      5      6     7      8        12      16   24      28          32      40      42    48
//         magic    major  minor  type  flags  length   bytes   op   region  generation  offset  status  zero  payload…
//
//   type         from    length        other fields used (all others must be zero)
//   hello        client  hello_body    -
//   welcome      server  welcome_body  status
//   read         client  0             flags fence; bytes wanted <= 64 KiB; op, region, generation, offset
//   write        client  <= 64 KiB     flags fence; op, region, generation, offset
//   compare_swap client  atomic_body   flags fence; op, region, generation, offset (8-aligned)
//   fetch_add    client  atomic_body   the same
//   message      client  <= cap        flags fence; op
//   answer       server  <= cap        flags key, fd; op, status; offset: old value of an atomic, or the key's token
//   notice       server  <= cap        -
//   notice_ack   client  0             bytes: how many notices have been handled
//
// A connection begins with hello and welcome. The first connection of a session is its control lane and brings a zero
// token; the server's welcome gives the session's token, which the other lanes present. A connection's requests are
// carried out in the order of their frames, which is what makes `fence` hold, and each is answered once. A connection
// whose hello names lane_stream is no lane: after its welcome no frame follows, and it carries what the owner of the
// session and the service have agreed on.
#pragma once

#include "base/base.h"
#include <bit>
#include <span>

namespace fm::fabric::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is the host's own byte order");

constexpr std::uint32_t magic = 0x31464d46;  // "FMF1"
constexpr std::uint8_t version_major = 1;
constexpr std::uint8_t version_minor = 0;
/// Largest payload of one read or write frame: a miss never queues behind more than this.
constexpr std::uint32_t chunk_bytes = 64u << 10;
/// Notices that may be unacknowledged; a server that has more to say is told so by peer::notify.
constexpr std::uint32_t notices_max = 256;
/// No message may be larger, whatever the options say.
constexpr std::uint32_t message_bytes_limit = 64u << 20;

enum class frame_type : std::uint8_t {
  hello = 1,
  welcome = 2,
  read = 3,
  write = 4,
  compare_swap = 5,
  fetch_add = 6,
  message = 7,
  answer = 8,
  notice = 9,
  notice_ack = 10,
};

constexpr std::uint8_t flag_fence = 1;  ///< requests: after all earlier ones of this connection
constexpr std::uint8_t flag_key = 2;    ///< answers: `offset` is the token of a memory key
constexpr std::uint8_t flag_fd = 4;     ///< answers: a descriptor came with this frame (shm:// only)

#pragma pack(push, 1)

struct frame_header {
  std::uint32_t magic;
  std::uint8_t major, minor, type, flags;
  std::uint32_t length;  ///< of the payload
  std::uint32_t bytes;
  std::uint64_t op;  ///< chosen by the client, returned in the answer
  std::uint32_t region, generation;
  std::uint64_t offset;
  std::uint16_t status;  ///< fm::errc
  std::uint8_t zero[6];
};

struct hello_body {
  std::uint16_t lane;        ///< fabric::lane, or lane_stream
  std::uint16_t lane_index;  ///< among the lanes of that kind
  std::uint32_t generation;  ///< of the session, as the client counts
  std::uint64_t token[2];    ///< zero on a session's first connection
  std::uint64_t features;
  std::uint32_t message_bytes_max;  ///< the largest answer or notice that the client takes
  std::uint32_t zero;
};

struct welcome_body {
  std::uint64_t token[2];
  std::uint64_t features;     ///< those of the hello that the server has too
  std::uint64_t incarnation;  ///< of the server process, random
  std::uint32_t message_bytes_max;
  std::uint32_t requests_in_flight;
};

struct atomic_body {
  std::uint64_t operand, compare;
};

#pragma pack(pop)

static_assert(sizeof(frame_header) == 48 && sizeof(hello_body) == 40 && sizeof(welcome_body) == 40);

/// The last errc that a status can be.
constexpr std::uint16_t status_last = static_cast<std::uint16_t>(errc::under_replicated);

/// Features that this build knows; none are defined in 1.0.
constexpr std::uint64_t features_known = 0;

/// In place of a fabric::lane in a hello: a stream, whose number is its lane_index.
constexpr std::uint16_t lane_stream = 3;

enum class receiver : std::uint8_t { client, server };

/// A header that may go out: everything zero but what every frame has.
[[nodiscard]] constexpr frame_header make_header(frame_type type, std::uint32_t length = 0) noexcept {
  frame_header h{};
  h.magic = magic;
  h.major = version_major;
  h.minor = version_minor;
  h.type = static_cast<std::uint8_t>(type);
  h.length = length;
  return h;
}

struct decoded {
  errc code = errc::ok;          ///< ok, bad_frame, version_mismatch, too_large
  const char* reason = nullptr;  ///< a constant text, when not ok
};

/// Checks a header as it came: magic, version, type, direction, reserved bits, and the length against its cap. When ok,
/// `out` is safe to act on, and `out.length` bytes of payload follow.
decoded decode_header(std::span<const std::byte, sizeof(frame_header)> bytes, receiver to,
                      std::uint32_t message_bytes_max, frame_header& out) noexcept;
/// Checks the payload of a hello or a welcome.
decoded decode_hello(std::span<const std::byte> payload, hello_body& out) noexcept;
decoded decode_welcome(std::span<const std::byte> payload, welcome_body& out) noexcept;

/// A status from the wire as an errc; bad_frame for numbers that no errc has.
[[nodiscard]] errc status_of(const frame_header& h) noexcept;

}  // namespace fm::fabric::wire
