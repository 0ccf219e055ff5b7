// The owner's messages of a collection cycle (protocol/heap_messages.h, "Collecting").
// All of them may be asked twice, so they are calls like any other (calls.cc).
// Answers are checked for their shape here; their meaning is the collector's business, which alone calls these.
#include "agent_session_impl.h"

namespace fm::remote::internal {

errc agent_session_impl::cycle_call(message_type type, const void* body, std::size_t body_bytes,
                                    std::span<const std::byte> tail, time_point deadline, reply& out) noexcept try {
  std::vector<std::byte> message(sizeof(message_head) + body_bytes + tail.size());
  const message_head head{.type = static_cast<std::uint16_t>(type),
                          .zero = 0,
                          .body_bytes = static_cast<std::uint32_t>(body_bytes + tail.size())};
  std::memcpy(message.data(), &head, sizeof head);
  std::memcpy(message.data() + sizeof head, body, body_bytes);
  if (!tail.empty()) std::memcpy(message.data() + sizeof head + body_bytes, tail.data(), tail.size());
  out = call(fabric::lane::control, type, message.data(), message.size(), deadline);
  return out.code;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::begin_cycle(std::uint64_t cycle, time_point deadline, bool& talks,
                                     begin_cycle_answer& out) noexcept {
  const cycle_name body{cycle};
  reply r;
  talks = false;
  if (const errc e = cycle_call(message_type::begin_cycle, &body, sizeof body, {}, deadline, r); e != errc::ok)
    return e;
  std::span<const std::byte> rest = r.body();
  if (rest.empty()) return errc::ok;
  if (!take(rest, out) || !rest.empty()) {
    break_now(r.session_generation);
    return errc::bad_frame;
  }
  talks = true;
  return errc::ok;
}

errc agent_session_impl::trace_peers(std::uint64_t cycle, std::span<const trace_peer> peers,
                                     time_point deadline) noexcept try {
  std::vector<std::byte> message(sizeof(peers_body));
  const auto append = [&](const void* from, std::size_t bytes) {
    const auto* b = static_cast<const std::byte*>(from);
    message.insert(message.end(), b, b + bytes);
  };
  peers_body body{.cycle = cycle, .count = 0, .zero = 0};
  std::size_t room = std::min<std::size_t>(options_.session.message_bytes_max, 1 << 20) - 4096;
  for (const trace_peer& p : peers) {
    const std::size_t fixed = sizeof(peer_record) + detail::round_up(p.url.size(), 8);
    if (body.count == trace_peers_max || p.url.size() > peer_url_bytes_max || room < fixed) continue;
    const std::size_t ranges = std::min(p.tablets.size(), (room - fixed) / sizeof(tablet_range));
    room -= fixed + ranges * sizeof(tablet_range);
    peer_record record{};
    std::copy(std::begin(p.heap_id), std::end(p.heap_id), std::begin(record.heap_id));
    std::copy(std::begin(p.ticket), std::end(p.ticket), std::begin(record.ticket));
    record.ranges = static_cast<std::uint32_t>(ranges);
    record.url_bytes = static_cast<std::uint32_t>(p.url.size());
    append(&record, sizeof record);
    append(p.tablets.data(), ranges * sizeof(tablet_range));
    append(p.url.data(), p.url.size());
    message.resize(detail::round_up(message.size(), 8));
    ++body.count;
  }
  reply r;
  return cycle_call(message_type::trace_peers, &body, sizeof body, std::span(message).subspan(sizeof body), deadline,
                    r);
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::add_dirty(std::uint64_t cycle, std::span<const slot_bits> slots,
                                   time_point deadline) noexcept {
  const dirty_body body{.cycle = cycle, .count = static_cast<std::uint32_t>(slots.size()), .zero = 0};
  reply r;
  return cycle_call(message_type::add_dirty, &body, sizeof body, std::as_bytes(slots), deadline, r);
}

errc agent_session_impl::trace(std::uint64_t cycle, std::uint32_t number, std::span<const detail::slot_t> slots,
                               std::uint32_t references_max, time_point deadline, trace_answer& out,
                               trace_counts* counts, std::vector<detail::slot_t>& remote_references) noexcept try {
  const trace_body body{.cycle = cycle,
                        .number = number,
                        .count = static_cast<std::uint32_t>(slots.size()),
                        .references_max = references_max,
                        .zero = 0};
  reply r;
  if (const errc e = cycle_call(message_type::trace, &body, sizeof body, std::as_bytes(slots), deadline, r);
      e != errc::ok)
    return e;
  std::span<const std::byte> rest = r.body();
  if (!take(rest, out) || (counts != nullptr && !take(rest, *counts)) || out.remote_references > references_max ||
      out.idle > 1 || rest.size() != out.remote_references * sizeof(detail::slot_t)) {
    break_now(r.session_generation);
    return errc::bad_frame;
  }
  remote_references.resize(out.remote_references);
  if (!remote_references.empty()) std::memcpy(remote_references.data(), rest.data(), rest.size());
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::read_marks(std::uint64_t cycle, std::uint32_t first_tablet, std::uint32_t count, void* out,
                                    time_point deadline) noexcept {
  const read_marks_body body{.cycle = cycle, .first_tablet = first_tablet, .count = count};
  reply r;
  if (const errc e = cycle_call(message_type::read_marks, &body, sizeof body, {}, deadline, r); e != errc::ok) return e;
  const std::span<const std::byte> bits = r.body();
  if (bits.size() != count * marks_bytes) {
    break_now(r.session_generation);
    return errc::bad_frame;
  }
  std::memcpy(out, bits.data(), bits.size());
  return errc::ok;
}

errc agent_session_impl::release_slots(std::uint64_t cycle, std::span<const slot_bits> pages, time_point deadline,
                                       release_answer& out) noexcept {
  const release_body body{.cycle = cycle, .count = static_cast<std::uint32_t>(pages.size()), .zero = 0};
  reply r;
  if (const errc e = cycle_call(message_type::release_slots, &body, sizeof body, std::as_bytes(pages), deadline, r);
      e != errc::ok)
    return e;
  std::span<const std::byte> rest = r.body();
  return take(rest, out) && rest.empty() ? errc::ok : errc::bad_frame;
}

errc agent_session_impl::end_cycle(std::uint64_t cycle, time_point deadline, end_cycle_answer& out) noexcept {
  const cycle_name body{cycle};
  reply r;
  if (const errc e = cycle_call(message_type::end_cycle, &body, sizeof body, {}, deadline, r); e != errc::ok) return e;
  std::span<const std::byte> rest = r.body();
  return take(rest, out) && rest.empty() ? errc::ok : errc::bad_frame;
}

errc agent_session_impl::evacuate(const evacuate_body& what, time_point deadline, evacuate_answer& out) noexcept {
  reply r;
  if (const errc e = cycle_call(message_type::evacuate, &what, sizeof what, {}, deadline, r); e != errc::ok) return e;
  std::span<const std::byte> rest = r.body();
  if (take(rest, out) && rest.empty() && out.done <= 1 && out.left_behind <= 1 && out.emptied <= out.regions &&
      out.order <= static_cast<std::uint32_t>(evacuation_order::breadth_first))
    return errc::ok;
  break_now(r.session_generation);
  return errc::bad_frame;
}

}  // namespace fm::remote::internal
