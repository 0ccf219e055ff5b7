// Granting, refilling and giving back slots, and the hold that a snapshot takes; see slots.h.
//
// Invariant: locks are taken in this order: sources, the evictor, the tablets, the mutators. Who holds a source and wants another one
// only tries it. No section waits for any of them (access_wait.h).
#include "slots.h"
#include "cache/eviction/evictor.h"
#include "cache/tablets/replica_set.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

namespace fm::detail {

namespace {

bool has_slots(const slot_page& p) noexcept {
  return std::any_of(p.bits.begin(), p.bits.end(), [](std::uint64_t w) { return w != 0; });
}

// One of the free slots that a thread has, if any.
std::optional<slot_t> some_slot(const mutator& m) noexcept {
  if (m.next_slot < m.end_slot.load(std::memory_order_relaxed)) return m.next_slot;
  return has_slots(m.rest) ? std::optional(m.rest.first) : std::nullopt;
}

// The slots from `at` to `end`, page by page. Runs begin and end anywhere in a page.
template <class Visit>
void for_each_page(slot_t at, slot_t end, const Visit& visit) {
  while (at < end) {
    slot_page page{at / page_slots * page_slots, {}};
    for (; at < end && at < page.first + page_slots; ++at)
      page.bits[(at - page.first) / 64] |= std::uint64_t{1} << (at - page.first) % 64;
    visit(page);
  }
}

}  // namespace

void slot_sources::add_agent() {
  auto source = std::make_unique<slot_source>();
  {
    const std::lock_guard lock(placement_mutex_);
    placement_.open(sources_.size() + 1);
  }
  sources_.push_back(std::move(source));
}

std::optional<std::uint32_t> slot_sources::place(std::uint64_t bytes) noexcept {
  object_cache::links& links = cache_.agents();
  if (links.size() == 1) return std::nullopt;
  const std::lock_guard lock(placement_mutex_);
  const auto left = [&](std::uint32_t i) { return i < links.size() ? links[i]->room_bytes() : 0; };
  return placement_.next(left, cache_.capacity_bytes() / links.size(), links.front()->region_bytes(), bytes);
}

void slot_sources::charge(std::uint32_t agent, std::int64_t bytes) noexcept {
  if (bytes == 0 || sources_.size() == 1) return;
  const std::lock_guard lock(placement_mutex_);
  placement_.charge(agent, bytes);
}

// By the agent that has least: one that has none gets no run.
std::uint64_t slot_sources::run_bytes_most() const noexcept {
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& link : cache_.agents())
    if (const std::uint64_t left = link->room_bytes(); left != 0) least = std::min(least, left);
  return std::max(limits::run_bytes_min, least / limits::runs_in_room);
}

void slot_sources::begin_run(mutator& m, std::uint32_t agent, std::uint64_t expected, std::uint64_t most) noexcept {
  charge(agent, static_cast<std::int64_t>(expected));
  m.run_agent = agent;
  m.run_from = m.bytes_made();
  m.run_expected = expected;
  m.run_most = most;
}

void slot_sources::settle_run(mutator& m) noexcept {
  if (m.run_most == 0) return;
  charge(m.run_agent, static_cast<std::int64_t>(m.bytes_made() - m.run_from - m.run_expected));
  m.run_most = 0;
}

// Without a limit, somebody may have settled the run that is being taken back: its words are not the thread's now.
bool slot_sources::outgrew_run(const mutator& m) const noexcept {
  return m.has_slot() && m.run_most != 0 && m.bytes_made() - m.run_from >= m.run_most;
}

void slot_sources::refill(mutator& m, std::uint64_t together) {
  if (next_run(m)) return;
  take_run(m, together);
  if (cache_.pages().over()) cache_.eviction().give_pages_back();
}

