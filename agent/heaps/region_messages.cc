// Messages about regions: opening, describing, sealing, indexing batches in them, and agreeing to their retirement;
// members of heap_session.
// An owner that lost an answer may repeat opening, sealing and retiring.
// Invariant owned here: batches are applied in the order of their numbers, each once, and only to regions that take
// them.
#include "base/log.h"
#include <fmt/format.h>

#include "heap_session.h"

namespace fm::agent {

namespace {

std::string text_of(const region_name& n) { return fmt::format("region {} generation {}", n.region, n.generation); }

/// The heap's region of that name; heap.mutex is held. Generation 0 in a name stands for the current one.
region* find_named(heap& h, const region_name& n, errc& why) {
  region* r = h.regions_pool.find(n.region);
  // A region of another heap looks the same as one that does not exist.
  if (r == nullptr || !h.owns(*r) || r->state == region_state::free) {
    why = errc::not_found;
    return nullptr;
  }
  if (n.generation != 0 && n.generation != r->generation) {
    why = errc::stale;
    return nullptr;
  }
  return r;
}

void answer_region(fabric::answer& out, message_type type, const region& r, const heap& h) {
  const region_answer a{r.number,
                        r.generation,
                        r.memory.bytes(),
                        r.readable(),
                        r.state != region_state::open,
                        static_cast<std::uint32_t>(h.left()) + 1};
  begin_answer(out, type, &a, sizeof a);
  out.share(r.memory.fd());
}

}  // namespace

errc heap_session::find_or_refuse(const region_name& n, message_type type, fabric::answer& out, region*& r) {
  if (h_.owner != &s_) return not_the_owner(h_, out, type);
  errc why = errc::ok;
  r = find_named(h_, n, why);
  return r != nullptr ? errc::ok : refuse(out, type, why, text_of(n));
}

errc heap_session::open_region(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, message_type::open_region);
  // An answer that was lost with its connection: the owner does not know of the region that it got.
  for (region* r : h_.regions)
    if (r->state == region_state::open && !r->by_mover && !r->confirmed.load() && r->opened_by_session != s_.number) {
      r->opened_by_session = s_.number;
      answer_region(out, message_type::open_region, *r, h_);
      return errc::ok;
    }
  errc why = errc::ok;
  region* r = h_.open_region(region_use::owner, why);
  if (h_.is_low()) agent_.wake();
  if (r == nullptr)
    return refuse(out, message_type::open_region, why,
                  why == errc::quota_exceeded
                      ? fmt::format("heap {} has {} regions of {} bytes, its quota is {} bytes", h_.name,
                                    h_.regions.size(), regions_.region_bytes(), h_.quota_bytes)
                      : fmt::format("{} of {} regions of the agent are in use", regions_.regions_in_use(),
                                    regions_.regions_max()));
  r->opened_by_session = s_.number;
  answer_region(out, message_type::open_region, *r, h_);
  return errc::ok;
}

errc heap_session::region_info(body b, fabric::answer& out) {
  region_name m;
  if (!read_exactly(b, m)) return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  region* r = nullptr;
  if (const errc e = find_or_refuse(m, message_type::region_info, out, r); r == nullptr) return e;
  r->confirmed.store(true, std::memory_order_relaxed);
  answer_region(out, message_type::region_info, *r, h_);
  return errc::ok;
}

errc heap_session::seal_region(body b, fabric::answer& out) {
  region_name m;
  if (!read_exactly(b, m) || m.generation == 0) return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  region* r = nullptr;
  if (const errc e = find_or_refuse(m, message_type::seal_region, out, r); r == nullptr) return e;
  if (r->by_mover) return refuse(out, message_type::seal_region, errc::access_denied, text_of(m));
  if (r->state == region_state::open) {
    h_.seal(*r);
    if (h_.is_low()) agent_.wake();
  }
  begin_answer(out, message_type::seal_region, nullptr, 0);
  return errc::ok;
}

errc heap_session::retired_region(body b, fabric::answer& out) {
  constexpr auto type = message_type::retired_region;
  region_name m;
  if (!read_exactly(b, m) || m.generation == 0) return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  region* r = nullptr;
  if (const errc e = find_or_refuse(m, type, out, r); r == nullptr) return e;
  if (r->state != region_state::retiring)
    return refuse(out, type, errc::access_denied, text_of(m) + " is not being retired");
  h_.free_region(*r);
  const retired_answer a{static_cast<std::uint32_t>(h_.left()) + 1, 0};
  begin_answer(out, type, &a, sizeof a);
  agent_.wake();
  return errc::ok;
}

errc heap_session::index(body b, fabric::answer& out) {
  constexpr auto type = message_type::index;
  index_body m;
  if (!read_exactly(b, m) || (m.flags & ~(index_abandoned | index_import)) != 0 || m.offset % 8 != 0 ||
      m.length % 8 != 0 || m.length < sizeof(batch_header) || m.seq == 0)
    return errc::bad_frame;
  std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return not_the_owner(h_, out, message_type::index);
  if (m.incarnation != h_.key.incarnation)
    return refuse(out, type, errc::stale, "index message of another incarnation");
  const bool any_turn = detail::mutated(detail::mutation::index_out_of_turn);
  if (m.seq > h_.applied_seq + 1 && !any_turn)
    return refuse(out, type, errc::stale,
                  fmt::format("batch {} after batch {}: there is a gap", m.seq, h_.applied_seq));
  if (m.seq == h_.applied_seq + 1 || any_turn) {
    errc why = errc::ok;
    region* r = m.generation == 0 ? nullptr : find_named(h_, {m.region, m.generation}, why);
    if (r == nullptr) return refuse(out, type, why == errc::ok ? errc::stale : why, text_of({m.region, m.generation}));
    if (r->by_mover || r->state != region_state::open)
      return refuse(out, type, errc::access_denied, text_of({m.region, m.generation}) + " takes no batches");
    if (m.length > regions_.region_bytes() || m.offset > regions_.region_bytes() - m.length ||
        m.count > (m.length - sizeof(batch_header)) / detail::header::bytes)
      return errc::bad_frame;
    if (r->overlaps(m.offset, m.length) && !any_turn)
      return refuse(out, type, errc::access_denied,
                    fmt::format("{}: bytes {}..{} are indexed already", text_of({m.region, m.generation}), m.offset,
                                m.offset + m.length));
    const char* what = nullptr;
    const errc e = index_batch(h_, *r, m, what);
    if (e == errc::corrupt)
      return refuse(out, type, e,
                    fmt::format("{} offset {}: the bytes there are not batch {}", text_of({m.region, m.generation}),
                                m.offset, m.seq));
    if (e != errc::ok) {
      log::warn("store {}: heap {}: {}", agent_.options.name, h_.name, what);
      return e;
    }
    if (h_.is_low()) agent_.wake();
  }
  const index_answer a{h_.applied_seq};
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

}  // namespace fm::agent
