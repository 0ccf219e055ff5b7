// The packets that verbs:// puts on its connections besides one-sided operations. Decoding is pure and takes nothing on
// trust.
//
// A session begins on a TCP connection: hello, welcome. The welcome brings a session id, to be used once, and the port
// of the connection manager. Each lane then is a queue pair; its private data (56 bytes at most, and padded on the way,
// so it carries its own length) presents the id. The TCP connection stays: on it regions are attached and detached, and
// its end is the session's end.
//
// Messages go as packets over send and receive, one packet to a posted receive buffer. A message larger than a packet
// is several in a row; those of one direction of a lane never interleave.
//
//   byte  0     1      2        4       8    16     20      22    24     32
//         type  flags  credits  length  op   total  status  zero  value  payload…
//
//   type        from    other fields used (all others must be zero)
//   message     client  flags first, last; length; op; total (bytes of the whole message)
//   answer      server  flags first, last, key; length; op; total; value: the key's token
//   notice      server  flags first, last; length; total
//   notice_ack  client  value: how many notices have been handled
//   credit      both    -
//
// Credits: a side may send as many packets (other than `credit`) as the other has said it has posted buffers for. Every
// packet gives back what was consumed since; `credit` does it when nothing else is said, and has buffers put aside. An
// agent whose lanes share their buffers begins with less than credits_max, and gives more or less back than was
// consumed.
#pragma once

#include "wire.h"
#include <vector>

namespace fm::fabric::packet {

constexpr std::uint32_t magic = 0x31564d46;  // "FMV1"
constexpr std::uint8_t version_major = 1;
constexpr std::uint8_t version_minor = 0;
constexpr std::uint32_t bytes_max = 4096;  ///< of a packet, header included
constexpr std::uint32_t lanes_max = 66;
/// Receive buffers of a lane that has its own, and those among them that only `credit` packets use: at most two of
/// these are on the way at a time, because each follows half of the credit having been used, or by the agent's
/// bookkeeping.
constexpr std::uint32_t receives = 64;
constexpr std::uint32_t receives_aside = 4;
constexpr std::uint32_t credits_max = receives - receives_aside;

enum class type : std::uint8_t { message = 1, answer = 2, notice = 3, notice_ack = 4, credit = 5 };

constexpr std::uint8_t flag_first = 1;
constexpr std::uint8_t flag_last = 2;
constexpr std::uint8_t flag_key = 4;

#pragma pack(push, 1)

struct header {
  std::uint8_t type, flags;
  std::uint16_t credits;  ///< receive buffers that were posted again since the last packet
  std::uint32_t length;   ///< of this packet's payload
  std::uint64_t op;
  std::uint32_t total;
  std::uint16_t status, zero;
  std::uint64_t value;
};

struct hello {
  std::uint32_t magic;
  std::uint8_t major, minor;
  std::uint16_t lanes;
  std::uint32_t generation, message_bytes_max;
};

struct welcome {
  std::uint32_t magic;
  std::uint8_t major, minor;
  std::uint16_t status;  ///< fm::errc
  std::uint64_t id[2];
  std::uint64_t incarnation;
  std::uint32_t message_bytes_max, requests_in_flight;
  std::uint16_t port, zero[3];
};

/// Private data of a connection request.
struct join {
  std::uint32_t magic;
  std::uint8_t major, length;
  std::uint16_t lane;
  std::uint64_t id[2];
  std::uint32_t credits, zero;
};

/// Private data of its acceptance.
struct joined {
  std::uint32_t magic;
  std::uint8_t major, length;
  std::uint16_t zero;
  std::uint32_t credits, zero2;
};

enum class verb : std::uint32_t { attach = 1, detach = 2 };

/// On the TCP connection, by the client, one at a time; each is answered.
struct region_request {
  std::uint32_t verb, region, generation, zero;
  std::uint64_t bytes;
};

struct region_answer {
  std::uint16_t status, writable;
  std::uint32_t rkey;
  std::uint64_t address;
};

#pragma pack(pop)

static_assert(sizeof(header) == 32 && sizeof(hello) == 16 && sizeof(welcome) == 48 && sizeof(join) == 32 &&
              sizeof(joined) == 16 && sizeof(region_request) == 24 && sizeof(region_answer) == 16);
static_assert(sizeof(join) <= 56 && sizeof(joined) <= 56, "what InfiniBand lets a connection request carry");

constexpr std::uint32_t payload_max = bytes_max - sizeof(header);

/// A packet as it was received. When ok, `out` is safe to act on and its payload is `received` from byte 32 on.
wire::decoded decode(std::span<const std::byte> received, wire::receiver to, std::uint32_t message_bytes_max,
                     header& out) noexcept;
wire::decoded decode_hello(std::span<const std::byte, sizeof(hello)> bytes, hello& out) noexcept;
wire::decoded decode_welcome(std::span<const std::byte, sizeof(welcome)> bytes, welcome& out) noexcept;
/// Private data, with whatever padding came behind it.
wire::decoded decode_join(std::span<const std::byte> bytes, join& out) noexcept;
wire::decoded decode_joined(std::span<const std::byte> bytes, joined& out) noexcept;
wire::decoded decode_region_request(std::span<const std::byte, sizeof(region_request)> bytes,
                                    region_request& out) noexcept;

/// Puts the packets of one message together.
class assembly {
 public:
  /// Takes the next packet of its direction. Not ok: the sender broke the protocol. `whole` becomes the message when
  /// this packet completes it (good until the next call), and `complete` says so; `head` is of its first packet.
  wire::decoded take(const header& h, std::span<const std::byte> payload);
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] const header& head() const noexcept { return head_; }
  [[nodiscard]] std::span<const std::byte> whole() const noexcept { return whole_; }
  /// The message's bytes, to keep.
  std::vector<std::byte> take_whole();
  void reset() noexcept;

 private:
  header head_{};
  bool active_ = false, complete_ = false;
  std::vector<std::byte> body_;
  std::span<const std::byte> whole_;
};

}  // namespace fm::fabric::packet
