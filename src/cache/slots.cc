// Granting, refilling and giving back slots, and the hold that a snapshot takes; see slots.h.
//
// Invariant: locks are taken in this order: sources, the tablets, the mutators. Who holds a source and wants another one
// only tries it. No section waits for any of them (access_wait.h).
#include "slots.h"
#include "evictor.h"
#include "object_cache.h"
#include "rehoming.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

void slot_sources::open(std::size_t agents) {
  for (std::size_t i = 0; i < agents; ++i) sources_.push_back(std::make_unique<slot_source>());
  placement_.open(agents);
}

std::uint32_t slot_sources::next_agent(mutator& m) noexcept {
  object_cache::links& links = cache_.agents();
  if (links.size() > 1) {
    const std::lock_guard lock(placement_mutex_);
    const auto left = [&](std::uint32_t i) { return links[i]->lost() ? 0 : links[i]->left_bytes(); };
    const std::uint64_t unwritten = cache_.options().capacity_bytes / links.size();
    if (const auto agent = placement_.next(left, unwritten, links.front()->region_bytes())) return *agent;
  }
  return static_cast<std::uint32_t>(m.next_agent++ % links.size());
}

void slot_sources::refill(mutator& m) {
  if (next_run(m)) return;
  take_run(m);
  if (cache_.pages().over()) cache_.eviction().give_pages_back();
}

// Slots of dead objects come first: a page of them at a time. Then a run of a tablet that was never used.
void slot_sources::take_run(mutator& m) {
  object_cache::links& links = cache_.agents();
  errc refused = errc::agent_lost;
  std::uint32_t refused_by = 0;
  for (std::size_t attempt = 0;; ++attempt) {
    const std::uint32_t agent =
        attempt == 0 ? next_agent(m) : static_cast<std::uint32_t>(m.next_agent++ % links.size());
    slot_source& source = *sources_[agent];
    const std::lock_guard lock(source.mutex);
    if (links[agent]->lost()) {  // nothing new is placed there
      if (attempt < links.size()) continue;
      if (refused == errc::agent_lost) throw error(refused, links[agent]->url());
      throw error(refused, fmt::format("{} grants no tablets", links[refused_by]->url()));
    }
    if (source.next == source.end && source.free_pages.empty()) {
      const std::uint32_t first = take_tablets(&cache_, agent, limits::tablets_per_grant);
      if (const errc e = links[agent]->grant_tablets(first, limits::tablets_per_grant); e != errc::ok) {
        // Who was not heard of may have granted them: they are nobody's then, for good. With another agent they could
        // be the same slots twice, and each would take references to the other's for its own.
        if (e == errc::quota_exceeded || e == errc::agent_full) give_back_tablets(first, limits::tablets_per_grant);
        refused = e;
        refused_by = agent;
        if (attempt < links.size()) continue;
        throw error(e, fmt::format("{} grants no tablets", links[agent]->url()));
      }
      const std::lock_guard tablets_lock(tablets_mutex_);
      for (std::uint32_t t = first; t < first + limits::tablets_per_grant; ++t) tablets_.push_back(t);
      source.next = first * tablet_slots;
      source.end = source.next + limits::tablets_per_grant * tablet_slots;
    }
    if (m.filling_slots != 0) cache_.pages().end_filling(m.filling, m.filling_slots);
    if (!source.free_pages.empty()) {
      m.rest = source.free_pages.back();
      source.free_pages.pop_back();
      m.filling = m.rest.first;
      m.filling_slots = page_slots;
    } else {
      m.filling = source.next;
      m.filling_slots = limits::slots_per_run;
    }
    cache_.pages().begin_filling(m.filling, m.filling_slots);
    if (m.filling_slots == page_slots) {
      next_run(m);
    } else {
      m.next_slot = source.next;
      m.end_slot = source.next += limits::slots_per_run;
    }
    return;
  }
}

void slot_sources::leave_lost(mutator& m) {
  const auto is_lost = [this](slot_t s) { return cache_.losses().stranded(s); };
  const auto offers = [](const slot_page& p) {
    return std::any_of(p.bits.begin(), p.bits.end(), [](std::uint64_t b) { return b != 0; });
  };
  const bool run = m.next_slot < m.end_slot && is_lost(m.next_slot);
  const bool rest = offers(m.rest) && is_lost(m.rest.first);
  if (!run && !rest) return;
  const slot_t some = run ? m.next_slot : m.rest.first;
  const std::uint32_t agent = object_cache::agent_of(some);
  slot_source& source = *sources_[agent];
  const std::lock_guard lock(source.mutex);
  if (object_cache::agent_of(some) != agent) return;  // it has another agent by now, who takes them
  source.free_pages.reserve(source.free_pages.size() + limits::slots_per_run / page_slots + 2);
  const section in_section;  // a pause sees the one or the other
  while (run && m.next_slot < m.end_slot) {
    slot_page p{m.next_slot / page_slots * page_slots, {}};
    for (; m.next_slot < std::min(m.end_slot, p.first + page_slots); ++m.next_slot)
      p.bits[m.next_slot % page_slots / 64] |= std::uint64_t{1} << (m.next_slot % 64);
    source.free_pages.push_back(p);
  }
  if (rest && object_cache::agent_of(m.rest.first) == agent) {
    source.free_pages.push_back(m.rest);
    m.rest = {};
  }
}

