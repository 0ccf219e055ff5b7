// Messages of an owner about its heap as a whole, its types, its tablets and its entries; members of heap_session.
// Each handler checks every field before use. A refusal is an answer; a message that no correct owner sends is
// bad_frame and ends the connection.
// Fetches take no lock: they enter the region that an entry names, and look again when it has gone.
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "base/text.h"
#include "heap_session.h"

#include <algorithm>

namespace fm::agent {

errc heap_session::close_heap(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  {
    const std::lock_guard lock(h_.mutex);
    if (h_.owner != &s_) return not_the_owner(h_, out, message_type::close_heap);
  }
  of_.free_heap(h_, "closed by its owner", false);
  begin_answer(out, message_type::close_heap, nullptr, 0);
  return errc::ok;
}

errc heap_session::renew(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  // It is a sign of life, so it waits for no lock.
  const bool tells = h_.owner_minor.load(std::memory_order_relaxed) >= minor_of_load;
  constexpr double busiest = 1000;  // times what it can have: that many threads wait
  const renew_answer a{tells ? static_cast<std::uint32_t>(std::clamp(agent_.busy(), 0.0, busiest) * 1000) : 0, 0};
  begin_answer(out, message_type::renew, tells ? &a : nullptr, tells ? sizeof a : 0);
  return errc::ok;
}

errc heap_session::register_types(body b, fabric::answer& out) {
  constexpr auto type = message_type::register_types;
  register_types_body m;
  if (b.size() < sizeof m || !read_exactly(b.first(sizeof m), m) || m.zero != 0) return errc::bad_frame;
  b = b.subspan(sizeof m);
  std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, message_type::register_types);
  for (std::uint32_t i = 0; i < m.count; ++i) {
    type_record t;
    if (b.size() < sizeof t || !read_exactly(b.first(sizeof t), t) || t.zero != 0) return errc::bad_frame;
    b = b.subspan(sizeof t);
    const std::uint64_t tail = detail::round_up(std::uint64_t{t.ref_count} * 4 + t.name_bytes, 8);
    if (tail > b.size() || t.id == 0 || t.id >= heap::type_limit || t.kind > 1) return errc::bad_frame;
    // The smallest copy must fit into a batch of a region of its own; this also keeps every size far from overflow.
    const std::uint64_t fixed = sizeof(batch_header) + detail::header::bytes + 8;
    if (t.bytes > regions_.region_bytes() - fixed || (t.kind == 1 && t.bytes == 0))
      return refuse(out, type, errc::too_large,
                    fmt::format("type {} of {} bytes: 1 to {} are possible with this agent's regions", t.id, t.bytes,
                                regions_.region_bytes() - fixed));
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
    const std::string name = detail::readable(known.name);
    if (const errc e = h_.learn_type(t.id, std::move(known)); e != errc::ok)
      return refuse(out, type, e, fmt::format("type {} ({}) of heap {}", t.id, name, h_.name));
    b = b.subspan(tail);
  }
  if (!b.empty()) return errc::bad_frame;
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc heap_session::take_tablets(message_type type, errc (heap::*how)(std::uint32_t, std::uint32_t), body b,
                                fabric::answer& out) {
  grant_tablets_body m;
  if (!read_exactly(b, m) || m.count == 0 || m.count > heap::tablet_limit || m.first > heap::tablet_limit - m.count)
    return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, type);
  if (of_.is_drained() && (type == message_type::grant_tablets || type == message_type::replicate_tablets))
    return refuse(out, type, errc::agent_full, "the agent is being drained");
  if (const errc e = (h_.*how)(m.first, m.count); e != errc::ok)
    return refuse(out, type, e,
                  fmt::format("{} tablets from {} of heap {}, which has {}", m.count, m.first, h_.name, h_.tablets));
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc heap_session::fetch_slot(body b, fabric::answer& out) {
  constexpr auto type = message_type::fetch_slot;
  fetch_slot_body m;
  if (!read_exactly(b, m) || m.with_page > 1 || m.slot == 0 || m.slot >= detail::slot_limit) return errc::bad_frame;
  entry_t* const entry = h_.entry(m.slot);
  fetch_slot_answer a{entry == nullptr ? detail::word::free : entry->load(std::memory_order_acquire), 0, 0};

  // The object may be moved and its old region freed between the load and the entering; each time round means that
  // somebody made progress, and the bound only guards against a defect.
  region* r = nullptr;
  for (int tries = 0; detail::word::is_remote(a.entry); ++tries) {
    const home_address at = home_address::unpack(a.entry);
    if ((r = regions_.enter(at.region, at.generation)) != nullptr) break;
    const word_t again = entry->load(std::memory_order_acquire);
    if (h_.closed.load()) return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h_.name));
    if (again == a.entry || tries == limits::moves_max)
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
        std::min<std::uint64_t>(regions_.region_bytes() - at.offset, detail::size_class::bytes(at.size_class));
    const std::uint64_t bytes = h_.copy_bytes(copy, room, header);
    if (bytes == 0 || detail::header::slot(header) != m.slot) {
      regions_.leave(*r);
      return refuse(out, type, errc::corrupt,
                    fmt::format("the home copy of slot {} at region {} offset {} has header {:#x}", m.slot, at.region,
                                at.offset, header));
    }
    if (bytes <= m.bytes_max && bytes <= limits::fetched_copy_max) a.bytes = static_cast<std::uint32_t>(bytes);
  }
  std::array<word_t, heap::page_slots> page;
  if (m.with_page == 1 && entry != nullptr) {
    a.page_entries = heap::page_slots;
    const entry_t* const first = h_.entry(m.slot & ~slot_t{heap::page_slots - 1});
    for (std::uint32_t i = 0; i < heap::page_slots; ++i) page[i] = first[i].load(std::memory_order_acquire);
  }
  out.payload.reserve(sizeof(answer_head) + sizeof a + a.page_entries * 8 + a.bytes);
  begin_answer(out, type, &a, sizeof a);
  append_answer(out, page.data(), a.page_entries * 8);
  append_answer(out, copy, a.bytes);
  if (r != nullptr) regions_.leave(*r);
  return errc::ok;
}

errc heap_session::read_entries(body b, fabric::answer& out) {
  read_entries_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.count > limits::entries_read_max || m.first_slot >= detail::slot_limit ||
      m.count > detail::slot_limit - m.first_slot)
    return errc::bad_frame;
  std::vector<word_t> entries(m.count);
  for (std::uint32_t i = 0; i < m.count; ++i) {
    const entry_t* e = h_.entry(m.first_slot + i);
    entries[i] = e == nullptr ? detail::word::free : e->load(std::memory_order_acquire);
  }
  begin_answer(out, message_type::read_entries, entries.data(), entries.size() * 8);
  return errc::ok;
}

errc heap_session::audit(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  std::string text;
  std::lock_guard lock(h_.mutex);
  const audit_answer a = audit_heap(h_, text);
  begin_answer(out, message_type::audit, &a, sizeof a);
  append_answer(out, text.data(), text.size());
  return errc::ok;
}

errc heap_session::statistics(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  heap_sums total;
  std::string text;
  {
    std::lock_guard lock(h_.mutex);
    text = heap_json(h_, agent_.now(), total);
  }
  begin_answer(out, message_type::statistics, text.data(), text.size());
  return errc::ok;
}

}  // namespace fm::agent
