// The lane's connection, its roles, and sending; see stream_lane.h. Receiving is in stream_lane_receive.cc.
#include "stream_lane.h"
#include "base/limits.h"

#include "os/os.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace fm::fabric {

stream_lane::stream_lane(lane_owner& owner, std::uint32_t index, std::uint32_t requests_max,
                         std::uint32_t message_bytes_max, bool fds)
    : client_lane(requests_max),
      owner_(owner),
      index_(index),
      message_bytes_max_(message_bytes_max),
      fds_allowed_(fds),
      ring_(ring_size),
      in_(fabric_limits::stream_in_bytes) {
  out_.reserve(fabric_limits::stream_out_parts_max + 8);
  if (fds) fds_.reserve(fabric_limits::unclaimed_descriptors_max + descriptors_at_once);
}

stream_lane::~stream_lane() {
  FM_ASSERT(in_use_ == 0, "a lane is destroyed after everything on it is done");
  reset();
}

void stream_lane::reset() noexcept {
  for (const int fd : fds_) ::close(fd);
  fds_.clear();
  first_ = last_ = nothing;
  for (auto& f : ring_) f.answered = true;
  head_ = tail_;
  out_.clear();
  out_at_ = 0;
  spilled_.clear();
  in_begin_ = in_end_ = ahead_ = 0;
  now_ = {};
  acks_due_ = 0;
  armed_ = 0;
}

void stream_lane::open(descriptor socket, std::uint32_t generation, std::uint32_t requests_max) {
  {
    const auto guard = lock();
    reset();
    socket_ = std::move(socket);
    receives_asleep_ = may_sleep_in_receive(socket_.get(), fabric_limits::receive_within);
    reason_ = errc::disconnected;
    requests_max_ = requests_max;
    generation_.store(generation, std::memory_order_relaxed);
    epoll_event e{};
    e.events = EPOLLONESHOT;
    e.data.u32 = index_;
    ::epoll_ctl(owner_.lane_epoll(), EPOLL_CTL_ADD, socket_.get(), &e);
    open_.store(true, std::memory_order_release);
    arm(EPOLLIN);
  }
  release_role();
}

void stream_lane::close_connection() noexcept {
  const auto guard = lock();
  FM_ASSERT(!is_open(), "a lane is failed before its socket is closed");
  reset();
  socket_.reset();
}