std::vector<std::uint32_t> slot_sources::tablets_of(std::uint32_t lost_agent) {
  // Whoever holds the lock may have begun before the loss, and gets tablets yet.
  const std::lock_guard lock(sources_[lost_agent]->mutex);
  std::vector<std::uint32_t> all = tablets();
  std::erase_if(all,
                [&](std::uint32_t t) { return hit.tablets[t].agent.load(std::memory_order_relaxed) != lost_agent; });
  return all;
}

void slot_sources::move_tablets(std::uint32_t from, std::span<const tablet_move> moves) {
  std::vector<std::unique_lock<std::mutex>> locks;
  for (auto& source : sources_) locks.emplace_back(source->mutex);
  slot_source& old = *sources_[from];
  // Memory first: when a tablet names its new agent nothing may fail any more.
  const std::uint64_t all = old.free_pages.size() + (old.end - old.next + page_slots - 1) / page_slots;
  old.free_pages.reserve(all);
  for (const tablet_move& m : moves) {
    std::vector<slot_page>& to = sources_[m.to]->free_pages;
    to.reserve(to.size() + all);
  }
  for (; old.next < old.end; old.next += page_slots) {
    slot_page& p = old.free_pages.emplace_back();
    p.first = old.next;
    p.bits.fill(~std::uint64_t{0});
  }
  old.next = old.end = 0;
  const std::vector<slot_page> pages = std::exchange(old.free_pages, {});
  for (const tablet_move& m : moves)
    for (std::uint32_t t = m.first; t < m.first + m.count; ++t)
      hit.tablets[t].agent.store(m.to, std::memory_order_release);
  for (const slot_page& p : pages) sources_[object_cache::agent_of(p.first)]->free_pages.push_back(p);
}

void slot_sources::return_slots(std::uint32_t agent, std::span<const slot_page> pages) {
  slot_source& source = *sources_[agent];
  const std::lock_guard lock(source.mutex);
  source.free_pages.insert(source.free_pages.end(), pages.begin(), pages.end());
}

// The next run of slots for a thread out of its page of free ones. In a section: a pause sees the one or the other.
bool slot_sources::next_run(mutator& m) noexcept {
  for (std::size_t i = 0; i < m.rest.bits.size(); ++i) {
    std::uint64_t& w = m.rest.bits[i];
    if (w == 0) continue;
    const int from = __builtin_ctzll(w);
    const std::uint64_t ones = ~(w >> from);
    const int n = ones == 0 ? 64 : std::min(__builtin_ctzll(ones), 64 - from);
    const section in_section;
    w &= ~((n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << from);
    m.next_slot = m.rest.first + i * 64 + static_cast<std::uint64_t>(from);
    m.end_slot = m.next_slot + static_cast<std::uint64_t>(n);
    return true;
  }
  return false;
}

std::vector<std::uint32_t> slot_sources::tablets() const {
  const std::lock_guard lock(tablets_mutex_);
  return tablets_;
}

void slot_sources::disown() noexcept {
  const std::lock_guard lock(tablets_mutex_);
  for (const std::uint32_t t : tablets_) hit.tablets[t].heap.store(nullptr, std::memory_order_release);
}

void slot_sources::give_back() noexcept {
  const std::lock_guard lock(tablets_mutex_);
  for (const std::uint32_t t : tablets_) give_back_tablets(t, 1);
}

// ---- holding them still ----

slot_hold::slot_hold(slot_sources& sources, mutator_list& mutators) : mutators_(mutators) {
  // No source is held while another one is waited for: under that, a thread may be waiting for its agent.
  const std::size_t n = sources.sources_.size();
  for (std::size_t waited_for = 0; locks_.size() < n;) {
    locks_.clear();
    locks_.emplace_back(sources.sources_[waited_for]->mutex);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == waited_for) continue;
      std::unique_lock lock(sources.sources_[i]->mutex, std::try_to_lock);
      if (!lock.owns_lock()) {
        locks_.clear();
        waited_for = i;
        break;
      }
      locks_.push_back(std::move(lock));
    }
  }
  for (auto& source : sources.sources_) {
    if (source->next < source->end) free_runs_.push_back({source->next, source->end});
    free_pages_.insert(free_pages_.end(), source->free_pages.begin(), source->free_pages.end());
  }
  tablets_ = sources.tablets();
  locks_.emplace_back(mutators_.mutex_);
  free_runs_.reserve(free_runs_.size() + mutators_.all_.size());
  free_pages_.reserve(free_pages_.size() + mutators_.all_.size());
}

slot_hold::~slot_hold() = default;

void slot_hold::note_runs() noexcept {
  for (const auto& m : mutators_.all_) {
    if (m->next_slot < m->end_slot) free_runs_.push_back({m->next_slot, m->end_slot});
    free_pages_.push_back(m->rest);
  }
}

std::unique_ptr<slot_marks> slot_hold::allocated(bool only_dirty) {
  if (only_dirty) std::erase_if(tablets_, [](std::uint32_t t) { return !collector_view::has_dirty_card(t); });
  auto marks = std::make_unique<slot_marks>(std::move(tablets_));
  if (mutated(mutation::sweep_by_entry)) return marks;
  for (const run& r : free_runs_) marks->except(r.first, r.end - r.first);
  for (const slot_page& p : free_pages_) marks->except(p);
  if (marks->covers(0)) marks->except(0, 1);
  return marks;
}

}  // namespace fm::detail
