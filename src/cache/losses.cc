// The list of what is lost; see losses.h.
//
// Invariant: a tablet is on the list exactly while it has a lost object, so that a heap without losses looks at one
// counter.
#include "losses.h"
#include "cache/memory/access_wait.h"
#include "cache/tablets/replica_set.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

bool lost_agents::stranded(slot_t slot) const noexcept { return cache_.link_of(slot).lost(); }

bool lost_agents::has_replica(slot_t slot) const noexcept {
  bool live = false;
  replica_set::of(slot).for_each_whole_backup([&](std::uint32_t a) { live |= !cache_.agents()[a]->lost(); });
  return live;
}

bool lost_agents::await_home(slot_t slot, const tablet_home& home) {
  const auto is_lost = [&](const tablet_home& h) { return cache_.agents()[h.agent()]->lost(); };
  if (home.is_open() && home.is_still() && !is_lost(home)) return false;
  const time_point deadline = clock::now() + limits::failover_within;
  const access_wait wait(cache_.pressure(), slot);
  std::optional<reading_nothing> reads_nothing;
  if (!wait.outside()) reads_nothing.emplace();
  for (;;) {
    const std::uint32_t seen = moved_.load(std::memory_order_seq_cst);
    const tablet_home now(slot);
    if (now.is_open() && (now.agent() != home.agent() || !is_lost(now))) return true;
    if (cache_.closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for a replica");
    if (now.is_open() && !has_replica(slot)) {
      if (now.is_still()) return false;
      continue;  // another agent has it since
    }
    if (clock::now() >= deadline) return false;
    const std::uint32_t tablet = tablet_of(slot);
    awaited_[tablet % awaited_.size()].store(tablet + 1, std::memory_order_relaxed);
    os::futex_wait(moved_, seen, std::min(deadline, clock::now() + std::chrono::milliseconds(10)));
  }
}

void lost_agents::note_moved() noexcept {
  moved_.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake(moved_, 1 << 30);
}

std::optional<std::uint32_t> lost_agents::take_awaited() noexcept {
  for (std::atomic<std::uint32_t>& place : awaited_)
    if (place.load(std::memory_order_relaxed) != 0)
      if (const std::uint32_t tablet = place.exchange(0, std::memory_order_relaxed)) return tablet - 1;
  return {};
}

// By the session's thread, which must not wait: an agent without memory to list its tablets is not replaced now.
bool lost_agents::is_replaceable(std::uint32_t agent) const noexcept try {
  const object_cache::links& links = cache_.agents();
  const auto answers = [&](std::uint32_t a) { return a != agent && !links[a]->lost() && links[a]->up(); };
  for (const std::uint32_t t : cache_.slots().tablets()) {
    const replica_set set = replica_set::of_tablet(t);
    if (!set.has(agent)) continue;
    bool other = answers(set.primary());
    set.for_each_whole_backup([&](std::uint32_t a) { other |= answers(a); });
    if (!other) return false;
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

std::uint64_t lost_agents::degraded_tablets() const {
  const object_cache::links& links = cache_.agents();
  std::uint64_t n = 0;
  for (const std::uint32_t t : cache_.slots().tablets()) {
    const replica_set set = replica_set::of_tablet(t);
    std::uint32_t live = !links[set.primary()]->lost();
    set.for_each_whole_backup([&](std::uint32_t a) { live += !links[a]->lost(); });
    n += live < cache_.replicas();
  }
  return n;
}

bool lost_agents::survivors() const noexcept {
  const object_cache::links& links = cache_.agents();
  return std::any_of(links.begin(), links.end(), [](const auto& link) { return !link->lost(); });
}

bool lost_agents::may_change(slot_t slot) const noexcept {
  const word_t w = word_at(slot).load(std::memory_order_acquire);
  if (!word::is_resident(w)) return true;
  const std::uint64_t bytes = frame::total_bytes_of(word::payload(w));
  const std::uint64_t limit = cache_.capacity_bytes() / limits::stranded_share;
  return changed_bytes_.load(std::memory_order_relaxed) + bytes <= limit;
}

void lost_agents::note_changed(slot_t slot, char* payload) noexcept {
  if (stranded(slot)) changed_bytes_.fetch_add(frame::total_bytes_of(payload), std::memory_order_relaxed);
}

void lost_agents::check(slot_t slot) {
  if (objects() == 0) return;
  std::uint32_t agent = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = tablets_.find(tablet_of(slot));
    const std::uint64_t i = slot % tablet_slots;
    if (it == tablets_.end() || (it->second->bits[i / 64] >> (i % 64) & 1) == 0) return;
    agent = it->second->agent;
  }
  throw error(errc::agent_lost,
              fmt::format("slot {:#x} was stored on {}, which is lost", slot, cache_.agents()[agent]->url()));
}

void lost_agents::add(std::uint32_t tablet, std::uint32_t agent,
                      std::span<const std::uint64_t, slot_marks::tablet_words> slots) {
  if (mutated(mutation::forget_losses)) return;
  if (std::all_of(slots.begin(), slots.end(), [](std::uint64_t w) { return w == 0; })) return;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<lost_bits>& t = tablets_[tablet];
  if (!t) t = std::make_unique<lost_bits>();
  t->agent = agent;
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    fresh += static_cast<std::uint64_t>(__builtin_popcountll(slots[i] & ~t->bits[i]));
    t->bits[i] |= slots[i];
  }
  t->count += fresh;
  objects_.fetch_add(fresh, std::memory_order_acq_rel);
}

void lost_agents::forget(slot_t slot) noexcept {
  if (objects() == 0) return;
  const std::lock_guard lock(mutex_);
  const auto it = tablets_.find(tablet_of(slot));
  if (it == tablets_.end()) return;
  const std::uint64_t i = slot % tablet_slots, bit = std::uint64_t{1} << (i % 64);
  if ((it->second->bits[i / 64] & bit) == 0) return;
  it->second->bits[i / 64] &= ~bit;
  objects_.fetch_sub(1, std::memory_order_acq_rel);
  if (--it->second->count == 0) tablets_.erase(it);
}

}  // namespace fm::detail
