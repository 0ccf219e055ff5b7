// The list of what is lost; see losses.h.
//
// Invariant: a tablet is on the list exactly while it has a lost object, so that a heap without losses looks at one
// counter.
#include "losses.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

bool lost_agents::stranded(slot_t slot) const noexcept { return cache_.link_of(slot).lost(); }

bool lost_agents::survivors() const noexcept {
  const object_cache::links& links = cache_.agents();
  return std::any_of(links.begin(), links.end(), [](const auto& link) { return !link->lost(); });
}

bool lost_agents::may_change(slot_t slot) const noexcept {
  const word_t w = word_at(slot).load(std::memory_order_acquire);
  if (!word::is_resident(w)) return true;
  const std::uint64_t bytes = frame::total_bytes_of(word::payload(w));
  const std::uint64_t limit = cache_.options().capacity_bytes / limits::stranded_share;
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
