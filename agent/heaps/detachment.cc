// Heaps that outlive their owners: what one leaves for the next, and how that one gets it; see protocol/heap_messages.h,
// "Detaching". Members of heap_session and of heaps.
//
// Invariants owned here
//   - A heap is attached only in the state that its record describes: whatever an owner changes takes the record away
//     (heap::changes).
//   - One owner has it. The one who detached it may still be connected: it has said that it is done. One who has attached
//     it may not.
//   - No two heaps of an agent wait for a next owner under one name. A heap that has one keeps its name only so that
//     others are told who has it.
// When a heap is attached, nothing of its earlier owners is under way: their session has no operation in flight, and none
// of them knows where anything lies. So regions that were open are sealed, and those that nobody needs are free at once.
#include <fmt/format.h>

#include "base/text.h"
#include "heap_session.h"
#include <cstring>

namespace fm::agent {

namespace {

/// False unless it is text with a zero behind it.
bool take_name(const char (&field)[heap_name_bytes], std::string& out) {
  out.assign(field, ::strnlen(field, sizeof field));
  return out.size() < sizeof field;
}

/// Takes as long wherever they differ.
bool same_secret(const std::string& a, const char (&b)[heap_name_bytes]) {
  char padded[heap_name_bytes] = {};
  a.copy(padded, sizeof padded - 1);
  unsigned char differs = 0;
  for (std::size_t i = 0; i < sizeof padded; ++i) differs |= static_cast<unsigned char>(padded[i] ^ b[i]);
  return differs == 0;
}

std::string text_of_owner(const heap& h, time_point now) {
  const std::string who = h.detached.attached ? h.detached.owner : h.name;
  if (h.owner != nullptr) return fmt::format("{} at {} has it", who, h.owner->peer.name());
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(h.lease_until - now).count();
  return fmt::format("{} had it and is gone; its lease ends in {} ms", who, std::max<std::int64_t>(left, 0));
}

void forget_owners(heap& h, const std::vector<region*>& all) {
  for (region* r : all)
    if (r->state == region_state::open && !r->by_mover) h.seal(*r);
  for (region* r : all)
    if (r->state == region_state::retiring) h.free_region(*r);
}

}  // namespace

std::shared_ptr<heap> heaps::find_detached(const std::string& name, bool only_waiting) const {
  std::shared_ptr<heap> in_use;
  for (const std::shared_ptr<heap>& h : all()) {
    if (!h->was_detached.load()) continue;
    const std::lock_guard lock(h->mutex);
    if (h->closed.load() || h->detached.name != name) continue;
    if (!h->detached.record.empty()) return h;
    if (!only_waiting) in_use = h;
  }
  return in_use;
}

errc heap_session::detach_heap(body b, fabric::answer& out) {
  constexpr auto type = message_type::detach_heap;
  detach_heap_body m;
  detachment left;
  if (!read_front(b, m) || m.zero != 0 || m.record_bytes != b.size() || b.empty() || b.size() > heap_record_bytes_max ||
      !take_name(m.name, left.name) || left.name.empty() || !take_name(m.secret, left.secret))
    return errc::bad_frame;
  std::copy(std::begin(m.lineage), std::end(m.lineage), std::begin(left.lineage));
  left.keep_ms = std::min(m.keep_ms, agent_.options.keep_max_ms);
  left.record.assign(b.begin(), b.end());
  const std::lock_guard names(of_.names_mutex_);
  if (const auto other = of_.find_detached(left.name, true); other != nullptr && other.get() != &h_) {
    {
      const std::lock_guard lock(other->mutex);
      const detachment& d = other->detached;
      const bool is_taken = other->owner != nullptr && d.attached;
      if (is_taken || d.lineage[0] != left.lineage[0] || d.lineage[1] != left.lineage[1])
        return refuse(out, type, errc::conflict,
                      fmt::format("heap {} has the name {} here", other->name, detail::readable(left.name)));
    }
    of_.free_heap(*other, "a later state of it is detached", false);
  }
  const std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, type);
  h_.detached = std::move(left);
  h_.was_detached.store(true);
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc heap_session::claim_heap(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  const std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, message_type::claim_heap);
  h_.changes();
  begin_answer(out, message_type::claim_heap, nullptr, 0);
  return errc::ok;
}

errc heaps::attach(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::attach_heap;
  attach_heap_body m;
  std::string name;
  if (!read_exactly(b, m) || m.take > 1 || !take_name(m.name, name) || name.empty()) return errc::bad_frame;
  if (m.major != protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks store protocol {}.{}, the owner {}.{}", protocol_major, protocol_minor,
                              m.major, m.minor));
  const std::string shown = detail::readable(name);
  const std::lock_guard names(names_mutex_);
  const std::shared_ptr<heap> kept = find_detached(name, false);
  if (kept == nullptr) return refuse(out, type, errc::not_found, fmt::format("no heap was left here as {}", shown));
  auto opened = m.take == 1 ? std::make_unique<heap_session>(*this, s, kept) : nullptr;
  heap& h = *kept;
  const std::lock_guard lock(h.mutex);
  detachment& d = h.detached;
  if (h.closed.load()) return refuse(out, type, errc::not_found, fmt::format("no heap was left here as {}", shown));
  if (!same_secret(d.secret, m.secret)) return refuse(out, type, errc::access_denied, fmt::format("heap {}", shown));
  const bool is_its_own = d.attached && h.key.incarnation == m.incarnation;
  if (d.record.empty() || (h.owner != nullptr && d.attached && !is_its_own))
    return refuse(out, type, errc::conflict, fmt::format("heap {}: {}", shown, text_of_owner(h, agent_.now())));
  if (m.take == 1) {
    if (!revoke_owner(h, "the heap was attached on another connection"))
      return refuse(out, type, errc::timed_out, "operations of the previous connection are still running");
    const std::vector<region*> all = h.regions;  // first: without memory for it, nothing has happened
    h.owner = nullptr;                           // of whom nobody is told any more
    forget_owners(h, all);
    h.key.incarnation = m.incarnation;
    d.attached = true;
    d.owner = detail::readable({m.owner, sizeof m.owner});
    hand_over(h, s, m.minor);
    s.open(std::move(opened));
    agent_.wake();
  }
  const attach_heap_answer a{{h.key.heap_id[0], h.key.heap_id[1]},
                             opened_answer(h),
                             static_cast<std::uint32_t>(h.left()) + 1,
                             static_cast<std::uint32_t>(d.record.size())};
  begin_answer(out, type, &a, sizeof a);
  append_answer(out, d.record.data(), d.record.size());
  return errc::ok;
}

}  // namespace fm::agent
