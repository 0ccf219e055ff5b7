// Opening pools, and one step of their maintenance: leases of clients, pools without clients, objects that expire,
// compaction; see pools.h.
// Invariant owned here: no two pools of an agent have the same instance number.
// open is called by sessions, maintain by the maintenance thread.
#include "pools.h"

#include "base/log.h"
#include <fmt/format.h>

#include <algorithm>

#include "agent/base/limits.h"
#include "backup_session.h"
#include "base/text.h"
#include "pool_keeper.h"
#include "pool_session.h"

namespace fm::agent {

namespace {

bool sound(const pool_settings& s, std::uint64_t region_bytes) {
  return detail::is_power_of_two(s.block_bytes) && s.block_bytes >= blocks::frame_bytes_min &&
         s.block_bytes <= std::min(blocks::block_bytes_max, region_bytes) && s.arenas >= 1 &&
         s.arenas <= limits::pool_arenas_max && s.compact_above <= 65536 &&
         s.fallback <= static_cast<std::uint8_t>(blocks::fallback::none) && s.shares_lines <= 1 &&
         (s.shares_lines == 0 || s.versions_upto == 0) &&
         std::all_of(std::begin(s.naming), std::end(s.naming),
                     [](std::uint8_t n) { return blocks::exists(static_cast<blocks::naming>(n)); }) &&
         std::all_of(std::begin(s.zero), std::end(s.zero), [](std::uint8_t z) { return z == 0; });
}

}  // namespace

namespace {

std::vector<std::string> urls_of(std::span<const std::byte> b) {
  std::vector<std::string> all;
  for (std::string_view text(reinterpret_cast<const char*>(b.data()), b.size()); !text.empty();) {
    const std::size_t n = text.find('\0');
    all.emplace_back(text.substr(0, n));
    text.remove_prefix(n + 1);
  }
  return all;
}

/// What follows pool_open_body, if anything does.
bool read_replicated(std::span<const std::byte> b, pool_open_replicated& r, std::vector<std::string>& urls) {
  r = {};
  if (b.empty()) return true;
  if (!read_front(b, r) || r.slot == 0 || r.make > 1 || r.zero != 0 || r.url_bytes != b.size() ||
      b.size() > limits::backup_urls_bytes_max || (!b.empty() && b.back() != std::byte{0}))
    return false;
  urls = urls_of(b);
  return urls.size() <= limits::backup_urls_max;
}

bool names_ids(const pool_settings& s) {
  return std::any_of(std::begin(s.naming), std::end(s.naming),
                     [](std::uint8_t n) { return blocks::random_bits(static_cast<blocks::naming>(n)) != 0; });
}

}  // namespace

std::shared_ptr<pool> pools::make(const pool_open_body& m, std::uint64_t quota, std::uint32_t instance,
                                  std::uint32_t slot, std::unique_ptr<pool_replication> replicas) {
  auto p = std::make_shared<pool>(agent_, regions_, m, quota, instance, slot);
  if (replicas != nullptr) {
    const bool is_primary = replicas->members.is_primary();
    p->replicas = std::move(replicas);
    if (const errc e = p->reserve_word(); e != errc::ok)
      throw error(e, fmt::format("pool {}: no memory for its log", p->name));
    if (is_primary) p->begin_log(0);
    p->replicas->keeper = std::make_unique<pool_keeper>(agent_, *p);
    p->replicas->keeper->start();
  }
  by_name_[pool_key(m.tenant[0], m.tenant[1], std::string(m.name), slot)] = p;
  return p;
}

errc pools::open(session& s, std::span<const std::byte> b, fabric::answer& out) {
  constexpr auto type = message_type::pool_open;
  pool_open_body m;
  pool_open_replicated with;
  std::vector<std::string> urls;
  if (!read_front(b, m) || m.resume > 1 || (m.resume == 1) != (m.instance != 0) || (m.tenant[0] | m.tenant[1]) == 0 ||
      (m.client[0] | m.client[1]) == 0 || m.name[0] == 0 || m.name[sizeof m.name - 1] != 0 ||
      !read_replicated(b, with, urls))
    return errc::bad_frame;
  const std::string shown = detail::readable({m.name, sizeof m.name});
  if (m.major != pool_protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks pool protocol {}.{}, the client {}.{}", pool_protocol_major,
                              pool_protocol_minor, m.major, m.minor));
  if (!sound(m.settings, regions_.region_bytes()) || m.settings.shares_lines != 0)  // which is the agent's to say
    return refuse(
        out, type, errc::invalid_argument,
        fmt::format("settings of pool {}: blocks of {} bytes, {} arenas, identities {} and others, fallback {}; with "
                    "regions of {} bytes",
                    shown, m.settings.block_bytes, m.settings.arenas, m.settings.naming[0], m.settings.fallback,
                    regions_.region_bytes()));
  if (with.slot != 0 && (names_ids(m.settings) || m.minor < 3))
    return refuse(out, type, errc::invalid_argument,
                  fmt::format("pool {}: random ids are of one agent, and cannot have replicas", shown));
  if (with.slot != 0 && !agent_.options.hooks.background)
    return refuse(out, type, errc::unsupported, "an agent without threads has no replicas");
  m.settings.keep_ms = std::min(m.settings.keep_ms, limits::pool_keep_max_ms);
  const std::uint64_t most =
      agent_.options.quota_default_bytes ? agent_.options.quota_default_bytes : regions_.memory_bytes();
  const std::uint64_t quota = m.quota_bytes ? m.quota_bytes : most;
  if (quota > most || quota < regions_.region_bytes())
    return refuse(
        out, type, errc::quota_exceeded,
        fmt::format("a quota of {} bytes: the agent gives a pool from {} to {}", quota, regions_.region_bytes(), most));