void stream_lane::shut_down(std::uint32_t generation, errc why) noexcept {
  const auto guard = lock();
  if (!socket_ || generation_.load(std::memory_order_relaxed) != generation) return;
  if (is_open()) reason_ = why;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void stream_lane::fail(errc why, done_list& done) noexcept {
  const auto guard = lock();
  fail_locked(why, done);
}

void stream_lane::fail_locked(errc why, done_list& done) noexcept {
  if (is_open()) reason_ = why;
  open_.store(false, std::memory_order_release);
  for (std::uint32_t i = 0; i < ops_.size(); ++i)
    if (request* r = ops_[i].r) {
      free_op(i);
      done.push(*r, reason_);
    }
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  first_ = last_ = nothing;
  out_.clear();
  now_ = {};
}

std::uint32_t stream_lane::take_op(const request& r) {
  if (free_.empty()) {
    if (free_.capacity() == ops_.size()) free_.reserve(std::max<std::size_t>(16, 2 * ops_.size()));
    ops_.emplace_back();
    free_.push_back(std::uint32_t(ops_.size() - 1));
  }
  const std::uint32_t i = free_.back();
  free_.pop_back();
  count_in(r);
  return i;
}

void stream_lane::enqueue(std::uint32_t i) noexcept {
  (last_ == nothing ? first_ : ops_[last_].next) = i;
  last_ = i;
}

void stream_lane::dequeue_first() noexcept {
  first_ = std::exchange(ops_[first_].next, nothing);
  if (first_ == nothing) last_ = nothing;
}

void stream_lane::dequeue(std::uint32_t i) noexcept {
  if (i == first_) return dequeue_first();
  std::uint32_t before = first_;
  while (before != nothing && ops_[before].next != i) before = ops_[before].next;
  if (before == nothing) return;
  ops_[before].next = std::exchange(ops_[i].next, nothing);
  if (last_ == i) last_ = before;
}

void stream_lane::free_op(std::uint32_t i) noexcept {
  count_out(*std::exchange(ops_[i].r, nullptr));
  free_.push_back(i);
}

errc stream_lane::submit(request& r, time_point deadline) noexcept {
  if (!is_open()) return reason_;
  // The poster was admitted to an earlier connection, and this one belongs to its handshake until that is over.
  if (r.generation != generation()) return errc::disconnected;
  std::uint32_t i = nothing;
  try {
    i = take_op(r);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  r.transport_word = std::uint64_t(index_) << 32 | i;
  ops_[i] = {.r = &r, .bytes = r.bytes(), .deadline = deadline};
  enqueue(i);
  return errc::ok;
}

/// Makes the next frame of an operation, and its parts in out_.
void stream_lane::frame(std::uint32_t i) noexcept {
  operation& op = ops_[i];
  request& r = *op.r;
  using wire::frame_type;
  flight& f = ring_[tail_ % ring_size];
  const bool split = r.kind == op_kind::read || r.kind == op_kind::write;
  const std::uint64_t length = split ? std::min<std::uint64_t>(op.bytes - op.framed, wire::chunk_bytes) : op.bytes;
  constexpr frame_type types[] = {frame_type::read, frame_type::write, frame_type::compare_swap, frame_type::fetch_add,
                                  frame_type::message};
  f.header = wire::make_header(types[std::size_t(r.kind)]);
  f.header.flags = r.fence ? wire::flag_fence : 0;
  f.header.op = tail_;
  f.op = i;
  f.at = op.framed;
  f.length = std::uint32_t(length);
  f.answered = f.discard = false;
  if (r.kind != op_kind::message) {
    f.header.region = r.where.region;
    f.header.generation = r.where.generation;
    f.header.offset = r.where.offset + (split ? op.framed : 0);
  }
  out_.push_back({&f.header, sizeof f.header});
  if (r.kind == op_kind::read) {
    f.header.bytes = f.length;
  } else if (r.kind == op_kind::write || r.kind == op_kind::message) {
    f.header.length = f.length;
    std::uint64_t skip = op.framed, left = length;
    for (std::size_t p = 0; p < r.sg_count && left != 0; ++p) {
      const buffer& b = r.sg[p];
      if (skip >= b.bytes) {
        skip -= b.bytes;
        continue;
      }
      const std::uint64_t n = std::min<std::uint64_t>(left, b.bytes - skip);
      out_.push_back({static_cast<std::byte*>(b.data) + skip, n});
      skip = 0;
      left -= n;
    }
  } else {
    f.header.length = sizeof f.atomic;
    f.atomic = {r.operand, r.compare};
    f.length = 0;
    out_.push_back({&f.atomic, sizeof f.atomic});
  }
  f.out_end = out_.size();
  op.framed += length;
  ++op.answers_left;
  ++tail_;
}

void stream_lane::build() noexcept {
  std::size_t bytes = 0;
  out_first_ = tail_;
  spilled_.clear();
  if (acks_due_ != 0) {
    ack_ = wire::make_header(wire::frame_type::notice_ack);
    ack_.bytes = std::exchange(acks_due_, 0);
    out_.push_back({&ack_, sizeof ack_});
  }
  while (first_ != nothing && tail_ - head_ < ring_size && out_.size() < fabric_limits::stream_out_parts_max &&
         bytes < fabric_limits::stream_out_bytes_max) {
    const std::uint32_t i = first_;
    const std::uint64_t before = ops_[i].framed;
    frame(i);
    bytes += ops_[i].framed - before;
    const bool split = ops_[i].r->kind == op_kind::read || ops_[i].r->kind == op_kind::write;
    if (!split || ops_[i].framed == ops_[i].bytes) dequeue_first();
  }
}

void stream_lane::pump() noexcept {
  if (!is_open()) return;
  for (;;) {
    if (out_.empty()) {
      out_at_ = 0;
      build();
      if (out_.empty()) return;
    }
    const io_result sent = send_some(socket_.get(), std::span(out_).subspan(out_at_));
    if (sent.outcome == io_result::again) return arm(EPOLLIN | EPOLLOUT);
    if (sent.outcome == io_result::gone) {  // the receiving side sees the end too, and fails everything
      ::shutdown(socket_.get(), SHUT_RDWR);
      return arm(EPOLLIN);
    }
    std::size_t n = sent.bytes;
    while (out_at_ < out_.size() && n >= out_[out_at_].iov_len) n -= out_[out_at_++].iov_len;
    if (out_at_ == out_.size()) {
      out_.clear();
      continue;
    }
    out_[out_at_].iov_base = static_cast<std::byte*>(out_[out_at_].iov_base) + n;
    out_[out_at_].iov_len -= n;
  }
}

/// Copies what is still to be sent out of the requests' buffers.
bool stream_lane::spill() noexcept try {
  std::vector<std::byte> copy;
  for (std::size_t i = out_at_; i < out_.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(out_[i].iov_base);
    copy.insert(copy.end(), from, from + out_[i].iov_len);
  }
  spilled_ = std::move(copy);
  out_.clear();
  out_at_ = 0;
  if (!spilled_.empty()) out_.push_back({spilled_.data(), spilled_.size()});
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

/// Whether the whole frame has left; a peer that answers earlier makes its answer up.
bool stream_lane::sent(const flight& f) const noexcept {
  return out_.empty() || f.header.op < out_first_ || !spilled_.empty() || out_at_ >= f.out_end;
}

void stream_lane::cancel(request& r, errc why, done_list& done) noexcept {
  const auto i = std::uint32_t(r.transport_word);
  if (i >= ops_.size() || ops_[i].r != &r) return;
  if (!spill()) return fail_locked(errc::disconnected, done);
  dequeue(i);
  for (std::uint64_t id = head_; id != tail_; ++id) {
    flight& f = ring_[id % ring_size];
    if (!f.answered && f.op == i) f.discard = true;
  }
  if (now_.active && now_.header.type == std::uint8_t(wire::frame_type::answer) &&
      ring_[now_.header.op % ring_size].op == i)
    now_.parts = now_.part = 0;
  free_op(i);
  r.reply.clear();
  done.push(r, why);
}

void stream_lane::expire(time_point now, done_list& done) noexcept {
  for (const operation& op : ops_)
    if (op.r && put_off(*op.r, op.deadline, now) <= now) cancel(*op.r, errc::timed_out, done);
}

void stream_lane::acknowledge_notices(std::uint32_t count) noexcept {
  if (!is_open()) return;
  acks_due_ += count;
  pump();
}

void stream_lane::arm(std::uint32_t events) noexcept {
  if (!socket_ || (armed_ | events) == armed_) return;
  armed_ |= events;
  epoll_event e{};
  e.events = armed_ | EPOLLONESHOT;
  e.data.u32 = index_;
  ::epoll_ctl(owner_.lane_epoll(), EPOLL_CTL_MOD, socket_.get(), &e);
}

void stream_lane::sleep_on_connection(time_point deadline) noexcept {
  std::span<std::byte> room;
  if (receives_asleep_ && deadline - clock::now() >= fabric_limits::receive_within) {
    const auto guard = lock();
    if (!now_.active && ahead_ == 0) room = room_for_more();
  }
  if (room.empty()) {
    wait_socket(socket_.get(), POLLIN, deadline);
    return;
  }
  const iovec to{room.data(), room.size()};
  ahead_ = receive_asleep(socket_.get(), {&to, 1}, fds_allowed_ ? &fds_ : nullptr).bytes;  // an end is seen again
}

}  // namespace fm::fabric