// Slots of dead objects come first: a page of them at a time. Then a run of a tablet that was never used.
void slot_sources::take_run(mutator& m, std::uint64_t together) {
  const std::uint64_t wanted = cache_.leases().slots_wanted(m, together);
  object_cache::links& links = cache_.agents();
  errc refused = errc::agent_lost;
  std::uint32_t refused_by = 0;
  // The first attempt is at the agent that placement chose; when it grants nothing, at the others in turn.
  settle_run(m);
  const std::uint64_t objects = m.counters.allocated_objects.get(), most = sources_.size() > 1 ? run_bytes_most() : 0;
  const std::uint64_t each = objects != 0 ? m.bytes_made() / objects : limits::run_bytes_min / limits::slots_per_run;
  const auto expected = [&](std::uint64_t slots) { return std::min(slots * each, most); };
  const std::optional<std::uint32_t> chosen = place(expected(wanted));
  for (std::size_t attempt = 0;; ++attempt) {
    const std::uint32_t agent =
        attempt == 0 && chosen ? *chosen : static_cast<std::uint32_t>(m.next_agent++ % links.size());
    slot_source& source = *sources_[agent];
    const std::lock_guard lock(source.mutex);
    // No new tablets are granted by an agent that is being left; free slots of those that it has move with them.
    const bool is_left = links[agent]->is_leaving() && source.next == source.end && source.free_pages.empty();
    if (links[agent]->lost() || is_left) {
      if (is_left && !links[agent]->lost() && refused == errc::agent_lost)
        refused = errc::agent_full, refused_by = agent;
      if (attempt < links.size()) continue;
      if (refused == errc::agent_lost) throw error(refused, links[agent]->url());
      throw error(refused, fmt::format("{} grants no tablets", links[refused_by]->url()));
    }
    if (source.next == source.end && source.free_pages.empty()) {
      const std::uint32_t first = take_tablets(&cache_, agent, limits::tablets_per_grant);
      if (cache_.replicas() > 1) grant_backups(agent, first, limits::tablets_per_grant);
      if (const errc e = links[agent]->grant_tablets(first, limits::tablets_per_grant); e != errc::ok) {
        // Who was not heard of may have granted them: they are nobody's then, for good. With another agent they could
        // be the same slots twice, and each would take references to the other's for its own.
        if (e == errc::quota_exceeded || e == errc::agent_full) give_back_tablets(first, limits::tablets_per_grant);
        refused = e;
        refused_by = agent;
        if (attempt < links.size()) continue;
        throw error(e, fmt::format("{} grants no tablets", links[agent]->url()));
      }
      set_dumped(first, limits::tablets_per_grant);
      const std::lock_guard tablets_lock(tablets_mutex_);
      for (std::uint32_t t = first; t < first + limits::tablets_per_grant; ++t) tablets_.push_back(t);
      source.next = first * tablet_slots;
      source.end = source.next + limits::tablets_per_grant * tablet_slots;
    }
    slot_page page;
    slot_t first = 0, end = 0, filling = 0;
    std::uint64_t filling_slots = 0;
    if (!source.free_pages.empty()) {
      const std::size_t pages = source.free_pages.size();
      page = take_page(source, wanted);
      if (source.free_pages.size() < pages) filling = page.first, filling_slots = page_slots;
    } else {
      first = filling = source.next;
      // Runs begin where their length divides: a long one has whole pages of the HIT to itself.
      end = source.next = std::min(source.end, first + wanted - first % wanted);
      if (end - first >= page_slots) filling_slots = end - first;
    }
    if (filling_slots != 0) cache_.pages().begin_filling(filling, filling_slots);
    const section in_section;  // a pause sees them here or there
    cache_.leases().lease_slots(m, page, first, end, filling_slots);
    if (chosen) charge(*chosen, -static_cast<std::int64_t>(expected(wanted)));
    begin_run(m, agent, expected(m.run_slots), most);
    next_run(m);
    return;
  }
}

void slot_sources::set_dumped(std::uint32_t first, std::uint32_t count) const noexcept {
  if (cache_.options().dumped)
    os::reservation::set_dumped(hit.words + first * tablet_slots, count * tablet_slots * sizeof(word_t), true);
}

void slot_sources::adopt(std::uint32_t first, std::uint32_t count, const replica_set& set) {
  const std::lock_guard lock(tablets_mutex_);
  tablets_.reserve(tablets_.size() + count);
  take_stored_tablets(&cache_, first, count);
  for (std::uint32_t t = first; t < first + count; ++t) {
    set.store(t);
    tablets_.push_back(t);
  }
  set_dumped(first, count);
}

// Nobody knows of the tablets yet, so their sets may be stored without holding eviction back. A set that stays short of
// members is completed later (replication.h).
void slot_sources::grant_backups(std::uint32_t primary, std::uint32_t first, std::uint32_t count) noexcept {
  object_cache::links& links = cache_.agents();
  replica_set set;
  set.set_primary(primary);
  std::uint64_t refused = 0;
  const auto n = static_cast<std::uint32_t>(links.size());
  const auto zone = [&](std::uint32_t a) { return links[a]->zone(); };
  while (set.backups() + 1 < cache_.replicas()) {
    const std::uint32_t to = next_member(
        set, n, cache_.options().strict_zones,
        [&](std::uint32_t a) {
          return links[a]->up() && links[a]->room_bytes() != 0 && (a >= 64 || (refused >> a & 1) == 0);
        },
        zone);
    if (to == n) break;
    if (links[to]->replicate_tablets(first, count) == errc::ok)
      set.add(to);
    else if (to < 64)
      refused |= std::uint64_t{1} << to;
    else
      break;
  }
  for (std::uint32_t t = first; t < first + count; ++t) set.store(t);
}