  std::lock_guard pools_lock(mutex_);
  const pool_key first(m.tenant[0], m.tenant[1], std::string(m.name), 0);
  // Its parts lie beside each other.
  const auto any = by_name_.lower_bound(first);
  const auto is_of_pool = [&](const pool_map::value_type& k) {
    return std::get<0>(k.first) == m.tenant[0] && std::get<1>(k.first) == m.tenant[1] && std::get<2>(k.first) == m.name;
  };
  if (any != by_name_.end() && is_of_pool(*any) && (any->second->slot == 0) != (with.slot == 0))
    return refuse(out, type, errc::invalid_argument,
                  fmt::format("pool {} was made {} replicas", shown, with.slot == 0 ? "with" : "without"));
  auto found = by_name_.find(pool_key(m.tenant[0], m.tenant[1], std::string(m.name), with.slot));
  std::shared_ptr<pool> p = found == by_name_.end() ? nullptr : found->second;
  if (p == nullptr) {
    if (m.resume == 1 || (with.slot != 0 && with.make == 0))
      return refuse(out, type, errc::not_found,
                    fmt::format("pool {} is not there{}", shown, m.resume == 1 ? " any more" : ""));
    if (agent_.drained.load(std::memory_order_acquire))
      return refuse(out, type, errc::refused, "the agent is being drained");
    if (taken() >= agent_.options.pools_max)
      return refuse(out, type, errc::agent_full, fmt::format("the agent has {} pools, its limit", taken()));
    std::uint32_t instance = 0;
    const auto taken = [&](std::uint32_t n) {
      return std::any_of(by_name_.begin(), by_name_.end(), [&](const auto& k) { return k.second->instance == n; });
    };
    const std::uint8_t tag = protocol::blocks::instance_tag(m.tenant, m.name);
    while (instance == 0 || taken(instance)) instance = static_cast<std::uint32_t>(random_.next()) << 8 | tag;
    std::unique_ptr<pool_replication> replicas;
    if (with.slot != 0) {
      while (self_ == 0) self_ = random_.next();
      replicas = std::make_unique<pool_replication>(self_, pair_role::alone, 1,
                                                    std::chrono::milliseconds(agent_.options.pool_tenure_ms));
    }
    m.settings.shares_lines =
        m.minor >= minor_of_shared_lines && m.settings.versions_upto == 0 && !names_ids(m.settings) ? 1 : 0;
    p = make(m, quota, instance, with.slot, std::move(replicas));
    log::at(agent_.heap_level(), "store {}: pool {} made by {}, quota {} bytes", agent_.options.name, shown,
            s.peer.name(), quota);
  }
  if (p->settings.shares_lines == 1 && m.minor < minor_of_shared_lines)
    return refuse(
        out, type, errc::version_mismatch,
        fmt::format("pool {} has slots that version {}.{} of the protocol brought, and the client speaks {}.{}", shown,
                    pool_protocol_major, minor_of_shared_lines, m.major, m.minor));
  // Whatever its role: a backup may become the primary before join looks, and would not know where to look for another one.
  if (p->replicas != nullptr) p->replicas->keeper->may_ask(std::move(urls));
  return join(s, p, m, out);
}

