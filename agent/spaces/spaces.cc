// Opening, resuming and freeing spaces; see spaces.h.
// Invariant owned here: what is promised to a space was there, less what other spaces may still take (room_for).
// open is called by sessions, expire by the maintenance thread.
#include "spaces.h"

#include "base/log.h"
#include <fmt/format.h>

#include "agent/base/limits.h"
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
    const std::uint64_t most = sp->regions_max(regions_.region_bytes());
    promised += most - std::min<std::uint64_t>(most, sp->regions.size());
  }
  return promised;
}

std::uint64_t spaces::most_bytes() const {
  return agent_.options.quota_default_bytes != 0 ? agent_.options.quota_default_bytes : regions_.memory_bytes();
}

std::uint64_t spaces::room_for(const space& sp) const {
  if (agent_.drained.load(std::memory_order_acquire)) return 0;
  const std::uint64_t usable = regions_.regions_max() - regions_.regions_reserved(), each = regions_.region_bytes(),
                      taken = regions_.regions_in_use() + promised_regions(),
                      most = detail::round_down(most_bytes(), each), has = detail::round_up(sp.bytes, each);
  return std::min((usable - std::min(usable, taken)) * each, most - std::min(most, has));
}

errc spaces::open(session& s, std::span<const std::byte> b, fabric::answer& out) {
  constexpr auto type = paged_message::open_space;
  open_space_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.resume > 1 || m.zero_bytes != 0) return errc::bad_frame;
  if (m.major != paged_protocol_major)
    return refuse_space(out, type, errc::version_mismatch,
                        fmt::format("the agent speaks paged protocol {}.{}, the owner {}.{}", paged_protocol_major,
                                    paged_protocol_minor, m.major, m.minor));
  const std::uint32_t lease =
      std::min(m.lease_ms != 0 ? m.lease_ms : agent_.options.lease_default_ms, agent_.options.lease_max_ms);

  const std::lock_guard spaces_lock(spaces_mutex_);
  const auto found = spaces_.find({m.space_id[0], m.space_id[1]});
  std::shared_ptr<space> kept = found == spaces_.end() ? nullptr : found->second;
  std::unique_ptr<space_session> opened;
  if (kept == nullptr) {
    if (m.resume == 1)
      return refuse_space(out, type, errc::not_found, "no such space here; its lease may have run out");
    if (agent_.drained.load(std::memory_order_acquire))
      return refuse_space(out, type, errc::refused, "the agent is being drained");
    if (spaces_.size() >= agent_.options.heaps_max)
      return refuse_space(out, type, errc::agent_full,
                          fmt::format("the agent has {} spaces, its limit", spaces_.size()));
    kept = std::make_shared<space>();
    space* const fresh = kept.get();
    fresh->id[0] = m.space_id[0];
    fresh->id[1] = m.space_id[1];
    fresh->incarnation = m.incarnation;
    fresh->name = detail::readable({m.name, sizeof m.name});
    fresh->lease_ms = lease;
    opened = std::make_unique<space_session>(*this, s, kept);
    spaces_.emplace(std::pair{m.space_id[0], m.space_id[1]}, kept);
    log::debug("store {}: space {} opened by {}", agent_.options.name, kept->name, s.peer.name());
  } else {
    space& sp = *kept;
    opened = std::make_unique<space_session>(*this, s, kept);
    const std::lock_guard lock(sp.mutex);
    if (sp.incarnation != m.incarnation)
      return refuse_space(out, type, errc::stale, "the space belongs to another incarnation of its owner");
    // An owner that never got the answer to its first open asks again as if for the first time.
    if (m.resume == 0 && !sp.regions.empty())
      return refuse_space(out, type, errc::refused, "the space exists already; resume it");
    if (sp.owner != nullptr) {
      sp.owner->revoked.store(true);
      sp.owner->peer.close(errc::stale, "the space was resumed on another connection");
      if (sp.owner->in_flight.load() != 0)
        return refuse_space(out, type, errc::timed_out, "operations of the previous connection are still running");
    }
  }

  space& sp = *kept;
  const std::uint64_t room = room_for(sp);
  const std::lock_guard lock(sp.mutex);
  sp.owner = &s;
  sp.lease_until = time_point::max();
  sp.told_to_leave = agent_.drained.load(std::memory_order_acquire);
  const open_space_answer a{.region_bytes = regions_.region_bytes(),
                            .promised_bytes = sp.bytes,
                            .room_bytes = room,
                            .regions = static_cast<std::uint32_t>(sp.regions.size()),
                            .lease_ms = sp.lease_ms,
                            .zone = zone_number(agent_.options.zone),
                            .drains = std::uint16_t{sp.told_to_leave},
                            .zero = 0};
  begin_answer(out, as_type(type), &a, sizeof a);
  s.open(std::move(opened));
  return errc::ok;
}

void spaces::free_regions(space& sp) {
  sp.closed.store(true);
  for (const auto& [index, r] : sp.regions) {
    r->tenant.store(nullptr, std::memory_order_release);
    regions_.give_back(*r, false);
  }
  sp.regions.clear();
}

void spaces::forget(const std::shared_ptr<space>& sp, const char* why) {
  const std::lock_guard lock(sp->mutex);
  if (sp->closed.load()) return;
  const std::size_t regions = sp->regions.size();
  free_regions(*sp);
  spaces_.erase({sp->id[0], sp->id[1]});
  log::debug("store {}: space {} freed with {} regions: {}", agent_.options.name, sp->name, regions, why);
}

std::size_t spaces::count() const {
  const std::lock_guard lock(spaces_mutex_);
  return spaces_.size();
}

time_point spaces::send_drain_notices() {
  const bool drains = agent_.drained.load(std::memory_order_acquire);
  const struct {
    message_head head;
    drain_notice body;
  } notice{{static_cast<std::uint16_t>(paged_message::drain_space), 0, sizeof(drain_notice)}, {drains ? 1u : 0u, 0}};
  bool left = false;
  const std::lock_guard spaces_lock(spaces_mutex_);
  for (const auto& [id, sp] : spaces_) {
    const std::lock_guard lock(sp->mutex);
    if (sp->owner == nullptr || sp->told_to_leave == drains) continue;
    if (sp->owner->peer.notify({reinterpret_cast<const std::byte*>(&notice), sizeof notice}))
      sp->told_to_leave = drains;
    else
      left = true;  // the peer's queue is full
  }
  return left ? agent_.now() + limits::notice_retry : time_point::max();
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
                    sp->name, sp->id[0], sp->id[1], sp->owner != nullptr, sp->bytes, sp->regions.size(),
                    sp->regions_max(regions_.region_bytes()));
  }
  return '[' + text + ']';
}

}  // namespace fm::agent
