// Posting and completing work requests of one queue pair, and its credits; see queue_pair.h. Owns the invariant that a
// packet is sent only against a credit. Not thread-safe: the lane that owns the queue pair serialises its calls.
#include "queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace fm::fabric::verbs {

failure queue_pair::create(rdma_cm_id* id, ibv_pd* domain, ibv_comp_channel* channel, void* context,
                           shared_receives* shared, std::uint32_t lane) {
  shared_ = shared;
  lane_ = lane;
  if (failure f = query(id->verbs, id->port_num, limits_); f.failed()) return f;
  // A peer that keeps no rules can send into all buffers that the lanes share before it is noticed.
  const std::uint32_t completions = depth + std::max(packet::receives, shared != nullptr ? shared->buffers() : 0u) + 1;
  if (limits_.queue_depth < depth || limits_.cq_depth < completions)
    return {errc::unsupported,
            fmt::format("the RDMA device has queues of {} requests and {} completions; {} and {} are needed",
                        limits_.queue_depth, limits_.cq_depth, depth, completions)};
  if (failure f = slab::make(domain, std::uint64_t(own_receives() + packets) * packet::bytes_max, buffers_); f.failed())
    return f;
  cq_.reset(ibv_create_cq(id->verbs, int(completions), context, channel, 0));
  if (!cq_) return system_failure(errc::out_of_memory, "creating a completion queue");
  pieces_max_ = std::min(sge_max, limits_.sge_max);
  ibv_qp_init_attr a{};
  // The largest inline size that the device takes of those worth having.
  for (const std::uint32_t wanted : {256u, 128u, 64u, 0u}) {
    a = {};
    a.qp_context = context;
    a.send_cq = a.recv_cq = cq_.get();
    a.qp_type = IBV_QPT_RC;
    a.cap.max_send_wr = depth;
    if (shared_ != nullptr)
      a.srq = shared_->queue();
    else
      a.cap.max_recv_wr = packet::receives;
    a.cap.max_send_sge = pieces_max_;
    a.cap.max_recv_sge = shared_ != nullptr ? 0 : 1;
    a.cap.max_inline_data = wanted;
    if (rdma_create_qp(id, domain, &a) == 0) {
      id_ = id;
      qp_ = id->qp;
      break;
    }
  }
  if (qp_ == nullptr) return system_failure(errc::out_of_memory, "creating a queue pair");
  inline_max_ = a.cap.max_inline_data;
  for (std::uint32_t i = 0; i < own_receives(); ++i) repost(receive_mark | i, false);
  if (broken_) return system_failure(errc::out_of_memory, "posting receives");
  return {};
}

void queue_pair::connected(std::uint32_t credits, std::uint32_t outstanding_reads) noexcept {
  credits_ = credits;
  reads_max_ = std::clamp(outstanding_reads, 1u, limits_.outstanding_reads);  // what both sides can do
}

rdma_conn_param queue_pair::parameters(const void* private_data, std::uint8_t bytes) const noexcept {
  rdma_conn_param p{};
  p.private_data = private_data;
  p.private_data_len = bytes;
  p.responder_resources = p.initiator_depth = std::uint8_t(limits_.outstanding_reads);
  p.retry_count = retries;
  p.rnr_retry_count = 6;  // 7 would mean for ever
  return p;
}

std::uint8_t queue_pair::ack_timeout() noexcept {
  const char* text = std::getenv("FARMEM_VERBS_ACK_TIMEOUT");
  const long n = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  return std::uint8_t(n >= 8 && n <= 22 ? n : 14);
}

void queue_pair::to_error() noexcept {
  if (qp_ == nullptr) return;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_, &a, IBV_QP_STATE);
}

void queue_pair::drain(time_point deadline) noexcept {
  if (qp_ == nullptr) return;
  broken_ = true;
  flush();
  to_error();
  while (completed_ != next_ && clock::now() < deadline) {
    const auto some = poll();
    for (const ibv_wc& w : some)
      if (!is_receive(w)) complete(w.wr_id, [](const posted&) {});
    if (some.empty()) std::this_thread::yield();
  }
  destroy();
}

void queue_pair::destroy() noexcept {
  if (id_ != nullptr) {
    rdma_destroy_qp(id_);
    id_ = nullptr;
    qp_ = nullptr;
  }
  cq_.reset();
  completed_ = next_;
  kept_ = 0;
  buffers_ = slab();
}

ibv_send_wr& queue_pair::next(const posted& record) noexcept {
  if (chained_ == chain_max) flush();
  records_[next_ % depth] = record;
  ibv_send_wr& w = chain_[chained_];
  w = {};
  w.wr_id = next_++;
  w.sg_list = pieces_[chained_].data();
  if (next_ % signal_every == 0) w.send_flags = IBV_SEND_SIGNALED;
  if (chained_ != 0) chain_[chained_ - 1].next = &w;
  ++chained_;
  return w;
}

