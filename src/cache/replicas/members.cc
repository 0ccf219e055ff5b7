// The choice of steps; see members.h.
//
// Invariant: a step is chosen by what the sets and the sessions say now, and by nothing that was noted before, but for how
// far a round of rebalancing is.
#include "cache/replicas/members.h"
#include "base/log.h"
#include "base/replica_limits.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"

#include <algorithm>

namespace fm::detail {

namespace {

constexpr std::uint32_t nobody = tablet_move::nobody;

}  // namespace

bool set_members::stays(std::uint32_t agent) const noexcept {
  const remote::agent_session& a = *cache_.agents()[agent];
  return !a.lost() && !a.is_leaving();
}

double set_members::used_share(std::uint32_t agent) const noexcept {
  const remote::agent_session& a = *cache_.agents()[agent];
  const auto quota = static_cast<double>(std::max<std::uint64_t>(a.quota_bytes(), 1));
  return 1 - static_cast<double>(std::min(a.left_bytes(), a.quota_bytes())) / quota;
}

// A tablet for which a step fails holds up no other: the next search goes on behind it.
set_members::outcome set_members::step() noexcept try {
  if (!handover_.forget_left()) return outcome::postponed;
  const std::vector<std::uint32_t> tablets = cache_.slots().tablets();
  for (std::size_t looked = 0; looked < tablets.size(); ++looked) {
    switch (mend(tablets[++next_ % tablets.size()])) {
      case mended::nothing: break;
      case mended::done: return outcome::moved;
      case mended::not_now:
        (void)leave_agents();  // another one, which stores nothing any more
        return outcome::postponed;
    }
  }
  if (!leave_agents() || cache_.losses().degraded_tablets() != 0) return outcome::postponed;
  return rebalance() ? outcome::moved : outcome::settled;
} catch (const std::exception& e) {
  log::warn("replica sets are left as they are now: {}", e.what());
  return outcome::postponed;
}

set_members::mended set_members::mend(std::uint32_t tablet) {
  const replica_set set = replica_set::of_tablet(tablet);
  const std::uint32_t primary = set.primary(), wanted = cache_.replicas();
  if (!cache_.agents()[primary]->up()) return mended::nothing;  // it comes back, or is lost (rehoming.h)
  std::uint32_t staying = stays(primary), leaving = stays(primary) ? nobody : primary;
  set.for_each_whole_backup([&](std::uint32_t a) {
    staying += stays(a);
    if (leaving == nobody && cache_.agents()[a]->is_leaving()) leaving = a;
  });
  if (staying < wanted || leaving != nobody) {
    const std::optional<replica_set> next = without_leavers(set);
    const handover::renewed how = next && *next != set ? handover_.renew(tablet, *next) : handover::renewed::in_use;
    if (how != handover::renewed::in_use) return how == handover::renewed::done ? mended::done : mended::not_now;
  }
  const bool has_field = set.backups() + 1 < limits::replicas_max;
  if (staying < wanted && has_field) {
    const std::uint32_t member = next_for(set);
    if (member == nobody) return mended::nothing;
    return replication_.join(tablet, member) ? mended::done : mended::not_now;
  }
  if (leaving != nobody) return take_out(tablet, set, leaving);
  if (staying > wanted) return take_out(tablet, set, fullest_of(set));
  return mended::nothing;
}

std::optional<replica_set> set_members::without_leavers(const replica_set& set) const {
  const auto serves = [&](std::uint32_t a) {
    return stays(a) && cache_.agents()[a]->up() && cache_.agents()[a]->can_be_left();
  };
  std::uint32_t primary = stays(set.primary()) ? set.primary() : nobody;
  set.for_each_whole_backup([&](std::uint32_t a) {
    if (primary == nobody && serves(a)) primary = a;
  });
  if (primary == nobody) primary = next_for(set);
  if (primary == nobody || (primary != set.primary() && !cache_.agents()[set.primary()]->can_be_left()))
    return std::nullopt;
  replica_set next;
  next.set_primary(primary);
  set.for_each_whole_backup([&](std::uint32_t a) {
    if (a != primary && stays(a)) next.add(a);
  });
  for (std::uint32_t more = 0; next.backups() + 1 < cache_.replicas() && (more = next_for(next)) != nobody;)
    next.add(more);
  return next;
}

set_members::mended set_members::take_out(std::uint32_t tablet, const replica_set& set, std::uint32_t member) {
  if (member != set.primary()) {
    handover_.drop(tablet, member);
    return mended::done;
  }
  if (!cache_.agents()[member]->can_be_left()) return mended::nothing;  // it would go on taking itself for the primary
  std::uint32_t next = nobody;
  set.for_each_whole_backup([&](std::uint32_t a) {
    const remote::agent_session& link = *cache_.agents()[a];
    if (next == nobody && stays(a) && link.up() && link.can_be_left()) next = a;
  });
  if (next == nobody) return mended::nothing;
  return handover_.run(tablet, next) ? mended::done : mended::not_now;
}

std::uint32_t set_members::next_for(const replica_set& set) const {
  object_cache::links& links = cache_.agents();
  const auto n = static_cast<std::uint32_t>(links.size());
  const auto may_join = [&](std::uint32_t a) { return links[a]->up() && links[a]->room_bytes() != 0; };
  if (cache_.replicas() > 1) {
    const std::uint32_t next =
        next_member(set, n, cache_.options().strict_zones, may_join, [&](std::uint32_t a) { return links[a]->zone(); });
    return next == n ? nobody : next;
  }
  std::uint32_t most = nobody;
  for (std::uint32_t a = 0; a < n; ++a)
    if (!set.has(a) && may_join(a) && (most == nobody || links[a]->room_bytes() > links[most]->room_bytes())) most = a;
  return most;
}

std::uint32_t set_members::fullest_of(const replica_set& set) const {
  std::uint32_t fullest = set.primary();
  set.for_each_whole_backup([&](std::uint32_t a) {
    if (used_share(a) > used_share(fullest)) fullest = a;
  });
  return fullest;
}

// ---- agents that are left ----

bool set_members::leave_agents() {
  object_cache::links& links = cache_.agents();
  bool all = true;
  for (std::uint32_t agent = 0; agent < links.size(); ++agent) {
    remote::agent_session& a = *links[agent];
    if (!a.is_leaving() || a.lost()) continue;
    const auto is_member = [&] {
      const std::vector<std::uint32_t> tablets = cache_.slots().tablets();
      return std::any_of(tablets.begin(), tablets.end(),
                         [&](std::uint32_t t) { return replica_set::of_tablet(t).has(agent); });
    };
    all = !is_member() && all;
    if (is_member() || !a.begin_going()) continue;
    {
      // Who was being granted tablets there when it began to leave has got them, or has been refused.
      const slot_hold hold(cache_.slots(), cache_.mutators());
    }
    if (is_member()) {
      a.stay();
      all = false;
      continue;
    }
    a.leave();
    a.detach_all();
    a.set_gone();
    cache_.eviction().forget_refusal(agent);
    cache_.memory().wake_waiters();
    log::info("{} is left: it stores nothing of this heap any more", a.url());
    if (on_left) on_left(agent);
  }
  return all;
}

// ---- rebalancing ----

bool set_members::find_uneven() noexcept {
  object_cache::links& links = cache_.agents();
  std::uint32_t fullest = nobody, emptiest = nobody;
  for (std::uint32_t a = 0; a < links.size(); ++a) {
    if (!stays(a) || !links[a]->up() || !links[a]->can_be_left()) continue;
    if (fullest == nobody || used_share(a) > used_share(fullest)) fullest = a;
    if (emptiest == nobody || used_share(a) < used_share(emptiest)) emptiest = a;
  }
  if (fullest == nobody || used_share(fullest) - used_share(emptiest) < limits::rebalance_from) return false;
  const auto from = static_cast<double>(links[fullest]->quota_bytes()),
             to = static_cast<double>(links[emptiest]->quota_bytes());
  const double gap = used_share(fullest) - used_share(emptiest);
  uneven_ = {fullest, emptiest, static_cast<std::uint64_t>(gap / (1 / from + 1 / to))};
  return true;
}

bool set_members::rebalance() {
  if (!cache_.options().rebalances) return false;
  if (uneven_.bytes == 0 && !(room_is_new_.exchange(false, std::memory_order_relaxed) && find_uneven())) return false;
  object_cache::links& links = cache_.agents();
  const auto zone_of = [&](std::uint32_t a) { return links[a]->zone(); };
  const auto is_apart = [&](const replica_set& set) {  // from the members that stay
    const std::uint32_t zone = zone_of(uneven_.to);
    bool apart = true;
    const auto look = [&](std::uint32_t a) { apart = apart && (a == uneven_.from || zone == 0 || zone_of(a) != zone); };
    look(set.primary());
    set.for_each_backup(look);
    return apart;
  };
  const std::vector<std::uint32_t> tablets = cache_.slots().tablets();
  for (std::size_t looked = 0; looked < tablets.size() && stays(uneven_.to) && stays(uneven_.from); ++looked) {
    const std::uint32_t t = tablets[++next_ % tablets.size()];
    const replica_set set = replica_set::of_tablet(t);
    if (!set.has(uneven_.from) || set.has(uneven_.to) || set.backups() + 1 == limits::replicas_max || !is_apart(set))
      continue;
    const std::uint64_t before = replication_.counts.bytes.load(std::memory_order_relaxed);
    if (!links[set.primary()]->up() || !replication_.join(t, uneven_.to)) break;
    const std::uint64_t bytes = replication_.counts.bytes.load(std::memory_order_relaxed) - before;
    uneven_.bytes -= std::min(uneven_.bytes, bytes);
    const mended out = take_out(t, replica_set::of_tablet(t), uneven_.from);
    const replica_set now = replica_set::of_tablet(t);
    if (out != mended::done && now.backups() + 1 > cache_.replicas() && now.primary() != uneven_.to &&
        now.has(uneven_.to))
      handover_.drop(t, uneven_.to);
    return true;
  }
  uneven_.bytes = 0;
  return false;
}

}  // namespace fm::detail
