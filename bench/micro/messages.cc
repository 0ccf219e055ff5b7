// Encoding and decoding of the messages that are sent most often, of a heap (protocol/heap_messages.h) and of a pool, and of the
// frames and packets that carry them. Encoding makes the bytes as they are sent; decoding checks them as their receiver does, up to
// where their meaning begins. Nothing is sent.
#include <cstring>

#include "base/crc32c.h"
#include "channel/path/channel_messages.h"
#include "fabric/wire/packet.h"
#include "fabric/wire/wire.h"
#include "fixture.h"
#include "protocol/heap_codec.h"
#include "protocol/pool_messages.h"

namespace fm::micro {
namespace {

namespace codec = fm::protocol::codec;
namespace wire = fm::fabric::wire;
namespace packet = fm::fabric::packet;
namespace channel_wire = fm::detail::channel_wire;
using protocol::message_type;

constexpr std::uint32_t message_bytes_max = 1 << 20;

void count_messages(benchmark::State& state, std::size_t bytes) {
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

template <class T>
std::vector<std::byte> bytes_of(const T& t, std::size_t more = 0) {
  std::vector<std::byte> bytes(sizeof t + more);
  std::memcpy(bytes.data(), &t, sizeof t);
  return bytes;
}

// ---- messages with one fixed body ----

template <class Body>
void encode_body(benchmark::State& state, message_type type, Body body) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(body);
    auto message = codec::frame(type, body);
    benchmark::DoNotOptimize(message);
  }
  count_messages(state, sizeof(codec::framed<Body>));
}

/// As an agent takes a message apart.
template <class Body>
void decode_body(benchmark::State& state, message_type type, const Body& sent) {
  const auto bytes = bytes_of(codec::frame(type, sent));
  for (auto _ : state) {
    std::span<const std::byte> rest(bytes);
    benchmark::DoNotOptimize(rest);
    protocol::message_head head;
    Body body{};
    const bool good = codec::take(rest, head) && head.zero == 0 && head.body_bytes == rest.size() &&
                      codec::take(rest, body) && rest.empty();
    benchmark::DoNotOptimize(body);
    if (!good) state.SkipWithError("the message was refused");
  }
  count_messages(state, bytes.size());
}

const protocol::index_body an_index{
    .incarnation = 7, .seq = 9, .region = 3, .generation = 1, .offset = 4096, .length = 640};
const protocol::fetch_slot_body a_fetch{.slot = 4711, .with_page = 1, .bytes_max = 4096};
const protocol::read_entries_body a_read{.first_slot = 65536, .count = 512};
const protocol::pool_alloc_body an_alloc{.change = {.number = 5, .stream = 2}, .bytes = 64};
const protocol::pool_read_body a_pool_read{.object = {.vblock = 3, .generation = 1, .index = 5, .slot = 6},
                                           .bytes_max = 64};
const protocol::pool_object_body a_free{.change = {.number = 5, .stream = 2}, .object = {.vblock = 3, .generation = 1}};

BENCHMARK_CAPTURE(encode_body, , message_type::index, an_index)->Name("message/index/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::index, an_index)->Name("message/index/decode");
BENCHMARK_CAPTURE(encode_body, , message_type::fetch_slot, a_fetch)->Name("message/fetch_slot/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::fetch_slot, a_fetch)->Name("message/fetch_slot/decode");
BENCHMARK_CAPTURE(encode_body, , message_type::read_entries, a_read)->Name("message/read_entries/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::read_entries, a_read)->Name("message/read_entries/decode");
BENCHMARK_CAPTURE(encode_body, , message_type::pool_alloc, an_alloc)->Name("message/pool_alloc/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::pool_alloc, an_alloc)->Name("message/pool_alloc/decode");
BENCHMARK_CAPTURE(encode_body, , message_type::pool_read, a_pool_read)->Name("message/pool_read/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::pool_read, a_pool_read)->Name("message/pool_read/decode");
BENCHMARK_CAPTURE(encode_body, , message_type::pool_free, a_free)->Name("message/pool_free/encode");
BENCHMARK_CAPTURE(decode_body, , message_type::pool_free, a_free)->Name("message/pool_free/decode");

// ---- answers ----

template <class Body>
std::vector<std::byte> answer_of(message_type type, const Body& body, std::size_t more) {
  const struct {
    protocol::answer_head head;
    Body body{};
  } answer{{.type = static_cast<std::uint16_t>(type), .body_bytes = static_cast<std::uint32_t>(sizeof body + more)},
           body};
  static_assert(sizeof answer == sizeof(protocol::answer_head) + sizeof(Body));
  return bytes_of(answer, more);
}

/// As an owner takes an answer apart, up to the bytes that follow its fixed part.
template <class Body>
void decode_answer(benchmark::State& state, message_type type, const Body& sent, std::size_t more) {
  const auto bytes = answer_of(type, sent, more);
  for (auto _ : state) {
    std::span<const std::byte> reply(bytes);
    benchmark::DoNotOptimize(reply);
    codec::answer_view v = codec::parse_answer(reply, type);
    Body body{};
    const bool good = v.code == errc::ok && codec::take(v.body, body) && v.body.size() == more;
    benchmark::DoNotOptimize(body);
    if (!good) state.SkipWithError("the answer was refused");
  }
  count_messages(state, bytes.size());
}

BENCHMARK_CAPTURE(decode_answer, , message_type::index, protocol::index_answer{.applied_seq = 9}, 0)
    ->Name("message/index/decode_answer");
BENCHMARK_CAPTURE(decode_answer, , message_type::fetch_slot,
                  protocol::fetch_slot_answer{.page_entries = 512, .bytes = 72}, 512 * 8 + 72)
    ->Name("message/fetch_slot/decode_answer");

// ---- appending ----

/// A batch of home copies of 72 bytes, written into a region: copies back to back, then the header with the checksum.
void append_batch(benchmark::State& state) {
  constexpr std::size_t copy_bytes = 72;
  const std::vector<std::byte> copy(copy_bytes, std::byte{0x5a});
  const auto count = static_cast<std::uint32_t>(state.range(0));
  std::vector<std::byte> bytes(sizeof(protocol::batch_header) + count * copy_bytes);
  std::uint64_t seq = 0;
  for (auto _ : state) {
    std::byte* at = bytes.data() + sizeof(protocol::batch_header);
    for (std::uint32_t i = 0; i < count; ++i, at += copy_bytes) std::memcpy(at, copy.data(), copy_bytes);
    protocol::batch_header h{.magic = protocol::batch_magic,
                             .crc = 0,
                             .seq = ++seq,
                             .length = static_cast<std::uint32_t>(bytes.size()),
                             .count = count};
    std::memcpy(bytes.data(), &h, sizeof h);
    h.crc = detail::crc32c(bytes.data(), bytes.size());
    std::memcpy(bytes.data(), &h, sizeof h);
    benchmark::ClobberMemory();
  }
  count_messages(state, bytes.size());
}
BENCHMARK(append_batch)->Name("message/append/encode")->ArgName("objects")->Arg(1)->Arg(64)->Arg(1024);

// ---- frames of stream transports ----

/// A one-sided request, or the head of a message.
void encode_frame(benchmark::State& state, wire::frame_type type) {
  std::uint64_t op = 0;
  for (auto _ : state) {
    wire::frame_header h = wire::make_header(type);
    h.op = ++op;
    if (type != wire::frame_type::message) {
      h.region = 3;
      h.generation = 1;
      h.offset = op * 64;
    }
    if (type == wire::frame_type::read)
      h.bytes = 72;
    else
      h.length = 72;
    benchmark::DoNotOptimize(h);
  }
  count_messages(state, sizeof(wire::frame_header));
}

void decode_frame(benchmark::State& state, wire::frame_type type) {
  wire::frame_header sent = wire::make_header(type, type == wire::frame_type::read ? 0 : 72);
  const bool is_answer = type == wire::frame_type::answer;
  if (type == wire::frame_type::read) sent.bytes = 72;
  if (type == wire::frame_type::read || type == wire::frame_type::write) sent.region = 3;
  const auto bytes = bytes_of(sent);
  const auto to = is_answer ? wire::receiver::client : wire::receiver::server;
  for (auto _ : state) {
    const std::byte* at = bytes.data();
    benchmark::DoNotOptimize(at);
    wire::frame_header h;
    const auto d = wire::decode_header(std::span<const std::byte, sizeof h>(at, sizeof h), to, message_bytes_max, h);
    benchmark::DoNotOptimize(h);
    if (d.code != errc::ok) state.SkipWithError(d.reason);
  }
  count_messages(state, sizeof(wire::frame_header));
}

BENCHMARK_CAPTURE(encode_frame, , wire::frame_type::read)->Name("frame/read/encode");
BENCHMARK_CAPTURE(decode_frame, , wire::frame_type::read)->Name("frame/read/decode");
BENCHMARK_CAPTURE(encode_frame, , wire::frame_type::write)->Name("frame/write/encode");
BENCHMARK_CAPTURE(decode_frame, , wire::frame_type::write)->Name("frame/write/decode");
BENCHMARK_CAPTURE(encode_frame, , wire::frame_type::message)->Name("frame/message/encode");
BENCHMARK_CAPTURE(decode_frame, , wire::frame_type::message)->Name("frame/message/decode");
BENCHMARK_CAPTURE(decode_frame, , wire::frame_type::answer)->Name("frame/answer/decode");

// ---- packets of verbs:// ----

packet::header packet_header(std::uint32_t length, std::uint32_t total, std::uint8_t flags) {
  packet::header h{};
  h.type = static_cast<std::uint8_t>(packet::type::message);
  h.flags = flags;
  h.length = length;
  h.op = 7;
  h.total = total;
  return h;
}

/// A message of state.range(0) bytes: its packets are decoded and put together.
void decode_packets(benchmark::State& state) {
  const auto total = static_cast<std::uint32_t>(state.range(0));
  std::vector<std::vector<std::byte>> packets;
  for (std::uint32_t at = 0; at < total; at += packet::payload_max) {
    const std::uint32_t length = std::min(packet::payload_max, total - at);
    const auto flags =
        static_cast<std::uint8_t>((at == 0 ? packet::flag_first : 0) | (at + length == total ? packet::flag_last : 0));
    packets.push_back(bytes_of(packet_header(length, total, flags), length));
  }
  packet::assembly message;
  for (auto _ : state) {
    for (const auto& p : packets) {
      packet::header h;
      auto d = packet::decode(p, wire::receiver::server, message_bytes_max, h);
      if (d.code == errc::ok) d = message.take(h, std::span(p).subspan(sizeof h));
      if (d.code != errc::ok) state.SkipWithError(d.reason);
    }
    benchmark::DoNotOptimize(message.whole());
  }
  count_messages(state, total);
}
BENCHMARK(decode_packets)->Name("packet/message/decode")->ArgName("bytes")->Arg(64)->Arg(4096)->Arg(64 << 10);

// ---- heads of a channel's messages ----

void encode_part(benchmark::State& state) {
  std::uint64_t graph = 0;
  for (auto _ : state) {
    channel_wire::head h = channel_wire::make(channel_wire::kind::part, ++graph);
    h.flags = channel_wire::flag_first | channel_wire::flag_last;
    h.bytes = 64;
    benchmark::DoNotOptimize(h);
  }
  count_messages(state, sizeof(channel_wire::head));
}
BENCHMARK(encode_part)->Name("channel/part/encode");

void decode_part(benchmark::State& state) {
  channel_wire::head sent = channel_wire::make(channel_wire::kind::part, 1);
  sent.flags = channel_wire::flag_first | channel_wire::flag_last;
  sent.bytes = 64;
  const auto bytes = bytes_of(sent, 64);
  for (auto _ : state) {
    std::span<const std::byte> message(bytes), payload;
    benchmark::DoNotOptimize(message);
    channel_wire::head h;
    if (channel_wire::decode(message, h, payload) != errc::ok) state.SkipWithError("the head was refused");
    benchmark::DoNotOptimize(payload);
  }
  count_messages(state, sizeof(channel_wire::head));
}
BENCHMARK(decode_part)->Name("channel/part/decode");

}  // namespace
}  // namespace fm::micro
