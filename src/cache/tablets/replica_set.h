// The agents that store a tablet: a primary, which serves and traces it, and backups, which take its place in their order.
// One more may be joining: it gets what is written from now on, and does not have the rest yet (replication.h). In the end
// it is a backup, and joining all the same, until what was written before is known to have arrived.
//
// Every member applies the same batches, and has entries and addresses of its own. So nothing is replayed when a backup
// becomes the primary, each moves and cleans its regions when it likes, and no member hears of the others.
//
// Invariants owned here
//   - A copy is at home when every live member of the set has indexed it (evictor::outcome_of). A member is live until
//     its session is lost, for good. The one that is joining does not count.
//   - A slot is used again when every live member has released it (full_cycle::release).
//   - A set changes while eviction is held back, and no batch that is open then names the old one (evictor::change_sets).
//     So a batch goes to the same members from its first copy to its last.
//   - Words and frames hold addresses of the primary alone. Before another agent is the primary they hold none
//     (rehoming.h).
//
// A set is at most limits::replicas_max agents; sets follow a ring (next_member), so a heap of N agents has O(N) of
// them. RAMCloud and Carbink copy logs and pages; here it is objects, because agents move them (CoRM, section 3).
//
// The evictor, the collector and re-homing read and change sets; misses ask whether there is a backup.
#pragma once

#include "base/replica_limits.h"
#include "table/table.h"
#include <array>

namespace fm::detail {

class replica_set {
 public:
  replica_set() = default;
  static replica_set of_tablet(std::uint32_t tablet) noexcept {
    const tablet_info& t = hit.tablets[tablet];
    const std::uint64_t packed = t.replicas.load(std::memory_order_acquire);  // before the primary: see store()
    return {t.agent.load(std::memory_order_acquire), packed};
  }
  static replica_set of(slot_t slot) noexcept { return of_tablet(tablet_of(slot)); }

  [[nodiscard]] std::uint32_t primary() const noexcept { return primary_; }
  /// `f(agent)` of each backup.
  template <class F>
  void for_each_backup(F&& f) const {
    for (std::uint32_t i = 0; i < joining_at; ++i)
      if (const std::uint32_t a = field(i); a != 0) f(a - 1);
  }
  [[nodiscard]] std::uint32_t backups() const noexcept {
    std::uint32_t n = 0;
    for_each_backup([&](std::uint32_t) { ++n; });
    return n;
  }
  /// Whether the agent is a member, or is joining.
  [[nodiscard]] bool has(std::uint32_t agent) const noexcept {
    bool found = agent == primary_ || (is_joined() && joining() == agent);
    for_each_backup([&](std::uint32_t a) { found |= a == agent; });
    return found;
  }
  /// Somebody is joining, and who.
  [[nodiscard]] bool is_joined() const noexcept { return field(joining_at) != 0; }
  [[nodiscard]] std::uint32_t joining() const noexcept { return field(joining_at) - 1; }

  /// A backup that gets everything, and perhaps lacks some of what was written before it did: it is still joining.
  [[nodiscard]] bool is_on_probation(std::uint32_t agent) const noexcept { return is_joined() && joining() == agent; }
  /// `f(agent)` of each backup that has everything, in the order in which they take over.
  template <class F>
  void for_each_whole_backup(F&& f) const {
    for_each_backup([&](std::uint32_t a) {
      if (!is_on_probation(a)) f(a);
    });
  }

  void set_primary(std::uint32_t agent) noexcept { primary_ = agent; }
  void add(std::uint32_t agent) noexcept {
    for (std::uint32_t i = 0; i < joining_at; ++i)
      if (field(i) == 0) return set_field(i, agent + 1);
  }
  void remove(std::uint32_t agent) noexcept {
    for (std::uint32_t i = 0; i <= joining_at; ++i)
      if (field(i) == agent + 1) set_field(i, 0);
  }
  void begin_joining(std::uint32_t agent) noexcept { set_field(joining_at, agent + 1); }
  void end_joining() noexcept { set_field(joining_at, 0); }

  /// Makes it the tablet's, while eviction is held back. The primary first, and of_tablet() reads it last: who sees a backup
  /// gone because it is the primary sees that it is.
  void store(std::uint32_t tablet) const noexcept {
    hit.tablets[tablet].agent.store(primary_, std::memory_order_release);
    hit.tablets[tablet].replicas.store(packed_, std::memory_order_release);
  }
  friend bool operator==(const replica_set&, const replica_set&) = default;

 private:
  // 16 bits each: the number of the agent, and one.
  static constexpr std::uint32_t joining_at = limits::replicas_max - 1;
  static_assert(joining_at == 3);
  replica_set(std::uint32_t primary, std::uint64_t packed) noexcept : primary_(primary), packed_(packed) {}
  [[nodiscard]] std::uint32_t field(std::uint32_t i) const noexcept { return packed_ >> (16 * i) & 0xffff; }
  void set_field(std::uint32_t i, std::uint32_t v) noexcept {
    packed_ = (packed_ & ~(std::uint64_t{0xffff} << (16 * i))) | std::uint64_t{v} << (16 * i);
  }

  std::uint32_t primary_ = 0;
  std::uint64_t packed_ = 0;
};

/// The agent that the ring has next for a set: the first one after the primary that `may_join(agent)`, of a zone that no
/// member has, or else, unless `strict`, of any; `agents` if there is none. `zone_of(agent)` is 0 for an agent without one, which is a zone
/// of its own.
template <class MayJoin, class ZoneOf>
std::uint32_t next_member(const replica_set& set, std::uint32_t agents, bool strict, MayJoin&& may_join,
                          ZoneOf&& zone_of) {
  std::uint32_t other_zone = agents, any = agents;
  for (std::uint32_t step = 1; step < agents && other_zone == agents; ++step) {
    const std::uint32_t a = (set.primary() + step) % agents;
    if (set.has(a) || !may_join(a)) continue;
    if (any == agents) any = a;
    const std::uint32_t zone = zone_of(a);
    const auto is_same = [&](std::uint32_t member) { return zone != 0 && zone_of(member) == zone; };
    bool same = is_same(set.primary());
    set.for_each_backup([&](std::uint32_t b) { same |= is_same(b); });
    if (!same) other_zone = a;
  }
  return other_zone != agents || strict ? other_zone : any;
}

}  // namespace fm::detail
