// The lane's connection, cancelling and completions; see lane.h. Turning requests into work is in lane_issue.cc.
#include "lane.h"
#include "base/limits.h"

#include "base/log.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fabric/wire/one_sided.h"

namespace fm::fabric::verbs {

namespace {}

verbs_lane::verbs_lane(lane_owner& owner, lane_home& home, std::uint32_t index, std::uint32_t requests_max,
                       std::uint32_t message_bytes_max)
    : client_lane(requests_max),
      owner_(owner),
      home_(home),
      index_(index),
      message_bytes_max_(message_bytes_max),
      kick_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  free_bounces_.reserve(bounces);
}

verbs_lane::~verbs_lane() { FM_ASSERT(in_use_ == 0, "a lane is destroyed after everything on it is done"); }

void verbs_lane::open(lane_connection c, std::uint32_t generation, std::uint32_t requests_max) {
  {
    const auto guard = lock();
    connection_ = std::move(c);
    reason_ = errc::disconnected;
    requests_max_ = requests_max;
    generation_.store(generation, std::memory_order_relaxed);
    std::uint64_t count;
    [[maybe_unused]] const auto n = ::read(kick_.get(), &count, sizeof count);
    ending_.store(false);
    ready_.store(false);
    watched_ = acks_due_ = unanswered_ = 0;
    incoming_.reset();
    free_bounces_.clear();
    for (std::uint32_t i = 0; i < bounces; ++i) free_bounces_.push_back(i);
    epoll_event e{};
    e.events = EPOLLONESHOT;
    e.data.u32 = index_;
    ::epoll_ctl(owner_.lane_epoll(), EPOLL_CTL_ADD, connection_.channel->fd, &e);
    open_.store(true, std::memory_order_release);
    arm(EPOLLIN);
  }
  release_role();
}

void verbs_lane::close_connection() noexcept {
  const auto guard = lock();
  FM_ASSERT(!is_open(), "a lane is failed before its connection is closed");
  connection_.qp.reset();
  connection_.bounce = slab();
  connection_.channel.reset();
  connection_.id.reset();
}

void verbs_lane::shut_down(std::uint32_t generation, errc why) noexcept {
  const auto guard = lock();
  if (!connection_.qp || generation_.load(std::memory_order_relaxed) != generation) return;
  if (is_open()) reason_ = why;
  ending_.store(true);
  connection_.qp->to_error();
  kick();
}

void verbs_lane::kick() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
}

void verbs_lane::fail(errc why, done_list& done) noexcept {
  const auto guard = lock();
  fail_locked(why, done);
}

void verbs_lane::fail_locked(errc why, done_list& done) noexcept {
  if (is_open()) reason_ = why;
  open_.store(false, std::memory_order_release);
  if (connection_.qp && connection_.qp->exists()) {
    rdma_disconnect(connection_.id.get());  // the peer learns of it
    connection_.qp->drain(clock::now() + fabric_limits::drain_within);
  }
  queue_.clear();
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    operation& op = ops_[i];
    if (op.serial == 0) continue;
    request* r = op.r;
    const errc status = op.verdict != errc::ok ? op.verdict : reason_;
    free_op(i);
    if (r == nullptr) continue;
    count_out(*r);
    r->reply.clear();
    done.push(*r, status);
  }
}

bool verbs_lane::broken(errc why, const char* reason, done_list& done) noexcept {
  if (why != errc::disconnected) log::warn("fabric: connection dropped: {}: {}", to_string(why), reason);
  fail_locked(reason_, done);
  return false;
}

/// An operation at the end of the queue, and room for giving it back. Throws bad_alloc; then nothing is taken.
std::uint32_t verbs_lane::take_op(request& r) {
  if (free_.empty()) {
    if (free_.capacity() == ops_.size()) free_.reserve(std::max<std::size_t>(16, 2 * ops_.size()));
    ops_.emplace_back();
    free_.push_back(std::uint32_t(ops_.size() - 1));
  }
  const std::uint32_t i = free_.back();
  queue_.push_back(i);
  free_.pop_back();
  count_in(r);
  ops_[i].r = &r;
  ops_[i].serial = next_serial_;
  if (++next_serial_ == 0) next_serial_ = 1;
  return i;
}

