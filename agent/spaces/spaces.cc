// Opening, resuming and freeing spaces; see spaces.h.
// Invariant owned here: a space is opened only if the memory that it may grow to was there, less the memory that other
// spaces may still take.
// open is called by sessions, expire by the maintenance thread.
#include "spaces.h"

#include "base/log.h"
#include <fmt/format.h>

#include "base/text.h"
#include "space_session.h"

namespace fm::agent {

spaces::~spaces() {
  for (auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    free_regions(*sp);
  }
}

std::uint64_t spaces::promised_regions() const {
  std::uint64_t promised = 0;
  for (const auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    promised += sp->regions_max - sp->regions_open;
  }
  return promised;
}

errc spaces::open(session& s, std::span<const std::byte> b, fabric::answer& out) {
  constexpr auto type = paged_message::open_space;
  open_space_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.resume > 1 || m.bytes == 0) return errc::bad_frame;
  if (m.major != paged_protocol_major)
    return refuse_space(out, type, errc::version_mismatch,
                        fmt::format("the agent speaks paged protocol {}.{}, the owner {}.{}", paged_protocol_major,
                                    paged_protocol_minor, m.major, m.minor));
  const std::uint64_t most =
      agent_.options.quota_default_bytes != 0 ? agent_.options.quota_default_bytes : regions_.memory_bytes();
  if (m.bytes > most)
    return refuse_space(out, type, errc::quota_exceeded,
                        fmt::format("{} bytes wanted, the agent gives a space at most {}", m.bytes, most));
  const auto regions = static_cast<std::uint32_t>((m.bytes + regions_.region_bytes() - 1) / regions_.region_bytes());
  const std::uint32_t lease =
      std::min(m.lease_ms != 0 ? m.lease_ms : agent_.options.lease_default_ms, agent_.options.lease_max_ms);

  const std::lock_guard spaces_lock(spaces_mutex_);
  const auto found = spaces_.find({m.space_id[0], m.space_id[1]});
  std::shared_ptr<space> kept = found == spaces_.end() ? nullptr : found->second;
  std::unique_ptr<space_session> opened;
  if (kept == nullptr) {
    if (m.resume == 1)
      return refuse_space(out, type, errc::not_found, "no such space here; its lease may have run out");
    if (spaces_.size() >= agent_.options.heaps_max)
      return refuse_space(out, type, errc::agent_full,
                          fmt::format("the agent has {} spaces, its limit", spaces_.size()));
    const std::uint64_t usable = regions_.regions_max() - regions_.regions_reserved();
    const std::uint64_t taken = regions_.regions_in_use() + promised_regions();
    if (taken + regions > usable)
      return refuse_space(out, type, errc::agent_full,
                          fmt::format("{} regions of {} bytes wanted, {} of {} are in use or promised", regions,
                                      regions_.region_bytes(), taken, usable));
    kept = std::make_shared<space>();
    space* const fresh = kept.get();
    fresh->id[0] = m.space_id[0];
    fresh->id[1] = m.space_id[1];
    fresh->incarnation = m.incarnation;
    fresh->name = detail::readable({m.name, sizeof m.name});
    fresh->bytes = m.bytes;
    fresh->regions_max = regions;
    fresh->lease_ms = lease;
    fresh->regions.resize(regions, nullptr);
    opened = std::make_unique<space_session>(*this, s, kept);
    spaces_.emplace(std::pair{m.space_id[0], m.space_id[1]}, kept);
    log::debug("store {}: space {} opened by {}, {} bytes", agent_.options.name, kept->name, s.peer.name(), m.bytes);
  } else {
    space& sp = *kept;
    opened = std::make_unique<space_session>(*this, s, kept);
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

  space& sp = *kept;
  const std::lock_guard lock(sp.mutex);
  sp.owner = &s;
  sp.lease_until = time_point::max();
  const open_space_answer a{regions_.region_bytes(), sp.regions_max, sp.regions_open, sp.lease_ms, 0};
  begin_answer(out, as_type(type), &a, sizeof a);
  s.open(std::move(opened));
  return errc::ok;
}

void spaces::free_regions(space& sp) {
  sp.closed.store(true);
  for (region*& r : sp.regions) {
    if (r == nullptr) continue;
    r->tenant.store(nullptr, std::memory_order_release);
    regions_.give_back(*r, false);
    r = nullptr;
  }
  sp.regions_open = 0;
}

void spaces::forget(const std::shared_ptr<space>& sp, const char* why) {
  const std::lock_guard lock(sp->mutex);
  if (sp->closed.load()) return;
  const std::uint32_t regions = sp->regions_open;
  free_regions(*sp);
  spaces_.erase({sp->id[0], sp->id[1]});
  log::debug("store {}: space {} freed with {} regions: {}", agent_.options.name, sp->name, regions, why);
}

time_point spaces::expire(time_point now) {
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

std::string spaces::statistics() const {
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

}  // namespace fm::agent
