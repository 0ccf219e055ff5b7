// Messages of a primary; see backup_session.h.
#include "backup_session.h"

#include <fmt/format.h>

namespace fm::agent {

namespace {

bool follows(const pool& p) {
  const pair_role r = p.replicas->members.role();
  return !p.closed && (r == pair_role::learning || r == pair_role::backup);
}

}  // namespace

errc backup_session::stale(backup_message type, fabric::answer& out) const {
  const bool is_over = pool_->replicas->members.role() == pair_role::over;
  return refuse(out, as_type(type), is_over ? errc::not_found : errc::stale,
                "this agent is not the backup of that primary any more");
}

errc backup_session::answer(backup_message type, fabric::answer& out) {
  const backup_answer a{pool_->replicas->applied, agent_.drained.load(std::memory_order_acquire) ? 1u : 0u, 0};
  begin_answer(out, as_type(type), &a, sizeof a);
  return errc::ok;
}

errc backup_session::message(message_type type, body b, fabric::answer& out) {
  const auto t = static_cast<backup_message>(type);
  // Before anything is done: what is answered later was promised for less long then.
  const bool is_promise = t != backup_message::leave_backup && t != backup_message::take_over;
  if (is_promise && !pool_->replicas->members.hear(clock::now())) return stale(t, out);
  switch (t) {
    case backup_message::backup_records: return records(b, out);
    case backup_message::backup_joined: return joined(b, out);
    case backup_message::take_over: return take_over(b, out);
    case backup_message::backup_beat: {
      if (!b.empty()) return errc::bad_frame;
      const std::lock_guard lock(pool_->structure);
      return follows(*pool_) ? answer(t, out) : stale(t, out);
    }
    case backup_message::leave_backup: {
      if (!b.empty()) return errc::bad_frame;
      {
        const std::lock_guard lock(pool_->structure);
        if (!pool_->replicas->members.let_go()) return stale(t, out);
      }
      agent_.wake();
      begin_answer(out, type, nullptr, 0);
      return errc::ok;
    }
    default: return errc::bad_frame;
  }
}

errc backup_session::joined(body b, fabric::answer& out) {
  constexpr auto type = backup_message::backup_joined;
  backup_joined_body m;
  if (!read_exactly(b, m)) return errc::bad_frame;
  const std::lock_guard lock(pool_->structure);
  if (!follows(*pool_) || !pool_->replicas->members.become_backup(m.term, clock::now())) return stale(type, out);
  pool_->replicas->log.ring();
  return answer(type, out);
}

errc backup_session::take_over(body b, fabric::answer& out) {
  constexpr auto type = backup_message::take_over;
  take_over_body m;
  if (!read_exactly(b, m)) return errc::bad_frame;
  const std::lock_guard lock(pool_->structure);
  if (pool_->closed || !pool_->replicas->members.primary_has_left(m.term)) return stale(type, out);
  pool_->replicas->log.ring();
  return answer(type, out);
}

errc backup_session::records(body b, fabric::answer& out) {
  constexpr auto type = backup_message::backup_records;
  backup_records_body m;
  if (!read_front(b, m) || m.bytes != b.size() || m.count == 0) return errc::bad_frame;
  const std::lock_guard lock(pool_->structure);
  if (!follows(*pool_)) return stale(type, out);
  std::uint64_t& applied = pool_->replicas->applied;
  if (m.after > applied)
    return refuse(out, as_type(type), errc::conflict, fmt::format("records after {} are missing", applied));
  std::uint64_t before = m.after;
  for (std::uint32_t i = 0; i < m.count; ++i) {
    record_head h;
    if (b.size() < sizeof h) return errc::bad_frame;
    std::memcpy(&h, b.data(), sizeof h);
    if (h.bytes < sizeof h || h.bytes > b.size() || h.zero != 0 || h.number <= before) return errc::bad_frame;
    before = h.number;
    if (h.number > applied) {
      errc e = errc::agent_full;
      try {
        e = pool_->apply(static_cast<record_kind>(h.kind), h.number, b.subspan(sizeof h, h.bytes - sizeof h),
                         agent_.options.pool_clients_max);
      } catch (const std::bad_alloc&) {  // refused as full
      }
      if (e != errc::ok) {
        // What is here is of no use any more: some of it may have been done.
        pool_->replicas->members.end();
        agent_.wake();
        return refuse(out, as_type(type), e,
                      fmt::format("record {} of kind {} cannot be applied: {}", h.number, h.kind, to_string(e)));
      }
      applied = h.number;
    }
    b = b.subspan(h.bytes);
  }
  return b.empty() ? answer(type, out) : errc::bad_frame;
}

}  // namespace fm::agent
