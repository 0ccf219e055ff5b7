// Receiving the messages of one lane, handing them to the service in order, and sending answers; see server_lane.h.
// Owns the bound on what waits to be sent. Called by the listener's thread alone.
#include "server_lane.h"
#include "base/limits.h"

#include "base/log.h"

#include <algorithm>
#include <cstring>

namespace fm::fabric::verbs {

server_lane::~server_lane() {
  if (!id_) return;
  if (established) rdma_disconnect(id_.get());  // the client learns of it
  qp_.drain(clock::now() + std::chrono::milliseconds(200));
}

failure server_lane::create(rdma_cm_id* id, ibv_pd* domain, ibv_comp_channel* channel, shared_receives* shared,
                            std::uint32_t lane) {
  id_.reset(id);
  failure f = qp_.create(id, domain, channel, this, shared, lane);
  if (!f.failed()) (void)qp_.arm();  // nothing can have come yet
  return f;
}

failure server_lane::accept(const packet::join& j, const rdma_conn_param& asked) {
  packet::joined mine{};
  mine.magic = packet::magic;
  mine.major = packet::version_major;
  mine.length = sizeof mine;
  mine.credits = qp_.own_credits();
  qp_.connected(j.credits, 1);
  rdma_conn_param p = qp_.parameters(&mine, sizeof mine);
  p.responder_resources = std::min(p.responder_resources, asked.responder_resources);
  p.initiator_depth = std::min(p.initiator_depth, asked.initiator_depth);
  std::uint8_t timeout = queue_pair::ack_timeout();
  rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  if (rdma_accept(id_.get(), &p) != 0) return system_failure(errc::unreachable, "accepting a lane");
  return {};
}

int server_lane::serve() noexcept try {
  const auto some = qp_.poll();
  for (const ibv_wc& w : some) {
    if (w.status != IBV_WC_SUCCESS) {
      if (w.status != IBV_WC_WR_FLUSH_ERR) log::info("fabric: a lane ended: {}", ibv_wc_status_str(w.status));
      return -1;
    }
    if (!queue_pair::is_receive(w))
      qp_.complete(w.wr_id, [](const posted&) {});
    else if (!arrived(w))
      return -1;
  }
  int taken = int(some.size());
  while (!inbox_.empty() && out_bytes_ < fabric_limits::unsent_bytes_max) {
    const waiting w = inbox_.front();
    inbox_.pop_front();
    if (!take(w)) return -1;
    if (out_bytes_ >= fabric_limits::unsent_bytes_max && !pump()) return -1;
    ++taken;
  }
  return pump() ? taken : -1;
} catch (const std::bad_alloc&) {
  service_.violation(errc::out_of_memory, "no memory for a message");
  return -1;
}

/// Credits count at once: what waits behind a full output could not be sent otherwise.
bool server_lane::arrived(const ibv_wc& w) {
  waiting in{w.wr_id, qp_.received(w), {}};
  if (const auto d = packet::decode(in.bytes, wire::receiver::server, message_bytes_max_, in.head);
      d.code != errc::ok) {
    service_.violation(d.code, d.reason);
    return false;
  }
  if (!qp_.came(in.head)) {
    service_.violation(errc::bad_frame, "a packet without a credit");
    return false;
  }
  if (!qp_.take_credits(in.head)) {
    service_.violation(errc::bad_frame, "more credit than there are buffers");
    return false;
  }
  if (static_cast<packet::type>(in.head.type) == packet::type::credit)
    qp_.repost(w.wr_id, false);
  else
    inbox_.push_back(in);
  return true;
}

bool server_lane::take(const waiting& w) {
  const packet::header& h = w.head;
  const auto type = static_cast<packet::type>(h.type);
  if (type == packet::type::notice_ack && !service_.notices_handled(std::uint32_t(h.value))) {
    service_.violation(errc::bad_frame, "acknowledges notices that were not sent");
    return false;
  }
  if (type == packet::type::message) {
    if (const auto d = incoming_.take(h, w.bytes.subspan(sizeof h)); d.code != errc::ok) {
      service_.violation(d.code, d.reason);
      return false;
    }
    if (incoming_.complete() && !answer_message()) return false;
  }
  qp_.repost(w.wr_id, true);
  return true;
}

bool server_lane::answer_message() {
  answer a;
  if (const errc e = service_.message(incoming_.whole(), a); e != errc::ok) {
    service_.violation(e, "the service refused a message");
    return false;
  }
  if (a.payload.size() > client_message_max_) {
    service_.violation(errc::too_large, "an answer over the client's limit");
    return false;
  }
  outgoing o;
  o.head.type = std::uint8_t(packet::type::answer);
  o.head.op = incoming_.head().op;
  o.head.total = std::uint32_t(a.payload.size());
  if (a.token != 0) {
    o.head.flags = packet::flag_key;
    o.head.value = a.token;
  }
  o.payload = std::move(a.payload);
  out_bytes_ += o.payload.size() + sizeof o;
  out_.push_back(std::move(o));
  return true;
}

void server_lane::send_notice(std::vector<std::byte> payload) {
  outgoing o;
  o.head.type = std::uint8_t(packet::type::notice);
  o.head.total = std::uint32_t(payload.size());
  o.payload = std::move(payload);
  out_bytes_ += o.payload.size() + sizeof o;
  out_.push_back(std::move(o));
}

bool server_lane::pump() noexcept {
  while (!out_.empty() && qp_.can_send()) {
    outgoing& o = out_.front();
    const std::size_t n = std::min<std::size_t>(packet::payload_max, o.payload.size() - o.sent);
    packet::header h = o.head;
    if (!o.started) h.flags |= packet::flag_first;
    if (o.sent + n == o.payload.size()) h.flags |= packet::flag_last;
    qp_.send(h, std::span<const std::byte>(o.payload).subspan(o.sent, n), posted::none, false);
    o.started = true;
    o.sent += n;
    if (o.sent != o.payload.size()) continue;
    out_bytes_ -= o.payload.size() + sizeof o;
    out_.pop_front();
  }
  qp_.return_credits();
  return qp_.flush();
}

}  // namespace fm::fabric::verbs