errc pools::join(session& s, const std::shared_ptr<pool>& p, const pool_open_body& m, fabric::answer& out) {
  constexpr auto type = message_type::pool_open;
  std::lock_guard lock(p->structure);
  if (m.resume == 1 && p->instance != m.instance)
    return refuse(out, type, errc::not_found, fmt::format("pool {} is another one now", p->name));
  if (!p->is_primary())
    return refuse(out, type, errc::stale, fmt::format("pool {}: this agent is not its primary", p->name));
  if (!p->serves(agent_.now()))
    return refuse(out, type, errc::under_replicated, fmt::format("pool {}: its backup is silent", p->name));
  std::shared_ptr<pool_client> c = p->find(m.client);
  const bool fresh = c == nullptr;
  if (fresh) {
    if (p->clients.size() >= agent_.options.pool_clients_max)
      return refuse(out, type, errc::agent_full,
                    fmt::format("pool {} has {} clients, its limit", p->name, p->clients.size()));
    c = std::make_shared<pool_client>();
    std::copy(std::begin(m.client), std::end(m.client), c->id);
    c->lease_ms = std::min(m.lease_ms ? m.lease_ms : agent_.options.lease_default_ms, agent_.options.lease_max_ms);
    c->passed = p->blocks->epoch();
    c->told = p->frames->gone();
    pool_log::entry note = p->note(record_kind::client, client_record{{c->id[0], c->id[1]}, c->lease_ms, 0});
    p->clients.push_back(c);
    p->write_down(std::move(note));
  } else if (c->owner != nullptr) {
    c->owner->revoked.store(true);
    c->owner->peer.close(errc::stale, "the client came back on another connection");
  }
  auto opened = std::make_unique<pool_session>(agent_, regions_, s, p, c);
  c->owner = &s;
  c->heard = agent_.now();
  c->asked = 0;  // a notice to an earlier connection may never have arrived
  // A client of a pool with replicas reads no longer than its primary certainly is one.
  const auto reading_ms = [&] {
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(p->reading_lease()).count());
  };
  const pool_open_answer a{p->instance,
                           fresh ? 1u : 0u,
                           regions_.region_bytes(),
                           p->quota_bytes,
                           p->blocks->epoch(),
                           agent_.now_ns(),
                           p->replicas != nullptr ? std::min(c->lease_ms, reading_ms()) : c->lease_ms,
                           p->blocks->chunks(),
                           p->settings};
  begin_answer(out, type, &a, sizeof a);
  if (m.minor != 0) {
    const pool_open_more more{pool_protocol_minor, 0, p->may_tune(*c) ? 1u : 0u};
    append_answer(out, &more, sizeof more);
  }
  if (p->replicas != nullptr) {
    const pool_replication& r = *p->replicas;
    const pool_open_replicas pair{self_, r.members.term(), r.log.end(), r.word.ordinal, r.word.offset};
    append_answer(out, &pair, sizeof pair);
  }
  s.open(std::move(opened));
  p->ask_to_pass();
  agent_.wake();
  return errc::ok;
}

