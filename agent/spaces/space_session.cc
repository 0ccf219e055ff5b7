// Messages and one-sided access of a space's owner; see space_session.h.
// A refusal is an answer; a message that no correct owner sends is bad_frame and ends the connection.
// Invariant owned here: a region names its space as long as the space has it, so that no other session reaches it.
#include "space_session.h"

#include "base/log.h"
#include <fmt/format.h>

namespace fm::agent {

namespace {

errc not_the_space_owner(const space& sp, fabric::answer& out, paged_message type) {
  if (!sp.closed.load()) return errc::stale;
  return refuse_space(out, type, errc::not_found, fmt::format("space {} is closed", sp.name));
}

}  // namespace

errc space_session::message(message_type type, body b, fabric::answer& out) {
  if (const auto n = static_cast<std::uint16_t>(type); n < paged_message_first || n > paged_message_last)
    return errc::bad_frame;
  const auto t = static_cast<paged_message>(type);
  if (s_.revoked.load()) return errc::stale;
  if (sp_.closed.load()) return refuse_space(out, t, errc::not_found, fmt::format("space {} is closed", sp_.name));
  switch (t) {
    case paged_message::close_space: return close(b, out);
    case paged_message::space_region: return region_of(b, out);
    case paged_message::release_region: return release(b, out);
    case paged_message::audit_space: return audit(b, out);
    case paged_message::resize_space: return resize(b, out);
    default: return errc::bad_frame;
  }
}

errc space_session::close(body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  {
    const std::lock_guard spaces_lock(of_.spaces_mutex_);
    of_.forget(keep_, "closed by its owner");
  }
  begin_answer(out, as_type(paged_message::close_space), nullptr, 0);
  return errc::ok;
}

errc space_session::region_of(body b, fabric::answer& out) {
  constexpr auto type = paged_message::space_region;
  space_region_body m;
  if (!read_exactly(b, m) || m.existing > 1) return errc::bad_frame;
  const std::lock_guard lock(sp_.mutex);
  if (sp_.owner != &s_ || sp_.closed.load()) return not_the_space_owner(sp_, out, type);
  const auto refuse_new = [&](errc code, const std::string& text) { return refuse_space(out, type, code, text); };
  region*& r = sp_.regions.try_emplace(m.index, nullptr).first->second;
  if (r == nullptr) {
    if (m.existing == 0 && sp_.regions.size() <= sp_.regions_max(regions_.region_bytes()) &&
        !of_.agent_.drained.load(std::memory_order_acquire))
      try {
        r = regions_.take(nullptr, {{sp_.id[0], sp_.id[1]}, sp_.incarnation}, region_use::owner);
      } catch (...) {
        sp_.regions.erase(m.index);
        throw;
      }
    if (r == nullptr) {
      sp_.regions.erase(m.index);
      if (m.existing == 1) return refuse_new(errc::not_found, fmt::format("region {} of space {}", m.index, sp_.name));
      if (of_.agent_.drained.load(std::memory_order_acquire))
        return refuse_new(errc::agent_full, "the agent is being drained");
      if (sp_.regions.size() >= sp_.regions_max(regions_.region_bytes()))
        return refuse_new(errc::quota_exceeded, fmt::format("space {} was promised {} bytes", sp_.name, sp_.bytes));
      return refuse_new(errc::agent_full, fmt::format("{} of {} regions of the agent are in use",
                                                      regions_.regions_in_use(), regions_.regions_max()));
    }
    r->tenant.store(&sp_, std::memory_order_release);
  }
  const space_region_answer a{r->number, r->generation, r->memory.bytes()};
  begin_answer(out, as_type(type), &a, sizeof a);
  out.share(r->memory.fd());
  return errc::ok;
}

errc space_session::release(body b, fabric::answer& out) {
  constexpr auto type = paged_message::release_region;
  space_region_body m;
  if (!read_exactly(b, m) || m.existing > 1) return errc::bad_frame;
  const std::lock_guard lock(sp_.mutex);
  if (sp_.owner != &s_ || sp_.closed.load()) return not_the_space_owner(sp_, out, type);
  if (const auto found = sp_.regions.find(m.index); found != sp_.regions.end()) {
    found->second->tenant.store(nullptr, std::memory_order_release);
    regions_.give_back(*found->second, false);
    sp_.regions.erase(found);
  }
  begin_answer(out, as_type(type), nullptr, 0);
  return errc::ok;
}

errc space_session::audit(body b, fabric::answer& out) {
  constexpr auto type = paged_message::audit_space;
  if (!b.empty()) return errc::bad_frame;
  const std::lock_guard lock(sp_.mutex);
  if (sp_.owner != &s_ || sp_.closed.load()) return not_the_space_owner(sp_, out, type);
  audit_space_answer a{};
  for (const auto& [index, r] : sp_.regions) {
    ++a.regions;
    a.faults += r->tenant.load() != &sp_ || r->owner.load() != nullptr || regions_.find(r->number) != r ||
                r->memory.bytes() != regions_.region_bytes();
  }
  begin_answer(out, as_type(type), &a, sizeof a);
  return errc::ok;
}

errc space_session::resize(body b, fabric::answer& out) {
  constexpr auto type = paged_message::resize_space;
  resize_space_body m;
  if (!read_exactly(b, m)) return errc::bad_frame;
  const std::lock_guard spaces_lock(of_.spaces_mutex_);
  const std::uint64_t room = of_.room_for(sp_), each = regions_.region_bytes(), most = of_.most_bytes();
  const std::lock_guard lock(sp_.mutex);
  if (sp_.owner != &s_ || sp_.closed.load()) return not_the_space_owner(sp_, out, type);
  if (m.bytes > sp_.bytes) {
    if (m.bytes > most)
      return refuse_space(out, type, errc::quota_exceeded,
                          fmt::format("{} bytes wanted, the agent gives a space at most {}", m.bytes, most));
    if (detail::round_up(m.bytes, each) > detail::round_up(sp_.bytes, each) + room)
      return refuse_space(
          out, type, errc::agent_full,
          fmt::format("{} regions of {} bytes wanted, {} promised before, and there is room for {} more",
                      (m.bytes + each - 1) / each, each, (sp_.bytes + each - 1) / each, room / each));
  }
  const std::uint64_t before = detail::round_up(sp_.bytes, each), after = detail::round_up(m.bytes, each);
  sp_.bytes = m.bytes;
  const resize_space_answer a{sp_.bytes, room + before - std::min(room + before, after)};
  begin_answer(out, as_type(type), &a, sizeof a);
  return errc::ok;
}

std::byte* space_session::memory(const fabric::remote& where, std::uint64_t bytes, fabric::access) noexcept {
  // Announced before the test of `revoked`, which spaces::open sets before it looks at the count: one of them sees the
  // other.
  s_.in_flight.fetch_add(1);
  if (!s_.revoked.load() && !sp_.closed.load()) {
    if (region* r = regions_.enter(where.region, where.generation); r != nullptr) {
      if (r->tenant.load(std::memory_order_acquire) == &sp_ && bytes <= regions_.region_bytes() &&
          where.offset <= regions_.region_bytes() - bytes)
        return r->memory.base() + where.offset;
      regions_.leave(*r);
    }
  }
  s_.in_flight.fetch_sub(1);
  return nullptr;
}

void space_session::disconnected() noexcept {
  const std::lock_guard lock(sp_.mutex);
  if (sp_.owner != &s_) return;
  sp_.owner = nullptr;
  sp_.lease_until = of_.agent_.now() + std::chrono::milliseconds(sp_.lease_ms);
  if (!sp_.closed.load())
    log::debug("store {}: space {} lost its owner {}; it has {} ms to come back", of_.agent_.options.name, sp_.name,
               s_.peer.name(), sp_.lease_ms);
}

}  // namespace fm::agent