// One of the free slots that the thread has, if any, none of which anybody takes back now.
std::optional<slot_t> slot_sources::slot_of_run(mutator& m) noexcept {
  const section in_section;
  if (m.slot_limit.load(limit_order) == 0) cache_.leases().restore_slots(m);
  return some_slot(m);
}

void slot_sources::leave_lost(mutator& m) {
  if (const auto some = slot_of_run(m); some && cache_.losses().stranded(*some)) leave_run(m);
}

void slot_sources::leave_run(mutator& m) {
  const std::optional<slot_t> some = slot_of_run(m);
  if (!some) return;
  const std::uint32_t agent = object_cache::agent_of(*some);
  slot_source& source = *sources_[agent];
  const std::lock_guard lock(source.mutex);
  if (object_cache::agent_of(*some) != agent) return;  // it has another agent by now, who takes them
  make_room(source);
  const section in_section;  // a pause sees the one or the other
  cache_.leases().return_slots(m);
}

std::vector<std::uint32_t> slot_sources::tablets_of(std::uint32_t lost_agent) {
  // Whoever holds the lock may have begun before the loss, and gets tablets yet.
  const std::lock_guard lock(sources_[lost_agent]->mutex);
  std::vector<std::uint32_t> all = tablets();
  std::erase_if(all,
                [&](std::uint32_t t) { return hit.tablets[t].agent.load(std::memory_order_relaxed) != lost_agent; });
  return all;
}

std::uint64_t slot_sources::store_primaries(std::span<const tablet_move> moves) {
  const object_cache::links& links = cache_.agents();
  return cache_.eviction().change_sets([&] {
    for (const tablet_move& m : moves)
      for (std::uint32_t t = m.first; t < m.first + m.count; ++t) {
        replica_set set = replica_set::of_tablet(t);
        for (std::uint32_t a = 0; a < links.size(); ++a)
          if (a == m.to || links[a]->lost()) set.remove(a);
        set.set_primary(m.to);
        set.store(t);
        hit.tablets[t].handovers.fetch_add(2, std::memory_order_release);  // open, or closed, as before
      }
  });
}

void slot_sources::name_primaries(std::uint32_t from, std::span<const tablet_move> moves) {
  const std::lock_guard lock(sources_[from]->mutex);
  store_primaries(moves);
}

std::uint64_t slot_sources::move_tablets(std::uint32_t from, std::span<const tablet_move> moves) {
  slot_source& old = *sources_[from];
  std::vector<slot_page> moved;
  std::uint64_t before = 0;
  {
    const std::lock_guard lock(old.mutex);
    const std::size_t pages = old.free_pages.size() + (old.end - old.next) / page_slots + 2;
    old.free_pages.reserve(pages);
    moved.reserve(pages);
    end_first_use(old);
    before = store_primaries(moves);
    std::erase_if(old.free_pages, [&](const slot_page& p) {
      if (object_cache::agent_of(p.first) == from) return false;
      moved.push_back(p);
      return true;
    });
  }
  for (const slot_page& p : moved) offer_page(*sources_[object_cache::agent_of(p.first)], p);
  return before;
}

// No source is held: nobody holds one and waits for another.
void slot_sources::offer_page(slot_source& source, const slot_page& page) noexcept try {
  const std::lock_guard lock(source.mutex);
  source.free_pages.push_back(page);
} catch (const std::bad_alloc&) {  // the next collection finds that there are no objects
}

void slot_sources::return_slots(std::uint32_t agent, std::span<const slot_page> pages) {
  slot_source& source = *sources_[agent];
  const std::lock_guard lock(source.mutex);
  source.free_pages.insert(source.free_pages.end(), pages.begin(), pages.end());
}

void slot_sources::return_unused(std::span<const slot_page> pages) noexcept try {
  if (pages.empty()) return;
  slot_source& source = *sources_[object_cache::agent_of(pages.front().first)];
  const std::lock_guard lock(source.mutex);
  source.free_pages.insert(source.free_pages.begin(), pages.begin(), pages.end());
} catch (const std::bad_alloc&) {
}

// The caller has reserved room. Slots that no object has used go to the front, and allocation takes pages from the back:
// so a tablet without objects stays without, and other agents can have it at once (handover::renew).
void slot_sources::end_first_use(slot_source& source) noexcept {
  const std::size_t used = source.free_pages.size();
  for_each_page(source.next, source.end, [&](const slot_page& p) { source.free_pages.push_back(p); });
  source.next = source.end = 0;
  std::rotate(source.free_pages.begin(), source.free_pages.begin() + static_cast<std::ptrdiff_t>(used),
              source.free_pages.end());
}