errc pools::open_backup(session& s, std::span<const std::byte> b, fabric::answer& out) {
  const message_type type = as_type(backup_message::open_backup);
  open_backup_body m;
  if (!read_exactly(b, m) || m.resume > 1 || m.slot == 0 || m.instance == 0 || m.primary == 0 || m.term == 0 ||
      (m.tenant[0] | m.tenant[1]) == 0 || m.name[0] == 0 || m.name[sizeof m.name - 1] != 0)
    return errc::bad_frame;
  const std::string shown = detail::readable({m.name, sizeof m.name});
  if (m.major != backup_protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks backup protocol {}.{}, the primary {}.{}", backup_protocol_major,
                              backup_protocol_minor, m.major, m.minor));
  if (m.region_bytes != regions_.region_bytes() || !sound(m.settings, regions_.region_bytes()) ||
      names_ids(m.settings) || m.tenure_ms < limits::tenure_ms_min || m.tenure_ms > limits::tenure_ms_max)
    return refuse(out, type, errc::invalid_argument,
                  fmt::format("settings of pool {}: regions of {} bytes there, and of {} here", shown, m.region_bytes,
                              regions_.region_bytes()));
  if (!agent_.options.hooks.background)
    return refuse(out, type, errc::unsupported, "an agent without threads has no replicas");
  const std::lock_guard pools_lock(mutex_);
  while (self_ == 0) self_ = random_.next();
  const pool_key at(m.tenant[0], m.tenant[1], std::string(m.name), m.slot);
  const auto found = by_name_.find(at);
  std::shared_ptr<pool> p = found == by_name_.end() ? nullptr : found->second;
  if (m.primary == self_) {  // it has found itself; it looks at the number
  } else if (m.resume == 1) {
    // Whoever asks has left, and needs to know that this was heard.
    const bool is_same = p != nullptr && p->instance == m.instance && p->replicas->primary == m.primary;
    const pair_role role = is_same ? p->replicas->members.role() : pair_role::over;
    if (role == pair_role::over)
      return refuse(out, type, errc::not_found, fmt::format("pool {}: it has no backup here any more", shown));
    if (p->is_primary() || p->replicas->members.is_left())
      return refuse(out, type, errc::refused, fmt::format("pool {}: this agent is its primary now", shown));
    if (p->replicas->members.term() > m.term || !p->replicas->members.hear(clock::now()))
      return refuse(out, type, errc::stale, fmt::format("pool {}: it has no backup here", shown));
  } else {
    if (agent_.drained.load(std::memory_order_acquire))
      return refuse(out, type, errc::refused, "the agent is being drained");
    if (p != nullptr) {
      const std::lock_guard lock(p->structure);
      const pair_membership& members = p->replicas->members;
      // What it has may be what counts: then somebody else has to say that it does not.
      const bool has_all = members.role() == pair_role::backup || members.role() == pair_role::leaving;
      if (members.is_primary() || (has_all && members.term() >= m.term))
        return refuse(out, type, errc::stale,
                      fmt::format("pool {}: this agent has it, as {}, term {}", shown, to_string(members.role()),
                                  members.term()));
      p->replicas->members.end();
      p->close();
      ending_.push_back(std::exchange(p, nullptr));
      by_name_.erase(at);
    }
    if (taken() >= agent_.options.pools_max)
      return refuse(out, type, errc::agent_full, fmt::format("the agent has {} pools, its limit", taken()));
    const std::uint64_t most =
        agent_.options.quota_default_bytes ? agent_.options.quota_default_bytes : regions_.memory_bytes();
    if (m.quota_bytes < regions_.region_bytes())
      return refuse(out, type, errc::quota_exceeded, fmt::format("a quota of {} bytes", m.quota_bytes));
    pool_open_body as{};
    std::copy(std::begin(m.tenant), std::end(m.tenant), as.tenant);
    std::copy(std::begin(m.name), std::end(m.name), as.name);
    as.settings = m.settings;
    as.settings.keep_ms = std::min(as.settings.keep_ms, limits::pool_keep_max_ms);
    auto replicas =
        std::make_unique<pool_replication>(self_, pair_role::learning, m.term, std::chrono::milliseconds(m.tenure_ms));
    replicas->primary = m.primary;
    (void)replicas->members.hear(clock::now());
    p = make(as, std::min(m.quota_bytes, most), m.instance, m.slot, std::move(replicas));
    log::at(agent_.heap_level(), "store {}: pool {} is learned from {}", agent_.options.name, shown, s.peer.name());
  }
  open_backup_answer a{self_, 0, zone_number(agent_.options.zone), {}};
  if (m.primary != self_) {
    const std::lock_guard lock(p->structure);
    a.applied = p->replicas->applied;
    s.open(std::make_unique<backup_session>(agent_, p));
  }
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

