// Messages about a heap as a whole, its types, tablets and entries. Each handler checks every field before use;
// refusals are answers, anything that a correct owner cannot send is bad_frame and ends the connection.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/service/agent_store.h"

namespace fm::store::node {

namespace {

/// The largest home copy that an answer carries: the transports' default message cap less heads and a page of hints.
constexpr std::uint64_t fetched_copy_max = (1u << 20) - 8192;

}  // namespace

errc agent_store::open_heap(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::open_heap;
  open_heap_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.resume > 1 || s.is_open()) return errc::bad_frame;
  if (m.major != protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks store protocol {}.{}, the owner {}.{}", protocol_major, protocol_minor,
                              m.major, m.minor));
  const std::uint64_t most = options_.quota_default_bytes ? options_.quota_default_bytes : pool_.memory_bytes();
  const std::uint64_t quota = m.quota_bytes ? m.quota_bytes : most;
  if (quota > most)
    return refuse(out, type, errc::quota_exceeded,
                  fmt::format("{} bytes wanted, the agent gives a heap at most {}", quota, most));
  if (quota < pool_.region_bytes())
    return refuse(out, type, errc::quota_exceeded,
                  fmt::format("a quota of {} bytes is less than one region of {}", quota, pool_.region_bytes()));
  const std::uint32_t lease = std::min(m.lease_ms ? m.lease_ms : options_.lease_default_ms, options_.lease_max_ms);

  std::lock_guard heaps_lock(heaps_mutex_);
  auto found = heaps_.find({m.heap_id[0], m.heap_id[1]});
  if (found == heaps_.end()) {
    if (m.resume == 1) return refuse(out, type, errc::not_found, "no such heap here; its lease may have run out");
    if (heaps_.size() >= options_.heaps_max)
      return refuse(out, type, errc::agent_full, fmt::format("the agent has {} heaps, its limit", heaps_.size()));
    found = heaps_.emplace(std::pair{m.heap_id[0], m.heap_id[1]}, std::make_shared<heap>(pool_, m, quota, lease)).first;
    spdlog::log(heap_level(), "store {}: heap {} opened by {}, quota {} bytes", options_.name, found->second->name,
                s.peer.name(), quota);
  } else {
    heap& h = *found->second;
    std::lock_guard lock(h.mutex);
    if (h.key.incarnation != m.incarnation)
      return refuse(out, type, errc::stale, "the heap belongs to another incarnation of its owner");
    // An owner that never got the answer to its first open asks again as if for the first time.
    if (m.resume == 0 && (h.applied_seq != 0 || !h.regions.empty()))
      return refuse(out, type, errc::refused, "the heap exists already; resume it");
    if (h.owner != nullptr) {
      h.owner->revoked.store(true);
      h.owner->peer.close(errc::stale, "the heap was resumed on another connection");
      if (h.owner->in_flight.load() != 0)
        return refuse(out, type, errc::timed_out, "operations of the previous connection are still running");
    }
  }

  heap& h = *found->second;
  open_heap_answer a{pool_.region_bytes(), h.quota_bytes, 0, h.lease_ms, 0};
  std::lock_guard lock(h.mutex);
  s.keep = found->second;
  h.owner = &s;
  h.lease_until = time_point::max();
  a.applied_seq = h.applied_seq;
  for (region* r : h.regions)  // notices sent to an earlier session may never have arrived
    if (r->state == region_state::retiring) r->notice_pending = h.notices_pending = true;
  begin_answer(out, type, &a, sizeof a);
  s.opened.store(&h, std::memory_order_release);
  wake();  // the notices follow the answer
  return errc::ok;
}

errc agent_store::close_heap(session& s, heap& h, body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  {
    const std::lock_guard lock(h.mutex);
    if (h.owner != &s) return not_the_owner(h, out, message_type::close_heap);
  }
  free_heap(s.keep, "closed by its owner", false);
  begin_answer(out, message_type::close_heap, nullptr, 0);
  return errc::ok;
}

