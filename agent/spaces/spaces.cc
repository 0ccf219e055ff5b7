// Messages about spaces; see paged_service.h. Refusals are answers; what a correct owner cannot send is bad_frame.
#include "spaces.h"

#include "agent/service/service.h"
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/service/agent_store.h"

namespace fm::store::node {

namespace {

constexpr message_type as_type(paged_message m) { return static_cast<message_type>(m); }

errc refuse_space(fabric::answer& out, paged_message type, errc code, const std::string& text) {
  return node::refuse(out, as_type(type), code, text);
}

errc not_the_space_owner(const space& sp, fabric::answer& out, paged_message type) {
  if (!sp.closed.load()) return errc::stale;
  return refuse_space(out, type, errc::not_found, fmt::format("space {} is closed", sp.name));
}

std::string printable(const char* text, std::size_t most) {
  std::string s;
  for (std::size_t i = 0; i < most && text[i] != 0; ++i)
    s += static_cast<unsigned char>(text[i]) >= 32 && text[i] != '"' && text[i] != '\\' ? text[i] : '?';
  return s;
}

}  // namespace

paged_service::paged_service(const store_options& options, pool& p) : options_(options), pool_(p) {}

paged_service::~paged_service() {
  for (auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    free_regions(*sp);
  }
}

errc paged_service::message(session& s, std::uint16_t type, body b, fabric::answer& out) {
  const auto t = static_cast<paged_message>(type);
  if (t == paged_message::open_space) return open(s, b, out);
  space* const sp = s.space.load(std::memory_order_acquire);
  if (sp == nullptr) return errc::bad_frame;  // nothing can be said before the space is open
  if (s.revoked.load()) return errc::stale;
  if (sp->closed.load()) return refuse_space(out, t, errc::not_found, fmt::format("space {} is closed", sp->name));
  switch (t) {
    case paged_message::close_space: return close(s, *sp, b, out);
    case paged_message::space_region: return region_of(s, *sp, b, out);
    case paged_message::release_region: return release(s, *sp, b, out);
    case paged_message::audit_space: return audit(s, *sp, b, out);
    default: return errc::bad_frame;
  }
}

std::uint64_t paged_service::promised_regions() const {
  std::uint64_t promised = 0;
  for (const auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    promised += sp->regions_max - sp->regions_open;
  }
  return promised;
}

errc paged_service::open(session& s, body b, fabric::answer& out) {
  constexpr auto type = paged_message::open_space;
  open_space_body m;
  const std::lock_guard one(s.opening);
  if (!read_exactly(b, m) || m.zero != 0 || m.resume > 1 || m.bytes == 0 || s.is_open()) return errc::bad_frame;
  if (m.major != paged_protocol_major)
    return refuse_space(out, type, errc::version_mismatch,
                        fmt::format("the agent speaks paged protocol {}.{}, the owner {}.{}", paged_protocol_major,
                                    paged_protocol_minor, m.major, m.minor));
  const std::uint64_t most = options_.quota_default_bytes != 0 ? options_.quota_default_bytes : pool_.memory_bytes();
  if (m.bytes > most)
    return refuse_space(out, type, errc::quota_exceeded,
                        fmt::format("{} bytes wanted, the agent gives a space at most {}", m.bytes, most));
  const auto regions = static_cast<std::uint32_t>((m.bytes + pool_.region_bytes() - 1) / pool_.region_bytes());
  const std::uint32_t lease = std::min(m.lease_ms != 0 ? m.lease_ms : options_.lease_default_ms, options_.lease_max_ms);

  const std::lock_guard spaces_lock(spaces_mutex_);
  auto found = spaces_.find({m.space_id[0], m.space_id[1]});
  if (found == spaces_.end()) {
    if (m.resume == 1)
      return refuse_space(out, type, errc::not_found, "no such space here; its lease may have run out");
    if (spaces_.size() >= options_.heaps_max)
      return refuse_space(out, type, errc::agent_full,
                          fmt::format("the agent has {} spaces, its limit", spaces_.size()));
    const std::uint64_t usable = pool_.regions_max() - pool_.regions_reserved();
    const std::uint64_t taken = pool_.regions_in_use() + promised_regions();
    if (taken + regions > usable)
      return refuse_space(out, type, errc::agent_full,
                          fmt::format("{} regions of {} bytes wanted, {} of {} are in use or promised", regions,
                                      pool_.region_bytes(), taken, usable));
    auto fresh = std::make_shared<space>();
    fresh->id[0] = m.space_id[0];
    fresh->id[1] = m.space_id[1];
    fresh->incarnation = m.incarnation;
    fresh->name = printable(m.name, sizeof m.name);
    fresh->bytes = m.bytes;
    fresh->regions_max = regions;
    fresh->lease_ms = lease;
    fresh->regions.resize(regions, nullptr);
    found = spaces_.emplace(std::pair{m.space_id[0], m.space_id[1]}, std::move(fresh)).first;
    spdlog::debug("store {}: space {} opened by {}, {} bytes", options_.name, found->second->name, s.peer.name(),
                  m.bytes);
  } else {
    space& sp = *found->second;
    const std::lock_guard lock(sp.mutex);
    if (sp.incarnation != m.incarnation)
      return refuse_space(out, type, errc::stale, "the space belongs to another incarnation of its owner");
    // An owner that never got the answer to its first open asks again as if for the first time.
    if ((m.resume == 0 && sp.regions_open != 0) || sp.bytes != m.bytes)
      return refuse_space(out, type, errc::refused, "the space exists already; resume it");
    if (sp.owner != nullptr) {
      sp.owner->revoked.store(true);
      sp.owner->peer.close(errc::stale, "the space was resumed on another connection");
      if (sp.owner->in_flight.load() != 0)
        return refuse_space(out, type, errc::timed_out, "operations of the previous connection are still running");
    }
  }

  space& sp = *found->second;
  const std::lock_guard lock(sp.mutex);
  s.keep_space = found->second;
  sp.owner = &s;
  sp.lease_until = time_point::max();
  const open_space_answer a{pool_.region_bytes(), sp.regions_max, sp.regions_open, sp.lease_ms, 0};
  begin_answer(out, as_type(type), &a, sizeof a);
  s.space.store(&sp, std::memory_order_release);
  return errc::ok;
}

errc paged_service::close(session& s, space&, body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  {
    const std::lock_guard spaces_lock(spaces_mutex_);
    forget(s.keep_space, "closed by its owner");
  }
  begin_answer(out, as_type(paged_message::close_space), nullptr, 0);
  return errc::ok;
}

errc paged_service::region_of(session& s, space& sp, body b, fabric::answer& out) {
  constexpr auto type = paged_message::space_region;
  space_region_body m;
  if (!read_exactly(b, m) || m.existing > 1 || m.index >= sp.regions_max) return errc::bad_frame;
  const std::lock_guard lock(sp.mutex);
  if (sp.owner != &s) return not_the_space_owner(sp, out, type);
  region*& r = sp.regions[m.index];
  if (r == nullptr) {
    if (m.existing == 1)
      return refuse_space(out, type, errc::not_found, fmt::format("region {} of space {}", m.index, sp.name));
    r = pool_.take(nullptr, {{sp.id[0], sp.id[1]}, sp.incarnation}, region_use::owner);
    if (r == nullptr)
      return refuse_space(
          out, type, errc::agent_full,
          fmt::format("{} of {} regions of the agent are in use", pool_.regions_in_use(), pool_.regions_max()));
    r->tenant.store(&sp, std::memory_order_release);
    ++sp.regions_open;
  }
  const space_region_answer a{r->number, r->generation, r->memory.bytes()};
  begin_answer(out, as_type(type), &a, sizeof a);
  out.key.fd = r->memory.fd();
  return errc::ok;
}

errc paged_service::release(session& s, space& sp, body b, fabric::answer& out) {
  constexpr auto type = paged_message::release_region;
  space_region_body m;
  if (!read_exactly(b, m) || m.existing > 1 || m.index >= sp.regions_max) return errc::bad_frame;
  const std::lock_guard lock(sp.mutex);
  if (sp.owner != &s) return not_the_space_owner(sp, out, type);
  if (region*& r = sp.regions[m.index]; r != nullptr) {
    r->tenant.store(nullptr, std::memory_order_release);
    pool_.give_back(*r, false);
    r = nullptr;
    --sp.regions_open;
  }
  begin_answer(out, as_type(type), nullptr, 0);
  return errc::ok;
}

errc paged_service::audit(session& s, space& sp, body b, fabric::answer& out) {
  constexpr auto type = paged_message::audit_space;
  if (!b.empty()) return errc::bad_frame;
  const std::lock_guard lock(sp.mutex);
  if (sp.owner != &s) return not_the_space_owner(sp, out, type);
  audit_space_answer a{};
  for (const region* r : sp.regions) {
    if (r == nullptr) continue;
    ++a.regions;
    a.faults += r->tenant.load() != &sp || r->owner.load() != nullptr || pool_.find(r->number) != r ||
                r->memory.bytes() != pool_.region_bytes();
  }
  a.faults += a.regions != sp.regions_open;
  begin_answer(out, as_type(type), &a, sizeof a);
  return errc::ok;
}

std::byte* paged_service::memory(session& s, space& sp, const fabric::remote& where, std::uint64_t bytes) noexcept {
  // Announced before the test of `revoked`, which open sets before it looks at the count: one of them sees the other.
  s.in_flight.fetch_add(1);
  if (!s.revoked.load() && !sp.closed.load()) {
    if (region* r = pool_.enter(where.region, where.generation); r != nullptr) {
      if (r->tenant.load(std::memory_order_acquire) == &sp && bytes <= pool_.region_bytes() &&
          where.offset <= pool_.region_bytes() - bytes)
        return r->memory.base() + where.offset;
      pool_.leave(*r);
    }
  }
  s.in_flight.fetch_sub(1);
  return nullptr;
}

void paged_service::disconnected(session& s, space& sp, time_point now) {
  const std::lock_guard lock(sp.mutex);
  if (sp.owner != &s) return;
  sp.owner = nullptr;
  sp.lease_until = now + std::chrono::milliseconds(sp.lease_ms);
  if (!sp.closed.load())
    spdlog::debug("store {}: space {} lost its owner {}; it has {} ms to come back", options_.name, sp.name,
                  s.peer.name(), sp.lease_ms);
}

void paged_service::free_regions(space& sp) {
  sp.closed.store(true);
  for (region*& r : sp.regions) {
    if (r == nullptr) continue;
    r->tenant.store(nullptr, std::memory_order_release);
    pool_.give_back(*r, false);
    r = nullptr;
  }
  sp.regions_open = 0;
}

void paged_service::forget(const std::shared_ptr<space>& sp, const char* why) {
  const std::lock_guard lock(sp->mutex);
  if (sp->closed.load()) return;
  const std::uint32_t regions = sp->regions_open;
  free_regions(*sp);
  spaces_.erase({sp->id[0], sp->id[1]});
  spdlog::debug("store {}: space {} freed with {} regions: {}", options_.name, sp->name, regions, why);
}

time_point paged_service::expire(time_point now) {
  time_point next = time_point::max();
  const std::lock_guard spaces_lock(spaces_mutex_);
  std::vector<std::shared_ptr<space>> over;
  for (const auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    if (sp->owner != nullptr) continue;
    if (sp->lease_until <= now)
      over.push_back(sp);
    else
      next = std::min(next, sp->lease_until);
  }
  for (const auto& sp : over) forget(sp, "its lease ran out");
  return next;
}

std::string paged_service::statistics() const {
  std::string text;
  const std::lock_guard spaces_lock(spaces_mutex_);
  for (const auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    if (!text.empty()) text += ',';
    text +=
        fmt::format(R"({{"name":"{}","id":"{:016x}{:016x}","connected":{},"bytes":{},"regions":{},"regions_max":{}}})",
                    sp->name, sp->id[0], sp->id[1], sp->owner != nullptr, sp->bytes, sp->regions_open, sp->regions_max);
  }
  return '[' + text + ']';
}

}  // namespace fm::store::node
