// The choice of steps; see members.h.
//
// Invariant: a step is chosen by what the sets and the sessions say now, and by nothing that was noted before, but for how
// far rebalancing is.
#include "cache/replicas/members.h"
#include "base/log.h"
#include "base/replica_limits.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"

#include <algorithm>
#include <cmath>

namespace fm::detail {

namespace {

constexpr std::uint32_t nobody = tablet_move::nobody;

bool is_whole_backup(const replica_set& set, std::uint32_t agent) {
  bool is = false;
  set.for_each_whole_backup([&](std::uint32_t a) { is = is || a == agent; });
  return is;
}

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
  return rebalance_by_room() || rebalance_by_load();
}

bool set_members::is_apart(const replica_set& set, std::uint32_t from, std::uint32_t to) const {
  const auto zone_of = [&](std::uint32_t a) { return cache_.agents()[a]->zone(); };
  bool apart = true;
  const auto look = [&](std::uint32_t a) {
    apart = apart && (a == from || zone_of(to) == 0 || zone_of(a) != zone_of(to));
  };
  look(set.primary());
  set.for_each_backup(look);
  return apart;
}

bool set_members::rebalance_by_room() {
  if (uneven_.bytes == 0 && !(room_is_new_.exchange(false, std::memory_order_relaxed) && find_uneven())) return false;
  object_cache::links& links = cache_.agents();
  const std::vector<std::uint32_t> tablets = cache_.slots().tablets();
  for (std::size_t looked = 0; looked < tablets.size() && stays(uneven_.to) && stays(uneven_.from); ++looked) {
    const std::uint32_t t = tablets[++next_ % tablets.size()];
    const replica_set set = replica_set::of_tablet(t);
    if (!set.has(uneven_.from) || set.has(uneven_.to) || set.backups() + 1 == limits::replicas_max ||
        !is_apart(set, uneven_.from, uneven_.to))
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

bool set_members::look_at_load() {
  const time_point now = clock::now();
  const double gone = std::chrono::duration<double>(now - looked_at_load_).count();
  if (now < looked_at_load_ + duration(look_at_load_every_.load(std::memory_order_relaxed))) return false;
  object_cache::links& links = cache_.agents();
  std::vector<agent_loads::report> all;
  for (std::uint32_t a = 0; a < links.size(); ++a)
    all.push_back({stays(a) && links[a]->up() && links[a]->can_be_left(), links[a]->busy()});
  loads_.look(all);
  looks_at_load_.fetch_add(1, std::memory_order_relaxed);
  for (std::uint32_t a = 0; a < links.size(); ++a) {
    cache_.slots().set_overloaded(a, loads_.is_overloaded(a));
    if (all[a].may_move) links[a]->ask_busy();  // for the next look
  }
  std::uint64_t misses = 0;
  cache_.mutators().for_each([&](const mutator& m) { misses += m.counters.misses.get(); });
  const bool is_first = std::exchange(looked_at_load_, now) == time_point{};
  // Threads that have ended take along what they counted.
  const std::uint64_t fetched = misses - std::min(misses, std::exchange(misses_then_, misses));
  misses_a_second_ = is_first ? 0 : static_cast<double>(fetched) / gone;
  return true;
}

bool set_members::find_overloaded() {
  // Somebody else makes the agents busy if this process fetches little.
  if (misses_a_second_ < load_misses_least_.load(std::memory_order_relaxed)) return false;
  const std::optional<agent_loads::shift> found = loads_.wanted();
  if (!found || used_share(found->to) > used_share(found->from) + limits::load_fuller_most) return false;
  std::uint64_t served = 0;
  for (const std::uint32_t t : cache_.slots().tablets()) served += replica_set::of_tablet(t).primary() == found->from;
  shift_ = *found;
  shift_left_ = static_cast<std::uint64_t>(std::ceil(static_cast<double>(served) * found->share));
  if (shift_left_ == 0) return false;
  log::info("{} is busier than {}, which takes over {} of its {} tablets", cache_.agents()[shift_.from]->url(),
            cache_.agents()[shift_.to]->url(), shift_left_, served);
  return true;
}

bool set_members::rebalance_by_load() {
  const bool looked = look_at_load();
  if (shift_left_ == 0 && !(looked && find_overloaded())) return false;
  const std::vector<std::uint32_t> tablets = cache_.slots().tablets();
  for (std::size_t i = 0; i < tablets.size() && stays(shift_.to) && stays(shift_.from); ++i) {
    if (!loads_.is_wanted_still(shift_) || used_share(shift_.to) > used_share(shift_.from) + limits::load_fuller_most)
      break;
    const std::uint32_t t = tablets[++next_ % tablets.size()];
    if (!may_take_over(replica_set::of_tablet(t), shift_.from, shift_.to)) continue;
    if (!move_primary(t, shift_.to)) break;
    moved_for_load.fetch_add(1, std::memory_order_relaxed);
    if (--shift_left_ == 0) break;
    return true;
  }
  shift_left_ = 0;
  loads_.ended(shift_);
  return false;
}

bool set_members::may_take_over(const replica_set& set, std::uint32_t from, std::uint32_t to) const {
  if (set.primary() != from || !cache_.agents()[from]->up()) return false;
  return set.has(to) ? is_whole_backup(set, to) : set.backups() + 1 < limits::replicas_max && is_apart(set, from, to);
}

bool set_members::move_primary(std::uint32_t tablet, std::uint32_t to) {
  const bool joins = !replica_set::of_tablet(tablet).has(to);
  if (joins && !replication_.join(tablet, to)) return false;
  if (handover_.run(tablet, to)) return true;
  if (joins && replica_set::of_tablet(tablet).has(to)) handover_.drop(tablet, to);
  return false;
}

}  // namespace fm::detail