void verbs_lane::free_op(std::uint32_t i) noexcept {
  ops_[i] = {};
  free_.push_back(i);
}

void verbs_lane::finish(std::uint32_t i, errc status, done_list& done) noexcept {
  request* r = ops_[i].r;
  free_op(i);
  count_out(*r);
  done.push(*r, status);
}

void verbs_lane::cancel(request& r, errc why, done_list& done) noexcept {
  const auto i = std::uint32_t(r.transport_word);
  if (i < ops_.size() && ops_[i].r == &r) cancel_at(i, why, done);
}

/// What is still to be sent of a message, out of its request's buffers.
bool verbs_lane::copy_rest(operation& op) noexcept {
  try {
    op.rest.resize(op.bytes - op.issued);
  } catch (const std::bad_alloc&) {
    return false;
  }
  op.rest_from = op.issued;
  gather(*op.r, op.issued, op.rest);
  return true;
}

void verbs_lane::cancel_at(std::uint32_t i, errc why, done_list& done) noexcept {
  operation& op = ops_[i];
  if (op.direct != 0) {  // a device may be reading or writing its memory: nothing less than the queue pair's end helps
    op.verdict = why;
    log::info("fabric: a connection is given up for a transfer that is {}", to_string(why));
    return fail_locked(errc::disconnected, done);
  }
  request& r = *op.r;
  const bool half_sent = r.kind == op_kind::message && op.started && !op.awaited;
  if (half_sent && !copy_rest(op)) {
    op.verdict = why;
    log::info("fabric: a connection is given up for a message that is {}: no memory for its rest", to_string(why));
    return fail_locked(errc::disconnected, done);
  }
  connection_.qp->each_posted([i](posted& p) {
    if (p.op == i) p.op = posted::none;
  });
  if (op.awaited) --unanswered_;
  if (half_sent) {
    op.r = nullptr;
  } else {
    std::erase(queue_, i);
    free_op(i);
  }
  r.reply.clear();
  count_out(r);
  done.push(r, why);
}

void verbs_lane::expire(time_point now, done_list& done) noexcept {
  for (std::uint32_t i = 0; i < ops_.size() && is_open(); ++i)
    if (ops_[i].r && put_off(*ops_[i].r, ops_[i].deadline, now) <= now) cancel_at(i, errc::timed_out, done);
}

void verbs_lane::acknowledge_notices(std::uint32_t count) noexcept {
  if (!is_open()) return;
  acks_due_ += count;
  pump();
}

bool verbs_lane::receive(done_list& done) noexcept {
  ready_.store(false, std::memory_order_release);
  if (!is_open()) return false;
  if (ending_.load()) return broken(errc::disconnected, "", done);
  queue_pair& qp = *connection_.qp;
  const auto some = qp.poll();
  if (some.empty()) return false;
  for (const ibv_wc& w : some) {
    if (w.status != IBV_WC_SUCCESS) {
      if (w.status != IBV_WC_WR_FLUSH_ERR) log::info("fabric: connection dropped: {}", ibv_wc_status_str(w.status));
      return broken(errc::disconnected, "", done);
    }
    if (!queue_pair::is_receive(w)) {
      qp.complete(w.wr_id, [&](const posted& p) { complete_work(p, done); });
    } else if (!packet_arrived(w, done)) {
      return false;
    }
  }
  pump();
  return true;
}

void verbs_lane::complete_work(const posted& p, done_list& done) noexcept {
  if (p.bounced) {
    const std::byte* from = connection_.bounce.base() + std::uint64_t(p.slot) * bounce_bytes;
    free_bounces_.push_back(p.slot);
    if (p.op != posted::none && p.what == posted::kind::atomic)
      std::memcpy(&ops_[p.op].r->value, from, sizeof(std::uint64_t));
    if (p.op != posted::none && p.what == posted::kind::read) scatter(*ops_[p.op].r, p.at, {from, p.length});
  }
  if (p.op == posted::none) return;
  operation& op = ops_[p.op];
  --op.outstanding;
  if (p.direct) --op.direct;
  if (op.outstanding == 0 && op.issued == op.bytes) finish(p.op, errc::ok, done);
}

