// Opening pools, and one step of their maintenance: leases of clients, pools without clients, objects that expire,
// compaction; see pools.h.
// Invariant owned here: no two pools of an agent have the same instance number.
// open is called by sessions, maintain by the maintenance thread.
#include "pools.h"

#include "base/log.h"
#include <fmt/format.h>

#include <algorithm>

#include "agent/base/limits.h"
#include "base/text.h"
#include "pool_session.h"

namespace fm::agent {

namespace {

bool sound(const pool_settings& s, std::uint64_t region_bytes) {
  return detail::is_power_of_two(s.block_bytes) && s.block_bytes >= blocks::frame_bytes_min &&
         s.block_bytes <= std::min(blocks::block_bytes_max, region_bytes) && s.arenas >= 1 &&
         s.arenas <= limits::pool_arenas_max && s.compact_above <= 65536 &&
         s.fallback <= static_cast<std::uint8_t>(blocks::fallback::none) &&
         std::all_of(std::begin(s.naming), std::end(s.naming),
                     [](std::uint8_t n) { return blocks::exists(static_cast<blocks::naming>(n)); }) &&
         std::all_of(std::begin(s.zero), std::end(s.zero), [](std::uint8_t z) { return z == 0; });
}

}  // namespace

errc pools::open(session& s, std::span<const std::byte> b, fabric::answer& out) {
  constexpr auto type = message_type::pool_open;
  pool_open_body m;
  if (!read_exactly(b, m) || m.resume > 1 || (m.resume == 1) != (m.instance != 0) || (m.tenant[0] | m.tenant[1]) == 0 ||
      (m.client[0] | m.client[1]) == 0 || m.name[0] == 0 || m.name[sizeof m.name - 1] != 0)
    return errc::bad_frame;
  const std::string shown = detail::readable({m.name, sizeof m.name});
  if (m.major != pool_protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks pool protocol {}.{}, the client {}.{}", pool_protocol_major,
                              pool_protocol_minor, m.major, m.minor));
  if (!sound(m.settings, regions_.region_bytes()))
    return refuse(
        out, type, errc::invalid_argument,
        fmt::format("settings of pool {}: blocks of {} bytes, {} arenas, identities {} and others, fallback {}; with "
                    "regions of {} bytes",
                    shown, m.settings.block_bytes, m.settings.arenas, m.settings.naming[0], m.settings.fallback,
                    regions_.region_bytes()));
  m.settings.keep_ms = std::min(m.settings.keep_ms, limits::pool_keep_max_ms);
  const std::uint64_t most =
      agent_.options.quota_default_bytes ? agent_.options.quota_default_bytes : regions_.memory_bytes();
  const std::uint64_t quota = m.quota_bytes ? m.quota_bytes : most;
  if (quota > most || quota < regions_.region_bytes())
    return refuse(
        out, type, errc::quota_exceeded,
        fmt::format("a quota of {} bytes: the agent gives a pool from {} to {}", quota, regions_.region_bytes(), most));

