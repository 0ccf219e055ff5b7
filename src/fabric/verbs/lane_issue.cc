// How requests become work requests and packets; see lane.h. Everything here runs under the lane's mutex.
#include "base/limits.h"
#include <algorithm>
#include <cstring>

#include "fabric/wire/one_sided.h"
#include "lane.h"

namespace fm::fabric::verbs {

errc verbs_lane::submit(request& r, time_point deadline) noexcept {
  if (!is_open()) return reason_;
  // The poster was admitted to an earlier connection, and this one belongs to its handshake until that is over.
  if (r.generation != generation()) return errc::disconnected;
  region_key key;
  if (r.kind != op_kind::message &&
      !home_.regions().find(r.where, one_sided_bytes(r), r.kind != op_kind::read, r.generation, key))
    return errc::access_denied;
  const bool atomic = r.kind == op_kind::compare_swap || r.kind == op_kind::fetch_add;
  if (atomic && !connection_.qp->has_atomics()) return errc::unsupported;
  std::uint32_t i = 0;
  try {
    i = take_op(r);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  r.transport_word = std::uint64_t(index_) << 32 | i;
  operation& op = ops_[i];
  op.bytes = atomic ? 0 : r.bytes();
  op.address = key.address + r.where.offset;
  op.key = key.rkey;
  op.deadline = deadline;
  return errc::ok;
}

void verbs_lane::pump() noexcept {
  if (!is_open()) return;
  queue_pair& qp = *connection_.qp;
  if (acks_due_ != 0 && qp.can_send()) {
    packet::header h{};
    h.type = std::uint8_t(packet::type::notice_ack);
    h.value = std::min(acks_due_, wire::notices_max);
    acks_due_ -= std::uint32_t(h.value);
    qp.send(h, {}, posted::none, false);
  }
  while (!queue_.empty() && issue(queue_.front())) {
    const std::uint32_t i = queue_.front();
    queue_.pop_front();
    if (ops_[i].r == nullptr) free_op(i);  // given up half sent, and sent to its end now
  }
  qp.return_credits();
  if (qp.flush()) return;
  ending_.store(true);
  ready_.store(true, std::memory_order_release);
  kick();  // whoever receives may be asleep, and what was refused brings no completion
  owner_.lane_ready();
}

/// False: it has to wait for something that a completion brings.
bool verbs_lane::issue(std::uint32_t i) noexcept {
  const operation& op = ops_[i];
  if (op.r == nullptr || op.r->kind == op_kind::message) return issue_message(i);
  return issue_one_sided(i);
}

bool verbs_lane::issue_message(std::uint32_t i) noexcept {
  operation& op = ops_[i];
  const bool fence = op.r != nullptr && op.r->fence && !op.started;
  if (fence && unanswered_ != 0) return false;
  queue_pair& qp = *connection_.qp;
  while (!op.started || op.issued < op.bytes) {
    if (!qp.can_send()) return false;
    packet::header h{};
    h.type = std::uint8_t(packet::type::message);
    h.op = std::uint64_t(op.serial) << 32 | i;
    h.total = std::uint32_t(op.bytes);
    const auto n = std::min<std::uint64_t>(packet::payload_max, op.bytes - op.issued);
    h.flags = std::uint8_t((op.started ? 0 : packet::flag_first) | (op.issued + n == op.bytes ? packet::flag_last : 0));
    std::array<std::byte, packet::payload_max> gathered;
    std::span<const std::byte> payload;
    if (op.r == nullptr) {
      payload = std::span<const std::byte>(op.rest).subspan(op.issued - op.rest_from, n);
    } else {
      gather(*op.r, op.issued, {gathered.data(), n});
      payload = {gathered.data(), n};
    }
    qp.send(h, payload, posted::none, fence);
    op.started = true;
    op.issued += n;
  }
  if (op.r == nullptr) return true;
  op.awaited = true;
  ++unanswered_;
  return true;
}

bool verbs_lane::issue_atomic(operation& op, std::uint32_t i) noexcept {
  queue_pair& qp = *connection_.qp;
  if (!qp.can_read() || free_bounces_.empty()) return false;
  const request& r = *op.r;
  const std::uint32_t slot = free_bounces_.back();
  free_bounces_.pop_back();
  const bool swap = r.kind == op_kind::compare_swap;
  qp.atomic({.what = posted::kind::atomic, .bounced = true, .op = i, .slot = slot, .length = 8},
            {connection_.bounce.base() + std::uint64_t(slot) * bounce_bytes, 8, connection_.bounce.key()}, op.address,
            op.key, r.fence, swap, swap ? r.compare : r.operand, r.operand);
  op.started = true;
  ++op.outstanding;
  return true;
}

bool verbs_lane::issue_one_sided(std::uint32_t i) noexcept {
  operation& op = ops_[i];
  const request& r = *op.r;
  if (r.fence && !op.started && unanswered_ != 0) return false;
  if (r.kind == op_kind::compare_swap || r.kind == op_kind::fetch_add) return issue_atomic(op, i);
  if (op.bytes == 0) {
    if (connection_.qp->room() == 0) return false;
    connection_.qp->transfer({.what = posted::kind::write, .op = i}, {}, op.address, op.key, r.fence);
    op.started = true;
    ++op.outstanding;
    return true;
  }
  while (op.issued < op.bytes)
    if (!issue_piece(op, i)) return false;
  return true;
}

/// The next work request of a read or a write: inline, direct or bounced.
bool verbs_lane::issue_piece(operation& op, std::uint32_t i) noexcept {
  queue_pair& qp = *connection_.qp;
  const request& r = *op.r;
  const bool reads = r.kind == op_kind::read;
  if (reads ? !qp.can_read() : qp.room() == 0) return false;
  posted record{.what = reads ? posted::kind::read : posted::kind::write, .op = i, .at = op.issued};
  const bool goes_inline = !reads && op.bytes - op.issued <= qp.inline_max();

  std::array<piece, queue_pair::sge_max> pieces;
  std::size_t count = 0;
  std::uint64_t total = 0, skip = op.issued;
  const std::uint64_t most = std::min(fabric_limits::work_request_bytes_max, qp.transfer_bytes_max());
  for (std::size_t s = 0; s < r.sg_count && total < most && count < qp.pieces_max(); ++s) {
    const buffer& b = r.sg[s];
    while (skip < b.bytes && total < most && count < qp.pieces_max()) {
      std::byte* from = static_cast<std::byte*>(b.data) + skip;
      std::uint32_t key = 0;
      std::uint64_t n = std::min<std::uint64_t>(b.bytes - skip, most - total);
      if (!goes_inline) n = home_.memory().find(from, n, key);
      if (n == 0) break;
      pieces[count++] = {from, std::uint32_t(n), key};
      total += n;
      skip += n;
    }
    if (skip < b.bytes) break;
    skip -= b.bytes;
  }
  if (goes_inline && total != op.bytes - op.issued) count = 0;  // in more pieces than a work request has

  if (count == 0) {
    if (free_bounces_.empty()) return false;
    record.bounced = true;
    record.slot = free_bounces_.back();
    free_bounces_.pop_back();
    total = std::min<std::uint64_t>(std::min<std::uint64_t>(bounce_bytes, most), op.bytes - op.issued);
    std::byte* slot = connection_.bounce.base() + std::uint64_t(record.slot) * bounce_bytes;
    if (!reads) gather(r, op.issued, {slot, total});
    pieces[count++] = {slot, std::uint32_t(total), connection_.bounce.key()};
    home_.count_bounced(total);
  } else {
    record.direct = !goes_inline;
  }
  record.length = std::uint32_t(total);
  qp.transfer(record, {pieces.data(), count}, op.address + op.issued, op.key, r.fence && !op.started);
  op.started = true;
  op.issued += total;
  ++op.outstanding;
  if (record.direct) ++op.direct;
  return true;
}

}  // namespace fm::fabric::verbs
