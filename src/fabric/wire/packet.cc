// Decoding what verbs:// sends, and putting messages together from packets; see packet.h. Takes nothing on trust: an
// impossible field costs the sender its connection. Decoding keeps no state; an assembly belongs to one lane.
#include "packet.h"

#include <cstring>

namespace fm::fabric::packet {
namespace {

using wire::decoded;

constexpr decoded bad(const char* reason) { return {errc::bad_frame, reason}; }

template <class T>
T read(std::span<const std::byte> bytes) noexcept {
  T t;
  std::memcpy(&t, bytes.data(), sizeof t);
  return t;
}

template <class T>
decoded check_head(const T& t) noexcept {
  if (t.magic != magic) return bad("no farmem verbs peer");
  if (t.major != version_major) return {errc::version_mismatch, "another major version"};
  return {};
}

}  // namespace

decoded decode(std::span<const std::byte> received, wire::receiver to, std::uint32_t message_bytes_max,
               header& out) noexcept {
  if (received.size() < sizeof(header) || received.size() > bytes_max) return bad("a packet of a wrong size");
  const auto h = read<header>(received);
  if (h.length != received.size() - sizeof(header)) return bad("a length that is not the packet's");
  if (h.zero != 0 || h.status != 0) return bad("reserved bytes are set");
  if (h.credits > credits_max) return bad("more credit than there are buffers");
  const bool to_server = to == wire::receiver::server;
  std::uint8_t flags = flag_first | flag_last;
  switch (static_cast<type>(h.type)) {
    case type::message:
      if (!to_server) return bad("a packet of the other direction");
      break;
    case type::answer:
      if (to_server) return bad("a packet of the other direction");
      flags |= flag_key;
      break;
    case type::notice:
      if (to_server) return bad("a packet of the other direction");
      if (h.op != 0) return bad("op id where none belongs");
      break;
    case type::notice_ack:
      if (!to_server) return bad("a packet of the other direction");
      if (h.value > wire::notices_max) return {errc::too_large, "more notices than can be outstanding"};
      [[fallthrough]];
    case type::credit:
      if (h.flags != 0 || h.length != 0 || h.op != 0 || h.total != 0) return bad("fields that do not belong");
      if (static_cast<type>(h.type) == type::credit && h.value != 0) return bad("a value where none belongs");
      out = h;
      return {};
    default: return bad("unknown packet type");
  }
  if ((h.flags & ~flags) != 0) return bad("reserved flags are set");
  if (h.total > message_bytes_max) return {errc::too_large, "a message over its cap"};
  if (h.length > h.total) return bad("a packet longer than its message");
  if (h.length == 0 && h.total != 0) return bad("an empty packet of a message that is not");
  if ((h.flags & flag_key) == 0 && h.value != 0) return bad("a value where none belongs");
  out = h;
  return {};
}

decoded decode_hello(std::span<const std::byte, sizeof(hello)> bytes, hello& out) noexcept {
  const auto h = read<hello>(bytes);
  if (const auto d = check_head(h); d.code != errc::ok) return d;
  if (h.lanes < 3 || h.lanes > lanes_max) return bad("a number of lanes that no session has");
  if (h.generation == 0) return bad("generation 0");
  if (h.message_bytes_max > wire::message_bytes_limit) return {errc::too_large, "message_bytes_max over the limit"};
  out = h;
  return {};
}

decoded decode_welcome(std::span<const std::byte, sizeof(welcome)> bytes, welcome& out) noexcept {
  const auto w = read<welcome>(bytes);
  if (const auto d = check_head(w); d.code != errc::ok) return d;
  if (w.zero[0] != 0 || w.zero[1] != 0 || w.zero[2] != 0) return bad("reserved bytes are set");
  if (w.status > wire::status_last) return bad("unknown status");
  if (w.status == 0 && w.port == 0) return bad("no port");
  if (w.message_bytes_max > wire::message_bytes_limit) return {errc::too_large, "message_bytes_max over the limit"};
  out = w;
  return {};
}

decoded decode_join(std::span<const std::byte> bytes, join& out) noexcept {
  if (bytes.size() < sizeof(join)) return bad("private data that is too short");
  const auto j = read<join>(bytes);
  if (const auto d = check_head(j); d.code != errc::ok) return d;
  if (j.length != sizeof(join)) return bad("private data of a wrong length");
  if (j.lane >= lanes_max || j.zero != 0) return bad("no such lane");
  if (j.credits == 0 || j.credits > credits_max) return bad("a credit that no buffers are behind");
  out = j;
  return {};
}

decoded decode_joined(std::span<const std::byte> bytes, joined& out) noexcept {
  if (bytes.size() < sizeof(joined)) return bad("private data that is too short");
  const auto j = read<joined>(bytes);
  if (const auto d = check_head(j); d.code != errc::ok) return d;
  if (j.length != sizeof(joined) || j.zero != 0 || j.zero2 != 0) return bad("private data of a wrong length");
  if (j.credits == 0 || j.credits > credits_max) return bad("a credit that no buffers are behind");
  out = j;
  return {};
}

decoded decode_region_request(std::span<const std::byte, sizeof(region_request)> bytes, region_request& out) noexcept {
  const auto r = read<region_request>(bytes);
  const auto v = static_cast<verb>(r.verb);
  if (v != verb::attach && v != verb::detach) return bad("unknown request about a region");
  if (r.zero != 0) return bad("reserved bytes are set");
  if (v == verb::attach ? r.bytes == 0 : (r.bytes != 0 || r.generation != 0)) return bad("fields that do not belong");
  out = r;
  return {};
}

decoded assembly::take(const header& h, std::span<const std::byte> payload) {
  if (complete_) reset();
  const bool first = (h.flags & flag_first) != 0;
  if (first == active_) return bad(first ? "a message inside another" : "the middle of no message");
  if (first) {
    head_ = h;
    active_ = true;
    body_.clear();
  } else if (h.type != head_.type || h.op != head_.op || h.total != head_.total) {
    return bad("packets of several messages");
  }
  const std::uint64_t had = body_.size();
  const bool last = (h.flags & flag_last) != 0;
  if (had + payload.size() > h.total || last != (had + payload.size() == h.total)) return bad("a wrong total");
  if (first && last) {
    whole_ = payload;  // where it was received: no copy
  } else {
    body_.insert(body_.end(), payload.begin(), payload.end());
    whole_ = body_;
  }
  if (last) {
    active_ = false;
    complete_ = true;
  }
  return {};
}

std::vector<std::byte> assembly::take_whole() {
  std::vector<std::byte> kept;
  if (!body_.empty())
    kept = std::move(body_);
  else
    kept.assign(whole_.begin(), whole_.end());
  reset();
  return kept;
}

void assembly::reset() noexcept {
  active_ = complete_ = false;
  body_.clear();
  whole_ = {};
}

}  // namespace fm::fabric::packet