  std::lock_guard pools_lock(mutex_);
  const auto key = std::tuple(m.tenant[0], m.tenant[1], std::string(m.name));
  auto found = by_name_.find(key);
  if (found == by_name_.end()) {
    if (m.resume == 1) return refuse(out, type, errc::not_found, fmt::format("pool {} is not there any more", shown));
    if (by_name_.size() >= agent_.options.pools_max)
      return refuse(out, type, errc::agent_full, fmt::format("the agent has {} pools, its limit", by_name_.size()));
    std::uint32_t instance = 0;
    const auto taken = [&](std::uint32_t n) {
      return std::any_of(by_name_.begin(), by_name_.end(), [&](const auto& p) { return p.second->instance == n; });
    };
    const std::uint8_t tag = protocol::blocks::instance_tag(m.tenant, m.name);
    while (instance == 0 || taken(instance)) instance = static_cast<std::uint32_t>(random_.next()) << 8 | tag;
    found = by_name_.emplace(key, std::make_shared<pool>(agent_, regions_, m, quota, instance)).first;
    log::at(agent_.heap_level(), "store {}: pool {} made by {}, quota {} bytes", agent_.options.name, shown,
            s.peer.name(), quota);
  }
  const std::shared_ptr<pool>& p = found->second;
  std::lock_guard lock(p->structure);
  if (m.resume == 1 && p->instance != m.instance)
    return refuse(out, type, errc::not_found, fmt::format("pool {} is another one now", shown));
  std::shared_ptr<pool_client> c = p->find(m.client);
  const bool fresh = c == nullptr;
  if (fresh) {
    if (p->clients.size() >= agent_.options.pool_clients_max)
      return refuse(out, type, errc::agent_full,
                    fmt::format("pool {} has {} clients, its limit", shown, p->clients.size()));
    c = std::make_shared<pool_client>();
    std::copy(std::begin(m.client), std::end(m.client), c->id);
    c->lease_ms = std::min(m.lease_ms ? m.lease_ms : agent_.options.lease_default_ms, agent_.options.lease_max_ms);
    c->passed = p->blocks->epoch();
    c->told = p->frames->gone();
    p->clients.push_back(c);
  } else if (c->owner != nullptr) {
    c->owner->revoked.store(true);
    c->owner->peer.close(errc::stale, "the client came back on another connection");
  }
  auto opened = std::make_unique<pool_session>(agent_, regions_, s, p, c);
  c->owner = &s;
  c->heard = agent_.now();
  c->asked = 0;  // a notice to an earlier connection may never have arrived
  const pool_open_answer a{p->instance,    fresh ? 1u : 0u,     regions_.region_bytes(),
                           p->quota_bytes, p->blocks->epoch(),  agent_.now_ns(),
                           c->lease_ms,    p->blocks->chunks(), p->settings};
  begin_answer(out, type, &a, sizeof a);
  if (m.minor != 0) {
    const pool_open_more more{pool_protocol_minor, 0, p->may_tune(*c) ? 1u : 0u};
    append_answer(out, &more, sizeof more);
  }
  s.open(std::move(opened));
  p->ask_to_pass();
  agent_.wake();
  return errc::ok;
}

bool pools::maintain(time_point& wake_at) {
  bool more = false;
  std::lock_guard pools_lock(mutex_);
  const time_point at = agent_.now();
  for (auto next = by_name_.begin(); next != by_name_.end();) {
    const std::shared_ptr<pool> p = next->second;
    std::lock_guard lock(p->structure);
    for (const auto& c : std::vector(p->clients)) {
      const time_point until = c->heard.load() + std::chrono::milliseconds(c->lease_ms);
      if (until > at) {
        wake_at = std::min(wake_at, until);
        continue;
      }
      log::at(agent_.heap_level(), "store {}: a client of pool {} was not heard of for {} ms", agent_.options.name,
              p->name, c->lease_ms);
      ++p->count.fenced;
      if (c->owner != nullptr) {
        c->owner->revoked.store(true);
        c->owner->peer.close(errc::stale, "the client's lease ran out");
      }
      p->remove(*c, at);
    }
    if (p->clients.empty()) {
      const time_point until = p->empty_since + std::chrono::milliseconds(p->settings.keep_ms);
      if (until <= at) {
        log::at(agent_.heap_level(), "store {}: pool {} freed: it has no client", agent_.options.name, p->name);
        p->close();
        next = by_name_.erase(next);
        continue;
      }
      wake_at = std::min(wake_at, until);
    }
    if (p->ask_again) {
      p->ask_to_pass();
      if (p->ask_again) wake_at = std::min(wake_at, at + limits::ask_retry);
    }
    more = p->reclaim() || more;  // what is left of those whose epoch is passed
    more = p->expire() || more;
    wake_at = std::min(wake_at, p->await_expiry(at));
    // Messages that change the structure, too, go first, though not for ever: the lock knows no order among those.
    if (p->blocks->in_round() && p->structure.is_wanted_exclusively() && p->stepped_back++ < limits::steps_back_max) {
      more = true;
    } else if (p->blocks->in_round()) {
      const std::uint64_t epoch = p->blocks->epoch();
      p->stepped_back = 0;
      more = p->compact() || more;
      if (p->blocks->epoch() != epoch) p->ask_to_pass();
      if (p->wants_round()) {  // a class has become sparse that this round did not look at
        p->blocks->begin_round(p->compact_above);
        more = true;
      }
    }
    ++next;
  }
  return more;
}

void pools::close() {
  for (auto& [key, p] : by_name_) {
    std::lock_guard lock(p->structure);
    p->close();
  }
}

}  // namespace fm::agent
