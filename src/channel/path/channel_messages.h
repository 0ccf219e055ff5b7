// The messages between the two ends of a channel, on top of a fabric session: the end that connected sends messages,
// the end that listened sends notices. Little-endian packed structs; decoding allocates nothing and trusts nothing.
//
//   kind      from       number        a                     b                    payload
//   hello     connector  0             window, bytes         part_bytes, parts    -        answered by a hello; both with flag_ring:
//                                                                                          parts go through shared memory (ring.h),
//                                                                                          whose descriptor comes with the answer;
//                                                                                          with flag_stream through two streams
//                                                                                          (stream.h), which the connector opens
//                                                                                          then, the first for its own parts
//   part      sender     graph         sequence              at the end: objects  a part of a graph
//   credit    receiver   0             bytes consumed        parts consumed       -
//   verdict   receiver   graph         bytes consumed        parts consumed       text, when the status is not ok
//   ask       receiver   0             schema hash           -                    -
//   describe  sender     0             schema hash           -                    the schema's description
//   bye       either     0             -                     -                    -
//   want      sender     0             graphs                parts                -        over streams: tell totals when these
//                                                                                          graphs are judged, and when so many
//                                                                                          parts are consumed, if not 0
//   aside     sender     0             place in the stream   -                    bytes that belong there and do not come by it
//
// A graph is a stream of payloads, one after the other, cut into parts; each part is a multiple of 8 bytes.
//
//   object    its payload as it lies in the frame, up to a multiple of 8
//   array     8 bytes length, its elements, up to a multiple of 8
//   fm::ref   0 null; otherwise 1 + the number of the object that it refers to. The root is object 0. When a reference names
//             the number of objects known so far, it makes an object known: the next number. Any other number is one that is known.
//   one_of    an object that was made known by a reference to an fm::one_of: 8 bytes, the place of its type among the
//             alternatives, then the object
//   container of each batch 8 bytes with the number of entries, then these, as elements of an array, up to a multiple of 8. A
//             full batch has batch_entries() (farmem/detail/graph/containers.h); one with fewer is the last. All that a batch
//             makes known comes before the next. Keys of an fm::map or fm::set ascend.
//   order     depth first. The objects that an object makes known come directly after it, each with all that it makes known
//             before the next. So the receiver knows, at every byte, which object it belongs to and which field made it known.
//
// Nothing else travels: no type (farmem/detail/graph/schema.h), no size, no list of back-references. With flag_each,
// the graph has no root object but many: 8 bytes with their count; then for every 64 of them a word of bits, a
// reference for each clear bit, and what they make known. Bit i set: root i is the next object to become known. Clear:
// the reference is null, or names a known object.
#pragma once

#include "base/base.h"
#include <bit>
#include <span>
#include <string>

namespace fm::detail::channel_wire {

static_assert(std::endian::native == std::endian::little, "the wire format is the host's own byte order");

constexpr std::uint32_t magic = 0x31434d46;  // "FMC1"
constexpr std::uint8_t version_major = 4;

enum class kind : std::uint8_t {
  hello = 1,
  part = 2,
  credit = 3,
  verdict = 4,
  ask = 5,
  describe = 6,
  bye = 7,
  want = 8,
  aside = 9
};

constexpr std::uint16_t flag_first = 1;    ///< of a graph; its payload begins with the schema's hash
constexpr std::uint16_t flag_last = 2;     ///< the graph is complete
constexpr std::uint16_t flag_abort = 4;    ///< the sender gave the graph up: status, and a text as payload
constexpr std::uint16_t flag_acyclic = 8;  ///< every reference makes an object known
constexpr std::uint16_t flag_each = 16;    ///< many roots and no array around them
constexpr std::uint16_t flag_wanted = 32;  ///< over a stream: totals are to be told when the graph is judged
constexpr std::uint16_t flags_known = 63;
constexpr std::uint16_t flag_ring = 1, flag_stream = 2;  ///< of a hello, one of them at most

#pragma pack(push, 1)
struct head {
  std::uint32_t magic;
  std::uint8_t version;
  std::uint8_t kind;
  std::uint16_t flags;
  std::uint16_t status;  ///< fm::errc
  std::uint16_t zero;
  std::uint32_t bytes;  ///< of the payload
  std::uint64_t number;
  std::uint64_t a, b;
};
#pragma pack(pop)
static_assert(sizeof(head) == 40);

constexpr std::uint32_t text_bytes_max = 64u << 10;   ///< of a verdict, an abort, a description
constexpr std::uint32_t part_bytes_max = 512u << 10;  ///< of a part's payload
constexpr std::uint32_t part_bytes_min = 1u << 10;
/// Of what goes aside: a part and the one that gives its graph up, with their heads, and a text of 2 KiB.
constexpr std::uint32_t aside_bytes_max = part_bytes_max + 3072;
constexpr std::uint32_t window_parts_max =
    64;  ///< with verdicts and credits well below the notices that a peer may have waiting
constexpr std::uint64_t window_bytes_max = 1ull << 30;

[[nodiscard]] constexpr head make(kind k, std::uint64_t number = 0) noexcept {
  head h{};
  h.magic = magic;
  h.version = version_major;
  h.kind = static_cast<std::uint8_t>(k);
  h.number = number;
  return h;
}

/// Checks a message as it came: magic, version, kind, flags, status, and that the payload is all that follows, with
/// `rest` bytes that are still to come. ok, version_mismatch or bad_frame. When ok, `payload` is what follows the head.
errc decode(std::span<const std::byte> message, head& h, std::span<const std::byte>& payload,
            std::uint64_t rest = 0) noexcept;
/// What the other end says of a refusal, fit to be shown: at most 2 KiB, and nothing that a terminal would act on.
[[nodiscard]] std::string text_of(std::span<const std::byte> bytes);

}  // namespace fm::detail::channel_wire