void queue_pair::send(packet::header h, std::span<const std::byte> payload, std::uint32_t op, bool fence) noexcept {
  h.length = std::uint32_t(payload.size());
  const bool is_credit = static_cast<packet::type>(h.type) == packet::type::credit;
  h.credits = std::uint16_t(shared_ != nullptr ? shared_->credits.tell(lane_, is_credit) : std::exchange(owed_, 0));
  std::byte* to = send_buffer(packets_sent_++ % packets);
  std::memcpy(to, &h, sizeof h);
  if (!payload.empty()) std::memcpy(to + sizeof h, payload.data(), payload.size());
  const auto bytes = std::uint32_t(sizeof h + payload.size());
  ibv_send_wr& w = next({.what = posted::kind::packet, .op = op});
  w.opcode = IBV_WR_SEND;
  w.sg_list[0] = {reinterpret_cast<std::uintptr_t>(to), bytes, buffers_.key()};
  w.num_sge = 1;
  if (fence) w.send_flags |= IBV_SEND_FENCE;
  if (bytes <= inline_max_) w.send_flags |= IBV_SEND_INLINE;
  if (!is_credit) --credits_;
}

void queue_pair::return_credits() noexcept {
  const bool due = shared_ != nullptr ? shared_->credits.wants_packet(lane_) : owed_ >= packet::credits_max / 2;
  if (!due || !has_buffer()) return;
  packet::header h{};
  h.type = std::uint8_t(packet::type::credit);
  send(h, {}, posted::none, false);
}

void queue_pair::transfer(const posted& record, std::span<const piece> local, std::uint64_t address, std::uint32_t rkey,
                          bool fence) noexcept {
  ibv_send_wr& w = next(record);
  const bool reads = record.what == posted::kind::read;
  if (reads) ++reads_out_;
  w.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  for (const piece& p : local) {
    if (p.key == 0) w.send_flags |= IBV_SEND_INLINE;
    w.sg_list[w.num_sge++] = {reinterpret_cast<std::uintptr_t>(p.data), p.bytes, p.key};
  }
  if (fence) w.send_flags |= IBV_SEND_FENCE;
  w.wr.rdma.remote_addr = address;
  w.wr.rdma.rkey = rkey;
}

void queue_pair::atomic(const posted& record, piece result, std::uint64_t address, std::uint32_t rkey, bool fence,
                        bool swap, std::uint64_t compare_or_add, std::uint64_t operand) noexcept {
  ibv_send_wr& w = next(record);
  ++reads_out_;
  w.opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
  w.sg_list[0] = {reinterpret_cast<std::uintptr_t>(result.data), result.bytes, result.key};
  w.num_sge = 1;
  if (fence) w.send_flags |= IBV_SEND_FENCE;
  w.wr.atomic.remote_addr = address;
  w.wr.atomic.rkey = rkey;
  w.wr.atomic.compare_add = compare_or_add;
  w.wr.atomic.swap = operand;
}

bool queue_pair::flush() noexcept {
  if (broken_) {
    next_ -= std::exchange(chained_, 0);
    return false;
  }
  if (chained_ == 0) return true;
  chain_[chained_ - 1].send_flags |= IBV_SEND_SIGNALED;
  chain_[chained_ - 1].next = nullptr;
  ibv_send_wr* refused = nullptr;
  const int rc = ibv_post_send(qp_, chain_.data(), &refused);
  if (rc != 0) {
    // What was refused never reached the device; all that is left is to end the connection.
    next_ = refused != nullptr ? refused->wr_id : chain_[0].wr_id;
    broken_ = true;
  }
  chained_ = 0;
  return !broken_;
}

std::span<const ibv_wc> queue_pair::poll() noexcept {
  if (kept_ != 0) return {done_.data(), std::exchange(kept_, 0)};
  if (!cq_) return {};
  const int n = ibv_poll_cq(cq_.get(), int(poll_max), done_.data());
  if (n < 0) broken_ = true;
  return {done_.data(), std::size_t(std::max(n, 0))};
}

bool queue_pair::arm() noexcept {
  if (kept_ != 0) return true;
  if (armed_ || !cq_) return false;
  if (ibv_req_notify_cq(cq_.get(), 0) != 0) return false;
  armed_ = true;
  const int n = ibv_poll_cq(cq_.get(), int(poll_max), done_.data());
  kept_ = std::uint32_t(std::max(n, 0));
  return kept_ != 0;
}

std::span<const std::byte> queue_pair::received(const ibv_wc& w) const noexcept {
  return {receive_buffer(w.wr_id & ~receive_mark), std::min(w.byte_len, packet::bytes_max)};
}

bool queue_pair::came(const packet::header& h) noexcept {
  if (shared_ == nullptr) return true;  // a packet without a credit found no buffer
  shared_->came();
  return static_cast<packet::type>(h.type) == packet::type::credit || shared_->credits.arrived(lane_);
}

bool queue_pair::post_receive(std::uint64_t wr_id) noexcept {
  const std::uint64_t i = wr_id & ~receive_mark;
  if (shared_ != nullptr) return shared_->post(i);
  ibv_sge s{reinterpret_cast<std::uintptr_t>(receive_buffer(i)), packet::bytes_max, buffers_.key()};
  ibv_recv_wr w{};
  w.wr_id = wr_id;
  w.sg_list = &s;
  w.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(qp_, &w, &refused) == 0;
}

void queue_pair::repost(std::uint64_t wr_id, bool paid) noexcept {
  if (qp_ == nullptr) return;
  if (!post_receive(wr_id)) {
    broken_ = true;
  } else if (shared_ != nullptr) {
    if (paid) shared_->credits.posted_again(lane_);
    FM_AUDIT(shared_->sound(), "the buffers of the credits are posted");
  } else if (paid) {
    ++owed_;
  }
}

bool queue_pair::take_credits(const packet::header& h) noexcept {
  if (h.credits > packet::credits_max - credits_) return false;
  credits_ += h.credits;
  return true;
}

}  // namespace fm::fabric::verbs