std::vector<slot_page> slot_sources::withdraw(std::uint32_t tablet) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  slot_source& source = *sources_[object_cache::agent_of(first)];
  const std::lock_guard lock(source.mutex);
  const auto is_of_it = [&](const slot_page& p) { return tablet_of(p.first) == tablet; };
  std::vector<slot_page> all;
  if (source.next < first + tablet_slots && first < source.end) {
    source.free_pages.reserve(source.free_pages.size() + (source.end - source.next) / page_slots + 2);
    end_first_use(source);
  }
  std::copy_if(source.free_pages.begin(), source.free_pages.end(), std::back_inserter(all), is_of_it);
  std::uint64_t free = 0;
  for (const slot_page& p : all)
    for (const std::uint64_t w : p.bits) free += static_cast<std::uint64_t>(std::popcount(w));
  if (free != tablet_slots && !(mutated(mutation::renew_in_use) && free != 0)) return {};
  std::erase_if(source.free_pages, is_of_it);
  return all;
}

// So many of the newest page of free slots; all of them when it has no more.
slot_page slot_sources::take_page(slot_source& source, std::uint64_t slots) {
  slot_page& from = source.free_pages.back();
  slot_page page{from.first, {}};
  bool left = false;
  for (std::size_t i = 0; i < from.bits.size(); ++i) {
    for (; from.bits[i] != 0 && slots != 0; --slots) {
      const std::uint64_t lowest = from.bits[i] & -from.bits[i];
      page.bits[i] |= lowest;
      from.bits[i] ^= lowest;
    }
    left = left || from.bits[i] != 0;
  }
  if (!left) source.free_pages.pop_back();
  return page;
}

bool slot_sources::take_back(mutator& m) noexcept {
  const std::optional<slot_t> some = some_slot(m);
  if (!some) return true;
  const std::uint32_t agent = object_cache::agent_of(*some);
  const std::unique_lock lock(sources_[agent]->mutex, std::try_to_lock);
  if (!lock.owns_lock() || object_cache::agent_of(*some) != agent) return false;
  try {
    make_room(*sources_[agent]);
  } catch (const std::bad_alloc&) {
    return false;
  }
  offer(m);
  return true;
}

// For what one thread has.
void slot_sources::make_room(slot_source& source) {
  std::vector<slot_page>& pages = source.free_pages;
  const std::size_t more = limits::slots_per_run / page_slots + 2;
  if (pages.capacity() - pages.size() < more) pages.reserve(2 * pages.size() + more);
}

// A thread's run is of one page with its other free slots, or it has no others: one source has them all. With its lock
// the thread has them no more: a pause that holds the sources still finds them in one place, and no half of a run.
void slot_sources::offer(mutator& m) noexcept {
  const std::optional<slot_t> some = some_slot(m);
  if (!some) return;
  slot_source& source = *sources_[object_cache::agent_of(*some)];
  const auto offer_page = [&](const slot_page& p) {
    if (!source.free_pages.empty() && source.free_pages.back().first == p.first) {
      for (std::size_t i = 0; i < p.bits.size(); ++i) source.free_pages.back().bits[i] |= p.bits[i];
    } else {
      source.free_pages.push_back(p);
    }
  };
  if (has_slots(m.rest)) offer_page(m.rest);
  const slot_t end = m.end_slot.load(std::memory_order_relaxed);
  for_each_page(m.next_slot, end, offer_page);
  settle_run(m);
  m.end_slot.store(0, std::memory_order_relaxed);
  m.next_slot = 0;
  m.rest = {};
}

// The next run of slots for a thread out of its page of free ones. In a section: a pause sees the one or the other.
bool slot_sources::next_run(mutator& m) noexcept {
  const section in_section;
  // Perhaps somebody takes them back just now, or has done so; from here on nobody does as long as this section lasts.
  if (m.slot_limit.load(limit_order) == 0 && cache_.leases().restore_slots(m)) return true;
  if (m.has_slot()) return true;
  for (std::size_t i = 0; i < m.rest.bits.size(); ++i) {
    std::uint64_t& w = m.rest.bits[i];
    if (w == 0) continue;
    const int from = __builtin_ctzll(w);
    const std::uint64_t ones = ~(w >> from);
    const int n = ones == 0 ? 64 : std::min(__builtin_ctzll(ones), 64 - from);
    w &= ~((n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << from);
    m.next_slot = m.rest.first + i * 64 + static_cast<std::uint64_t>(from);
    const slot_t end = m.next_slot + static_cast<std::uint64_t>(n);
    m.end_slot.store(end, std::memory_order_relaxed);
    m.slot_limit.store(end, limit_order);
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
  for (const std::uint32_t t : tablets_) {
    if (cache_.options().dumped)
      os::reservation::set_dumped(hit.words + t * tablet_slots, tablet_slots * sizeof(word_t), false);
    give_back_tablets(t, 1);
  }
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
  for (std::size_t i = 0; i < n; ++i) {
    const auto& source = sources.sources_[i];
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
    if (const slot_t end = m->end_slot.load(std::memory_order_relaxed); m->next_slot < end)
      free_runs_.push_back({m->next_slot, end});
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
