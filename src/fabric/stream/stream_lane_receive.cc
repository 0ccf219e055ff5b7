// The receiving half of a lane: frames from the server, checked, and their payloads put straight into the buffers of
// the requests they answer. Everything here runs under the lane's mutex, in the thread that holds the role.
#include "base/log.h"
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "stream_lane.h"

namespace fm::fabric {

bool stream_lane::broken(errc why, const char* reason, done_list& done) noexcept {
  if (why != errc::disconnected) log::warn("fabric: connection dropped: {}: {}", to_string(why), reason);
  fail_locked(reason_, done);
  return false;
}

/// Of the buffer, behind less than a header.
std::span<std::byte> stream_lane::room_for_more() noexcept {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  return std::span(in_).subspan(in_end_);
}

bool stream_lane::receive(done_list& done) noexcept {
  if (!is_open()) return false;
  if (ahead_ != 0) {
    in_end_ += std::exchange(ahead_, 0);
    return received(done);
  }
  std::array<iovec, request::max_sg + 1> to;
  std::size_t parts = 0, direct = 0;
  if (now_.active) {  // the buffer is empty: the payload goes where it belongs, and a little of what follows comes along
    for (std::size_t p = now_.part; p < now_.parts; ++p) {
      to[parts++] = now_.to[p];
      direct += now_.to[p].iov_len;
    }
    in_begin_ = in_end_ = 0;
    to[parts++] = {in_.data(), direct >= 4096 ? 512 : in_.size()};
  } else {
    const std::span<std::byte> room = room_for_more();
    to[parts++] = {room.data(), room.size()};
  }
  const io_result got = receive_some(socket_.get(), std::span(to.data(), parts), fds_allowed_ ? &fds_ : nullptr);
  if (got.outcome == io_result::again) return false;
  if (got.outcome == io_result::gone) return broken(errc::disconnected, "", done);
  const std::size_t placed = std::min(got.bytes, direct);
  advance_payload(placed);
  in_end_ += got.bytes - placed;
  return received(done);
}

/// Takes what the buffer has, and the payload that was being received.
bool stream_lane::received(done_list& done) noexcept {
  if (!parse(done)) return false;
  return fds_.size() <= fabric_limits::unclaimed_descriptors_max ||
         broken(errc::bad_frame, "descriptors without answers", done);
}

void stream_lane::advance_payload(std::uint64_t n) noexcept {
  now_.left -= n;
  while (n != 0 && now_.part < now_.parts) {
    iovec& v = now_.to[now_.part];
    const std::size_t step = std::min<std::size_t>(n, v.iov_len);
    v.iov_base = static_cast<std::byte*>(v.iov_base) + step;
    v.iov_len -= step;
    n -= step;
    if (v.iov_len == 0) ++now_.part;
  }
}

/// Moves buffered bytes of the current payload to where they belong.
void stream_lane::take_payload(const std::byte*& from, std::size_t& n) noexcept {
  while (n != 0 && now_.left != 0) {
    std::size_t step = std::min<std::uint64_t>(n, now_.left);
    if (now_.part < now_.parts) {
      step = std::min(step, now_.to[now_.part].iov_len);
      std::memcpy(now_.to[now_.part].iov_base, from, step);
    }
    advance_payload(step);
    from += step;
    n -= step;
  }
}

bool stream_lane::parse(done_list& done) noexcept {
  for (;;) {
    if (now_.active) {
      const std::byte* from = in_.data() + in_begin_;
      std::size_t n = in_end_ - in_begin_;
      take_payload(from, n);
      in_begin_ = in_end_ - n;
      if (now_.left != 0) return true;
      if (!finish(done)) return false;
    }
    if (in_end_ - in_begin_ < sizeof(wire::frame_header)) break;
    wire::frame_header h;
    const auto head = std::span<const std::byte, sizeof h>(in_.data() + in_begin_, sizeof h);
    if (const auto d = wire::decode_header(head, wire::receiver::client, message_bytes_max_, h); d.code != errc::ok)
      return broken(errc::bad_frame, d.reason, done);
    in_begin_ += sizeof h;
    if (!begin(h, done)) return false;
  }
  std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);  // less than a header
  in_end_ -= in_begin_;
  in_begin_ = 0;
  pump();  // answers make room for requests that wait
  return true;
}