errc agent_store::register_types(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::register_types;
  register_types_body m;
  if (b.size() < sizeof m || !read_exactly(b.first(sizeof m), m) || m.zero != 0) return errc::bad_frame;
  b = b.subspan(sizeof m);
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) return not_the_owner(h, out, message_type::register_types);
  for (std::uint32_t i = 0; i < m.count; ++i) {
    type_record t;
    if (b.size() < sizeof t || !read_exactly(b.first(sizeof t), t) || t.zero != 0) return errc::bad_frame;
    b = b.subspan(sizeof t);
    const std::uint64_t tail = detail::round_up(std::uint64_t{t.ref_count} * 4 + t.name_bytes, 8);
    if (tail > b.size() || t.id == 0 || t.id >= heap::type_limit || t.kind > 1) return errc::bad_frame;
    // The smallest copy must fit into a batch of a region of its own; this also keeps every size far from overflow.
    const std::uint64_t fixed = sizeof(batch_header) + detail::header::bytes + 8;
    if (t.bytes > pool_.region_bytes() - fixed || (t.kind == 1 && t.bytes == 0))
      return refuse(out, type, errc::too_large,
                    fmt::format("type {} of {} bytes: 1 to {} are possible with this agent's regions", t.id, t.bytes,
                                pool_.region_bytes() - fixed));
    heap_type known{t.kind, t.bytes, t.layout_hash, std::vector<std::uint32_t>(t.ref_count), {}};
    if (t.ref_count != 0) std::memcpy(known.ref_offsets.data(), b.data(), std::size_t{t.ref_count} * 4);
    known.name.assign(reinterpret_cast<const char*>(b.data()) + std::size_t{t.ref_count} * 4, t.name_bytes);
    // References lie apart, in ascending order, inside the type, and are words wherever an element may begin.
    if (t.ref_count != 0 && t.kind == 1 && t.bytes % 8 != 0) return errc::bad_frame;
    std::uint64_t next = 0;
    for (const std::uint32_t at : known.ref_offsets) {
      if (at < next || at % 8 != 0 || std::uint64_t{at} + 8 > t.bytes) return errc::bad_frame;
      next = std::uint64_t{at} + 8;
    }
    const std::string name = known.name;
    if (const errc e = h.learn_type(t.id, std::move(known)); e != errc::ok)
      return refuse(out, type, e, fmt::format("type {} ({}) of heap {}", t.id, name, h.name));
    b = b.subspan(tail);
  }
  if (!b.empty()) return errc::bad_frame;
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc agent_store::grant_tablets(session& s, heap& h, body b, fabric::answer& out) {
  grant_tablets_body m;
  if (!read_exactly(b, m) || m.count == 0 || m.count > heap::tablet_limit || m.first > heap::tablet_limit - m.count)
    return errc::bad_frame;
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) return not_the_owner(h, out, message_type::grant_tablets);
  if (const errc e = h.grant(m.first, m.count); e != errc::ok)
    return refuse(out, message_type::grant_tablets, e,
                  fmt::format("{} tablets from {} of heap {}, which has {}", m.count, m.first, h.name, h.tablets));
  begin_answer(out, message_type::grant_tablets, nullptr, 0);
  return errc::ok;
}

errc agent_store::fetch_slot(session&, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::fetch_slot;
  fetch_slot_body m;
  if (!read_exactly(b, m) || m.with_page > 1 || m.slot == 0 || m.slot >= detail::slot_limit) return errc::bad_frame;
  entry_t* const entry = h.entry(m.slot);
  fetch_slot_answer a{entry == nullptr ? detail::word::free : entry->load(std::memory_order_acquire), 0, 0};

  // The object may be moved and its old region freed between the load and the entering; each time round means that
  // somebody made progress, and the bound only guards against a defect.
  region* r = nullptr;
  for (int tries = 0; detail::word::is_away(a.entry); ++tries) {
    const home_address at = home_address::unpack(a.entry);
    if ((r = pool_.enter(at.region, at.generation)) != nullptr) break;
    const word_t again = entry->load(std::memory_order_acquire);
    if (h.closed.load()) return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h.name));
    if (again == a.entry || tries == 64)
      return refuse(out, type, errc::corrupt,
                    fmt::format("the entry of slot {} names region {} generation {}, which does not exist", m.slot,
                                at.region, at.generation));
    a.entry = again;
  }
  const std::byte* copy = nullptr;
  if (r != nullptr) {
    const home_address at = home_address::unpack(a.entry);
    copy = r->memory.base() + at.offset;
    std::uint64_t header = 0;
    const std::uint64_t room =
        std::min<std::uint64_t>(pool_.region_bytes() - at.offset, detail::size_class::bytes(at.size_class));
    const std::uint64_t bytes = h.copy_bytes(copy, room, header);
    if (bytes == 0 || detail::header::slot(header) != m.slot) {
      pool_.leave(*r);
      return refuse(out, type, errc::corrupt,
                    fmt::format("the home copy of slot {} at region {} offset {} has header {:#x}", m.slot, at.region,
                                at.offset, header));
    }
    if (bytes <= m.bytes_max && bytes <= fetched_copy_max) a.bytes = static_cast<std::uint32_t>(bytes);
  }
  std::array<word_t, heap::page_slots> page;
  if (m.with_page == 1 && entry != nullptr) {
    a.page_entries = heap::page_slots;
    const entry_t* const first = h.entry(m.slot & ~slot_t{heap::page_slots - 1});
    for (std::uint32_t i = 0; i < heap::page_slots; ++i) page[i] = first[i].load(std::memory_order_acquire);
  }
  out.payload.reserve(sizeof(answer_head) + sizeof a + a.page_entries * 8 + a.bytes);
  begin_answer(out, type, &a, sizeof a);
  append_answer(out, page.data(), a.page_entries * 8);
  append_answer(out, copy, a.bytes);
  if (r != nullptr) pool_.leave(*r);
  return errc::ok;
}

errc agent_store::read_entries(session&, heap& h, body b, fabric::answer& out) {
  read_entries_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.count > 65536 || m.first_slot >= detail::slot_limit ||
      m.count > detail::slot_limit - m.first_slot)
    return errc::bad_frame;
  std::vector<word_t> entries(m.count);
  for (std::uint32_t i = 0; i < m.count; ++i) {
    const entry_t* e = h.entry(m.first_slot + i);
    entries[i] = e == nullptr ? detail::word::free : e->load(std::memory_order_acquire);
  }
  begin_answer(out, message_type::read_entries, entries.data(), entries.size() * 8);
  return errc::ok;
}

errc agent_store::audit(session&, heap& h, body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  std::string text;
  std::lock_guard lock(h.mutex);
  const audit_answer a = audit_heap(h, text);
  begin_answer(out, message_type::audit, &a, sizeof a);
  append_answer(out, text.data(), text.size());
  return errc::ok;
}

}  // namespace fm::store::node