bool verbs_lane::packet_arrived(const ibv_wc& w, done_list& done) noexcept try {
  queue_pair& qp = *connection_.qp;
  const auto bytes = qp.received(w);
  packet::header h;
  if (const auto d = packet::decode(bytes, wire::receiver::client, message_bytes_max_, h); d.code != errc::ok)
    return broken(errc::bad_frame, d.reason, done);
  if (!qp.take_credits(h)) return broken(errc::bad_frame, "more credit than there are buffers", done);
  const auto type = static_cast<packet::type>(h.type);
  if (type == packet::type::answer || type == packet::type::notice) {
    if (const auto d = incoming_.take(h, bytes.subspan(sizeof h)); d.code != errc::ok)
      return broken(errc::bad_frame, d.reason, done);
    if (incoming_.complete()) {
      if (type == packet::type::notice) {
        if (!owner_.lane_notice(generation(), incoming_.whole()))
          return broken(errc::bad_frame, "more notices than the protocol allows", done);
      } else if (!answered(done)) {
        return broken(errc::bad_frame, "an answer to what has not been sent", done);
      }
    }
  }
  qp.repost(w.wr_id, type != packet::type::credit);
  return true;
} catch (const std::bad_alloc&) {
  return broken(errc::out_of_memory, "no memory for a message", done);
}

bool verbs_lane::answered(done_list& done) {
  const packet::header& h = incoming_.head();
  const auto i = std::uint32_t(h.op);
  if (i >= ops_.size() || ops_[i].serial != std::uint32_t(h.op >> 32) || !ops_[i].r) return true;  // given up meanwhile
  operation& op = ops_[i];
  if (op.r->kind != op_kind::message || !op.awaited) return false;
  --unanswered_;
  if ((h.flags & packet::flag_key) != 0) op.r->reply_key.token = h.value;
  op.r->reply = incoming_.take_whole();
  finish(i, errc::ok, done);
  return true;
}

void verbs_lane::take_cq_event() noexcept {
  if (!connection_.qp || !connection_.qp->armed()) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(connection_.channel.get(), &cq, &context) != 0) return;
  ibv_ack_cq_events(cq, 1);
  connection_.qp->disarmed();
}

void verbs_lane::disarmed() noexcept {
  watched_ = 0;
  // Whoever has the role may be about to sleep until this very event: it is taken only when nobody has.
  if (!role_taken()) take_cq_event();
}

void verbs_lane::arm(std::uint32_t) noexcept {
  if (!is_open()) return;
  if (ending_.load() || connection_.qp->arm()) {
    ready_.store(true, std::memory_order_release);
    return owner_.lane_ready();
  }
  if (watched_ != 0) return;
  watched_ = EPOLLIN;
  epoll_event e{};
  e.events = EPOLLIN | EPOLLONESHOT;
  e.data.u32 = index_;
  ::epoll_ctl(owner_.lane_epoll(), EPOLL_CTL_MOD, connection_.channel->fd, &e);
}

void verbs_lane::sleep_on_connection(time_point deadline) noexcept {
  pollfd p[3] = {{-1, POLLIN, 0}, {kick_.get(), POLLIN, 0}, {home_.events_fd(), POLLIN, 0}};
  {
    const auto guard = lock();
    if (!is_open() || ending_.load() || connection_.qp->arm()) return;
    p[0].fd = connection_.channel->fd;
  }
  if (!wait_sockets(p, deadline)) return;
  if (p[2].revents != 0) home_.take_events();
  const auto guard = lock();
  if (p[0].revents != 0) take_cq_event();
}

}  // namespace fm::fabric::verbs