bool stream_lane::begin(const wire::frame_header& h, done_list& done) noexcept {
  now_ = {.active = true, .header = h, .left = h.length};
  if (h.type == std::uint8_t(wire::frame_type::notice)) {
    try {
      notice_.resize(h.length);
    } catch (const std::bad_alloc&) {
      return broken(errc::out_of_memory, "no memory for a notice", done);
    }
    now_.to[0] = {notice_.data(), h.length};
    now_.parts = h.length != 0;
    return true;
  }
  if (h.type != std::uint8_t(wire::frame_type::answer)) return broken(errc::bad_frame, "a second welcome", done);
  flight& f = ring_[h.op % ring_size];
  if (h.op < head_ || h.op >= tail_ || f.answered || !sent(f))
    return broken(errc::bad_frame, "an answer to nothing", done);
  if (!begin_answer(f)) return broken(errc::bad_frame, "an answer of a wrong length", done);
  return true;
}

bool stream_lane::begin_answer(flight& f) noexcept {
  const wire::frame_header& h = now_.header;
  const auto type = static_cast<wire::frame_type>(f.header.type);
  const bool refused = h.status != 0;
  if (type == wire::frame_type::read && !refused && h.length != f.length) return false;
  if (type != wire::frame_type::read && type != wire::frame_type::message && h.length != 0) return false;
  if (type != wire::frame_type::message && h.flags != 0) return false;
  if (type == wire::frame_type::message && h.length > message_bytes_max_) return false;
  if (f.discard || h.length == 0) return true;
  request& r = *ops_[f.op].r;
  if (type == wire::frame_type::message) {
    try {
      r.reply.resize(h.length);
    } catch (const std::bad_alloc&) {
      ops_[f.op].status = errc::out_of_memory;
      return true;
    }
    now_.to[0] = {r.reply.data(), h.length};
    now_.parts = 1;
    return true;
  }
  std::uint64_t skip = f.at, left = f.length;
  for (std::size_t p = 0; p < r.sg_count && left != 0; ++p) {
    const buffer& b = r.sg[p];
    if (skip >= b.bytes) {
      skip -= b.bytes;
      continue;
    }
    const std::uint64_t n = std::min<std::uint64_t>(left, b.bytes - skip);
    now_.to[now_.parts++] = {static_cast<std::byte*>(b.data) + skip, n};
    skip = 0;
    left -= n;
  }
  return true;
}

bool stream_lane::finish(done_list& done) noexcept {
  now_.active = false;
  if (now_.header.type == std::uint8_t(wire::frame_type::answer)) return finish_answer(done);
  if (!owner_.lane_notice(generation(), notice_)) return broken(errc::bad_frame, "more notices than allowed", done);
  return true;
}

bool stream_lane::finish_answer(done_list& done) noexcept {
  const wire::frame_header& h = now_.header;
  flight& f = ring_[h.op % ring_size];
  descriptor fd;
  if ((h.flags & wire::flag_fd) != 0) {
    if (fds_.empty()) return broken(errc::bad_frame, "the descriptor of a key is missing", done);
    fd = descriptor(fds_.front());
    fds_.erase(fds_.begin());
  }
  f.answered = true;
  while (head_ != tail_ && ring_[head_ % ring_size].answered) ++head_;
  if (f.discard) return true;
  operation& op = ops_[f.op];
  request& r = *op.r;
  if (h.status != 0 && op.status == errc::ok) op.status = wire::status_of(h);
  const auto type = static_cast<wire::frame_type>(f.header.type);
  if (type == wire::frame_type::compare_swap || type == wire::frame_type::fetch_add) r.value = h.offset;
  if ((h.flags & wire::flag_key) != 0) r.reply_key = {.fd = fd.release(), .token = h.offset};
  const bool split = type == wire::frame_type::read || type == wire::frame_type::write;
  if (--op.answers_left != 0 || (split && op.framed != op.bytes)) return true;
  const errc status = op.status;
  free_op(f.op);
  done.push(r, status);
  return true;
}

}  // namespace fm::fabric
