// Dispatch and one-sided access of a heap's owner; see heap_session.h.
// The handlers are in messages.cc, region_messages.cc and object_counts.cc.
// Invariant owned here: memory is handed out only while the session is not revoked and the region's gate was entered.
// Called by agent/service, on the transports' threads.
#include "heap_session.h"

#include "base/log.h"
#include <fmt/format.h>

namespace fm::agent {

errc not_the_owner(const heap& h, fabric::answer& out, message_type type) {
  if (!h.closed.load()) return errc::stale;
  return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h.name));
}

errc heap_session::message(message_type type, body b, fabric::answer& out) {
  if (s_.revoked.load()) return errc::stale;
  if (h_.closed.load()) return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h_.name));
  switch (type) {
    case message_type::close_heap: return close_heap(b, out);
    case message_type::register_types: return register_types(b, out);
    case message_type::grant_tablets: return take_tablets(type, &heap::grant, b, out);
    case message_type::replicate_tablets: return take_tablets(type, &heap::replicate, b, out);
    case message_type::promote_tablets: return take_tablets(type, &heap::promote, b, out);
    case message_type::leave_tablets: return take_tablets(type, &heap::leave, b, out);
    case message_type::open_region: return open_region(b, out);
    case message_type::region_info: return region_info(b, out);
    case message_type::seal_region: return seal_region(b, out);
    case message_type::index: return index(b, out);
    case message_type::fetch_slot: return fetch_slot(b, out);
    case message_type::retired_region: return retired_region(b, out);
    case message_type::read_entries: return read_entries(b, out);
    case message_type::audit: return audit(b, out);
    case message_type::statistics: return statistics(b, out);
    case message_type::census: return census(b, out);
    case message_type::detach_heap: return detach_heap(b, out);
    case message_type::claim_heap: return claim_heap(b, out);
    case message_type::renew: return renew(b, out);
    default: break;
  }
  for (heap_part* const part : of_.parts_)
    if (const std::optional<errc> e = part->message(s_, h_, type, b, out)) return *e;
  return errc::bad_frame;
}

std::byte* heap_session::memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept {
  // Announced before the test of `revoked`, which heaps::open sets before it looks at the count: one of them sees the
  // other.
  s_.in_flight.fetch_add(1);
  region* r = nullptr;
  if (!s_.revoked.load() && !h_.closed.load()) r = regions_.enter(where.region, where.generation);
  if (r != nullptr) {
    bool allowed = h_.owns(*r) && bytes <= regions_.region_bytes() && where.offset <= regions_.region_bytes() - bytes;
    if (allowed && how == fabric::access::write) {
      allowed = r->writable.load(std::memory_order_acquire);
      if (allowed && where.offset < r->append_end.load(std::memory_order_acquire)) {
        std::lock_guard lock(h_.mutex);  // into a hole before the last extent
        allowed = !r->overlaps(where.offset, bytes);
      }
      if (allowed && !r->confirmed.load(std::memory_order_relaxed)) r->confirmed.store(true, std::memory_order_relaxed);
    }
    if (allowed) return r->memory.base() + where.offset;
    regions_.leave(*r);
  }
  s_.in_flight.fetch_sub(1);
  return nullptr;
}

void heap_session::disconnected() noexcept {
  std::lock_guard lock(h_.mutex);
  if (h_.owner != &s_) return;
  h_.owner = nullptr;
  const detachment& d = h_.detached;
  const std::uint64_t kept_ms = d.record.empty() ? h_.lease_ms : d.keep_ms;
  h_.lease_until = agent_.now() + std::chrono::milliseconds(kept_ms);
  if (h_.closed.load()) return;
  if (d.record.empty())
    log::at(agent_.heap_level(), "store {}: heap {} lost its owner {}; it has {} ms to come back", agent_.options.name,
            h_.name, s_.peer.name(), kept_ms);
  else
    log::at(agent_.heap_level(), "store {}: heap {} was left by {} as {}, for {} ms", agent_.options.name, h_.name,
            s_.peer.name(), d.name, kept_ms);
}

}  // namespace fm::agent
