// Handling the frames of one accepted connection: handshake, one-sided operations, messages, notices; see
// server_connection.h. Owns the order of a lane: requests are carried out as their frames came. Called by the
// connection's I/O thread alone.
#include "server_connection.h"
#include "base/limits.h"

#include "base/log.h"
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fabric/wire/one_sided.h"

namespace fm::fabric {

using wire::frame_type;

server_connection::server_connection(connection_host& host, descriptor socket, std::uint64_t id, std::string name,
                                     bool descriptors)
    : host_(host),
      socket_(std::move(socket)),
      id_(id),
      name_(std::move(name)),
      descriptors_(descriptors),
      progress_(clock::now()),
      in_(new std::byte[fabric_limits::stream_in_bytes]) {}

server_connection::~server_connection() {
  if (held_) host_.served().memory_done(*peer_, header_.region);
  output_.release([this](std::uint32_t region) { host_.served().memory_done(*peer_, region); });
  if (peer_) peer_->leave(id_);
}

bool server_connection::protocol_error(errc why, const char* reason) {
  log::warn("{}: connection closed: {}: {}", name_, to_string(why), reason);
  return false;
}

bool server_connection::flush() {
  const bool alive =
      output_.flush(socket_.get(), [this](std::uint32_t region) { host_.served().memory_done(*peer_, region); });
  return alive && !(refused_ && output_.empty());
}

/// Carries out what is in the buffer and sends the answers, until the buffer holds no whole frame or the socket is
/// full.
bool server_connection::run() {
  for (;;) {
    const bool good = process();
    if (!flush() || !good) return false;
    if (!output_was_full_ || output_.full()) return true;
  }
}

bool server_connection::on_writable() {
  progress_ = clock::now();
  return flush() && (output_.full() || run());
}

bool server_connection::send_notices() {
  if (!open()) return true;
  if (output_.empty()) progress_ = clock::now();  // it may have been idle for long
  for (const auto& n : peer_->take_notices()) {
    const auto h = wire::make_header(frame_type::notice, std::uint32_t(n.size()));
    output_.append(std::as_bytes(std::span(&h, 1)));
    output_.append(n);
  }
  return flush();
}

bool server_connection::on_readable() {
  // A few rounds at most, so that one busy connection does not keep the others of this thread waiting.
  for (int round = 0; round < 16 && wants_input(); ++round) {
    std::array<iovec, 2> to;
    std::size_t parts = 0, direct = 0;
    if (active_ && to_ && left_ != 0) {
      direct = left_;
      to[parts++] = {to_, direct};
      in_begin_ = in_end_ = 0;  // the buffer's bytes went before the rest of the payload
    }
    if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
    // On a bulk lane little is read ahead, so that payloads are received where they belong instead of being copied.
    const std::size_t ahead = (open() && kind_ == lane::bulk) || direct >= 4096 ? 512 : fabric_limits::stream_in_bytes;
    to[parts++] = {in_.get() + in_end_, std::min(ahead, fabric_limits::stream_in_bytes - in_end_)};
    const std::size_t asked = direct + to[parts - 1].iov_len;
    const io_result got = receive_some(socket_.get(), std::span(to.data(), parts), nullptr);
    if (got.outcome == io_result::gone) return false;
    if (got.outcome == io_result::again) break;
    ++receipts_;
    if (open()) progress_ = clock::now();  // before that, the deadline of the handshake does not move
    const std::size_t placed = std::min(got.bytes, direct);
    if (placed != 0) to_ += placed;
    left_ -= placed;
    in_end_ += got.bytes - placed;
    if (!run()) return false;
    if (got.bytes < asked) break;
  }
  return true;
}

bool server_connection::process() {
  output_was_full_ = false;
  while (!refused_ && !is_stream_) {
    if (output_.full()) {
      output_was_full_ = true;
      break;
    }
    if (!active_) {
      if (in_end_ - in_begin_ < sizeof header_) break;
      const auto head = std::span<const std::byte, sizeof header_>(in_.get() + in_begin_, sizeof header_);
      const auto d = wire::decode_header(head, wire::receiver::server, host_.limits().message_bytes_max, header_);
      if (d.code == errc::version_mismatch && !open()) {
        auto h = wire::make_header(frame_type::welcome, sizeof(wire::welcome_body));
        h.status = std::uint16_t(errc::version_mismatch);
        const wire::welcome_body none{};
        output_.append(std::as_bytes(std::span(&h, 1)));
        output_.append(std::as_bytes(std::span(&none, 1)));
      }
      if (d.code != errc::ok) return protocol_error(d.code, d.reason);
      if (open() == (header_.type == std::uint8_t(frame_type::hello)))
        return protocol_error(errc::bad_frame, open() ? "a second hello" : "a request before the hello");
      in_begin_ += sizeof header_;
      if (!begin()) return false;
    }
    const std::size_t n = std::min<std::uint64_t>(left_, in_end_ - in_begin_);
    const bool in_place = to_ == nullptr && left_ != 0 && header_.type != std::uint8_t(frame_type::write);
    if (in_place) {
      // Small frames and whole messages are read where they are; a message that is split gets a body of its own.
      if (n < left_) {
        body_.resize(header_.length);
        to_ = body_.data();
      } else {
        const std::span<const std::byte> payload(in_.get() + in_begin_, n);
        in_begin_ += n;
        left_ = 0;
        active_ = false;
        const auto type = static_cast<frame_type>(header_.type);
        const bool good = type == frame_type::message ? message(payload)
                          : type == frame_type::hello ? hello(payload)
                                                      : atomic(payload);
        if (!good) return false;
        continue;
      }
    }
    if (to_ && n != 0) {
      std::memcpy(to_, in_.get() + in_begin_, n);
      to_ += n;
    }
    in_begin_ += n;
    left_ -= n;
    if (left_ != 0) break;
    if (!finish()) return false;
  }
  if (in_begin_ != 0 && (in_begin_ == in_end_ || fabric_limits::stream_in_bytes - in_end_ < sizeof header_ ||
                         in_end_ - in_begin_ < sizeof header_)) {
    std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  return true;
}

bool server_connection::begin() {
  active_ = true;
  left_ = header_.length;
  to_ = nullptr;
  if (header_.type == std::uint8_t(frame_type::write)) {
    to_ = host_.served().memory(*peer_, where(), header_.length, access::write);
    held_ = to_ != nullptr;
    // A denied write is received all the same and thrown away; the answer says so.
    body_.clear();
    if (!held_) header_.status = std::uint16_t(errc::access_denied);
  }
  return true;
}

/// The frame is complete, except for those that process() hands on from the buffer.
bool server_connection::finish() {
  active_ = false;
  to_ = nullptr;
  switch (static_cast<frame_type>(header_.type)) {
    case frame_type::read: return read();
    case frame_type::write:
      if (held_) host_.served().memory_done(*peer_, header_.region);
      held_ = false;
      answer_with(static_cast<errc>(header_.status));
      return true;
    case frame_type::notice_ack:
      return peer_->notices_handled(header_.bytes) ||
             protocol_error(errc::bad_frame, "acknowledges notices that were not sent");
    case frame_type::message: return message({body_.data(), header_.length});
    case frame_type::hello: return hello({body_.data(), header_.length});
    case frame_type::compare_swap:
    case frame_type::fetch_add: return atomic({body_.data(), header_.length});
    default: return protocol_error(errc::bad_frame, "unexpected frame");
  }
}

void server_connection::answer_with(errc status, std::uint64_t value, std::uint32_t length, std::uint8_t flags) {
  auto h = wire::make_header(frame_type::answer, length);
  h.op = header_.op;
  h.offset = value;
  h.status = std::uint16_t(status);
  h.flags = flags;
  output_.append(std::as_bytes(std::span(&h, 1)));
}

bool server_connection::read() {
  std::byte* at = host_.served().memory(*peer_, where(), header_.bytes, access::read);
  if (!at) {
    answer_with(errc::access_denied);
    return true;
  }
  held_ = true;  // also if there is no memory for the answer
  answer_with(errc::ok, 0, header_.bytes);
  // The thread sanitizer notes what sendmsg has read when the call returns. By then the client may have the bytes, and
  // have written new ones to the same place by its other lane, which is in order, but through sockets, where it cannot
  // see it.
  constexpr bool borrows = FM_TSAN == 0;
  if (borrows && header_.bytes > 4096) {
    output_.append_borrowed({at, header_.bytes}, header_.region);
    held_ = false;
    return true;
  }
  output_.append({at, header_.bytes});
  host_.served().memory_done(*peer_, header_.region);
  held_ = false;
  return true;
}

bool server_connection::atomic(std::span<const std::byte> payload) {
  wire::atomic_body b;
  std::memcpy(&b, payload.data(), sizeof b);
  std::byte* at = host_.served().memory(*peer_, where(), 8, access::write);
  if (!at) {
    answer_with(errc::access_denied);
    return true;
  }
  const auto kind = header_.type == std::uint8_t(frame_type::fetch_add) ? op_kind::fetch_add : op_kind::compare_swap;
  std::uint64_t old = 0;
  const errc e = apply_atomic(kind, at, b.operand, b.compare, old);
  host_.served().memory_done(*peer_, header_.region);
  answer_with(e, old);
  return true;
}

bool server_connection::message(std::span<const std::byte> payload) {
  answer out;
  if (const errc e = host_.served().message(*peer_, payload, out); e != errc::ok)
    return protocol_error(e, "the service refused a message");
  std::uint8_t flags = 0;
  if (out.payload.size() > client_message_max_)
    return protocol_error(errc::too_large, "an answer over the client's limit");
  if (out.lacks_descriptor && descriptors_)
    return protocol_error(errc::out_of_memory, "no descriptor is left for a memory key");
  if (out.memory && descriptors_) {
    output_.append_descriptor(std::move(out.memory));
    flags = wire::flag_key | wire::flag_fd;
  } else if (out.token != 0) {
    flags = wire::flag_key;
  }
  answer_with(errc::ok, flags != 0 ? out.token : 0, std::uint32_t(out.payload.size()), flags);
  output_.append_owned(std::move(out.payload));
  return true;
}

bool server_connection::hello(std::span<const std::byte> payload) {
  wire::hello_body b;
  if (const auto d = wire::decode_hello(payload, b); d.code != errc::ok) return protocol_error(d.code, d.reason);
  is_stream_ = b.lane == wire::lane_stream;
  stream_index_ = b.lane_index;
  if (!is_stream_) kind_ = static_cast<lane>(b.lane);
  client_message_max_ = b.message_bytes_max;
  const errc e = host_.greet(*this, b, peer_);
  auto h = wire::make_header(frame_type::welcome, sizeof(wire::welcome_body));
  h.status = std::uint16_t(e);
  wire::welcome_body w{};
  if (e == errc::ok) {
    w.token[0] = peer_->token[0];
    w.token[1] = peer_->token[1];
    w.features = b.features & wire::features_known;
    w.incarnation = host_.incarnation();
    w.message_bytes_max = host_.limits().message_bytes_max;
    w.requests_in_flight = host_.limits().requests_in_flight;
  } else {
    refused_ = true;
    log::warn("{}: session refused: {}", name_, to_string(e));
  }
  output_.append(std::as_bytes(std::span(&h, 1)));
  output_.append(std::as_bytes(std::span(&w, 1)));
  return true;
}

}  // namespace fm::fabric