std::string pools::survive(std::uint32_t instance, std::uint64_t term) {
  std::shared_ptr<pool> p;
  {
    const std::lock_guard pools_lock(mutex_);
    for (const auto& [k, one] : by_name_)
      if (one->instance == instance && one->replicas != nullptr) p = one;
  }
  return p == nullptr ? fmt::format("no pool with replicas has instance {:08x} here", instance)
                      : p->replicas->keeper->survive(term);
}

bool pools::maintain(const std::shared_ptr<pool>& p, time_point at, time_point& wake_at, bool& more) {
  std::lock_guard lock(p->structure);
  if (p->replicas != nullptr && !p->is_primary()) {  // its primary sees to it
    p->was_silent = p->was_silent || p->replicas->members.role() == pair_role::leaving;
    if (p->replicas->members.role() != pair_role::over) return true;
    p->close();
    return false;
  }
  // Nobody can renew a lease with a primary that does not serve: its clients are waiting.
  if (!p->serves(at)) {
    p->was_silent = true;
    return true;
  }
  if (std::exchange(p->was_silent, false)) {
    const time_point back = at + limits::return_tenures * p->replicas->members.tenure();
    for (const auto& c : p->clients) c->hear(back);
    p->empty_since = std::max(p->empty_since, back);
  }
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
      p->close(true);
      return false;
    }
    wake_at = std::min(wake_at, until);
  }
  if (p->ask_again) {
    p->ask_to_pass();
    if (p->ask_again) wake_at = std::min(wake_at, p->ask_at);
  }
  more = p->reclaim() || more;  // what is left of those whose epoch is passed
  more = p->expire() || more;
  wake_at = std::min(wake_at, p->await_expiry(at));
  if (!p->blocks->in_round() || p->blocks->is_imaging()) return true;
  const bool rests = agent_.rests() && !p->short_of_memory;
  if (rests && at < p->next_step) {
    wake_at = std::min(wake_at, p->next_step);
    return true;
  }
  // Messages that change the structure, too, go first, though not for ever: the lock knows no order among those.
  if (p->structure.is_wanted_exclusively() && p->stepped_back++ < limits::steps_back_max) {
    more = true;
    return true;
  }
  const std::uint64_t epoch = p->blocks->epoch();
  p->stepped_back = 0;
  bool steps = p->compact_in_background(at);
  if (p->blocks->epoch() != epoch) p->ask_to_pass();
  if (p->wants_round()) {  // a class has become sparse that this round did not look at
    p->blocks->begin_round(p->compact_above);
    steps = true;
  }
  if (steps && rests)
    wake_at = std::min(wake_at, p->next_step);
  else
    more = more || steps;
  return true;
}

bool pools::maintain(time_point& wake_at) {
  bool more = false;
  std::vector<std::shared_ptr<pool>> ended;  // what they have ends when no lock is held
  const std::lock_guard pools_lock(mutex_);
  const time_point at = agent_.now();
  for (auto next = by_name_.begin(); next != by_name_.end();) {
    if (maintain(next->second, at, wake_at, more)) {
      ++next;
    } else {
      ending_.push_back(std::move(next->second));
      next = by_name_.erase(next);
    }
  }
  std::erase_if(ending_, [&](std::shared_ptr<pool>& p) {
    if (p->replicas != nullptr && !p->replicas->keeper->is_done()) return false;
    ended.push_back(std::move(p));
    return true;
  });
  return more;
}

void pools::drain() {
  const std::lock_guard pools_lock(mutex_);
  for (const auto& [key, p] : by_name_) {
    if (p->replicas == nullptr) continue;
    p->replicas->log.ring();
    const std::lock_guard lock(p->structure);
    p->tell_state();
  }
}

std::size_t pools::count() const {
  const std::lock_guard pools_lock(mutex_);
  return by_name_.size();
}

void pools::close() {
  for (auto& [key, p] : by_name_) {
    std::lock_guard lock(p->structure);
    p->close();
  }
  for (const auto& p : ending_)
    if (p->replicas != nullptr) p->replicas->keeper->hurry();
}

}  // namespace fm::agent
