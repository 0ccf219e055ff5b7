// The steps of re-homing; see rehoming.h.
//
// Invariant: until the last step every attempt may be given up and made again: nothing but grants and the freshness of
// words, which both may be repeated, has changed.
#include "cache/replicas/rehoming.h"
#include "base/log.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "cache/replicas/promotion_queue.h"
#include "cache/tablets/replica_set.h"

#include <algorithm>
#include <optional>

namespace fm::detail {

namespace {

/// The agent has answered that it does not take them.
bool is_refusal(errc e) noexcept {
  return e == errc::quota_exceeded || e == errc::agent_full || e == errc::out_of_memory || e == errc::slots_exhausted ||
         e == errc::refused || e == errc::access_denied || e == errc::agent_lost;
}

bool is_of(std::uint32_t agent, std::uint32_t tablet) noexcept {
  return hit.tablets[tablet].agent.load(std::memory_order_relaxed) == agent;
}

}  // namespace

rehomed rehoming::run() noexcept {
  rehomed out;
  object_cache::links& links = cache_.agents();
  try {
    left_.resize(links.size());
    homes_.open(links.size());
    out.left.reserve(links.size());
  } catch (const std::bad_alloc&) {
    out.again = true;
    return out;
  }
  cache_.losses().begin_look();
  std::vector<std::uint32_t> lost;
  for (std::uint32_t agent = 0; agent < links.size(); ++agent)
    if (links[agent]->lost() && !links[agent]->left() && !left_[agent]) lost.push_back(agent);
  const auto unless_it_throws = [&](std::uint32_t agent, auto&& step) {
    try {
      return !sweep_.ends() && step(agent);
    } catch (const std::exception& e) {
      log::warn("{}: its tablets get no new agents: {}", links[agent]->url(), e.what());
      return false;
    }
  };
  const auto cannot_yet = [&](std::uint32_t agent) {
    return !unless_it_throws(agent, [this](std::uint32_t a) { return take_over(a); });
  };
  bool all = std::erase_if(lost, cannot_yet) == 0;
  for (const std::uint32_t agent : lost) {
    left_[agent] = unless_it_throws(agent, [&](std::uint32_t a) { return leave(a, out); });
    all = all && left_[agent];
  }
  if (all) cache_.end_stranded();
  // One that was lost meanwhile has said so before, or says so after this look.
  for (std::uint32_t agent = 0; agent < links.size(); ++agent)
    if (links[agent]->lost() && !links[agent]->left() && !left_[agent]) {
      cache_.begin_stranded();
      out.again = cache_.losses().survivors();
      if (!out.again) cache_.eviction().note_lost(agent);
    }
  return out;
}

bool rehoming::take_over(std::uint32_t agent) {
  if (!cache_.losses().survivors()) return false;
  leave_sets(agent);
  if (!mutated(mutation::acknowledge_after_rehoming) &&
      !cache_.eviction().end_batches(agent, clock::now() + limits::batches_end_within))
    return false;
  return promote(agent, promoted_[agent]);
}

bool rehoming::leave(std::uint32_t agent, rehomed& out) {
  if (!find_homes(agent)) return false;
  std::vector<tablet_move>& moves = moves_[agent];
  rehomed::from told{agent, cache_.agents()[agent]->url(), promoted_[agent], promoted_[agent], 0};
  if (!moves.empty()) {
    const held_pages held(cache_.collections());  // words only return to the table
    sweep_.open_pages_aside([&](std::uint32_t t) { return is_of(agent, t); });
    const std::unique_ptr<slot_marks> allocated = stop_threads();
    if (!allocated) return false;
    for (const tablet_move& m : moves)
      for (std::uint32_t t = m.first; t < m.first + m.count; ++t, ++told.tablets)
        told.lost_objects += sweep_tablet(agent, t, *allocated);
    if (sweep_.ends()) return false;
    cache_.slots().move_tablets(agent, moves);
    cache_.losses().note_moved();
  }
  cache_.eviction().forget_refusal(agent);
  cache_.agents()[agent]->detach_all();
  moves_.erase(agent);
  promoted_.erase(agent);
  cache_.eviction().wake();
  cache_.memory().wake_waiters();
  log::warn(
      "{} is lost: {} tablets have other agents, {} of them with all objects, {} objects that only it had are lost",
      told.agent, told.tablets, told.promoted, told.lost_objects);
  out.left.push_back(std::move(told));
  return true;
}

// ---- promotion ----

void rehoming::leave_sets(std::uint32_t agent) {
  cache_.eviction().change_sets([&] {
    for (const std::uint32_t t : cache_.slots().tablets()) {
      replica_set set = replica_set::of_tablet(t);
      if (set.primary() == agent || !set.has(agent)) continue;
      set.remove(agent);
      set.store(t);
    }
  });
}

std::vector<tablet_move> rehoming::promotions(std::uint32_t agent) {
  std::vector<std::uint32_t> tablets = cache_.slots().tablets_of(agent);
  std::sort(tablets.begin(), tablets.end());
  std::vector<tablet_move> moves;
  for (const std::uint32_t t : tablets) {
    std::uint32_t to = tablet_move::nobody;  // the first that answers, or else the first that is not lost
    replica_set::of_tablet(t).for_each_whole_backup([&](std::uint32_t a) {
      if (cache_.agents()[a]->lost()) return;
      if (to == tablet_move::nobody || (!cache_.agents()[to]->up() && cache_.agents()[a]->up())) to = a;
    });
    if (to == tablet_move::nobody) continue;
    tablet_move* const last = moves.empty() ? nullptr : &moves.back();
    if (last && last->to == to && last->first + last->count == t)
      ++last->count;
    else
      moves.push_back({.first = t, .count = 1, .to = to, .granted = true});
  }
  return moves;
}

bool rehoming::promote(std::uint32_t agent, std::uint64_t& tablets) {
  std::vector<tablet_move> moves = promotions(agent);
  const std::size_t refused = std::erase_if(moves, [&](const tablet_move& m) {
    return cache_.agents()[m.to]->promote_tablets(m.first, m.count) != errc::ok;
  });
  if (moves.empty()) return refused == 0;
  const held_pages held(cache_.collections());  // words only return to the table
  sweep_.open_pages_aside([&](std::uint32_t t) { return is_of(agent, t); });
  if (!mutated(mutation::rehome_without_grace) && !sweep_.await_readers(clock::now() + limits::rehoming_pause_within))
    return false;
  promotion_queue queue(moves);
  const auto publish = [&](auto&& name) {
    const std::vector<tablet_move> swept = queue.take_swept();
    name(swept);
    cache_.losses().note_moved();
    tablets += swept.size();
  };
  std::optional<std::uint32_t> awaited = cache_.losses().take_awaited();
  while (const std::optional<std::uint32_t> t = queue.next(awaited)) {
    if (!mutated(mutation::believe_old_hints)) sweep_.forget_addresses(*t, time_point::max());  // they fail
    if (sweep_.ends()) return false;
    queue.note_swept(*t);
    if (awaited && queue.is_swept(*awaited))
      publish([&](const std::vector<tablet_move>& swept) { cache_.slots().name_primaries(agent, swept); });
    awaited = cache_.losses().take_awaited();
  }
  publish([&](const std::vector<tablet_move>& swept) { cache_.slots().move_tablets(agent, swept); });
  return refused == 0;
}

// ---- who takes them ----

bool rehoming::find_homes(std::uint32_t agent) {
  const auto [it, fresh] = moves_.try_emplace(agent);
  if (fresh) {
    std::vector<std::uint32_t> tablets = cache_.slots().tablets_of(agent);
    std::sort(tablets.begin(), tablets.end());
    for (const std::uint32_t t : tablets) {
      tablet_move* const last = it->second.empty() ? nullptr : &it->second.back();
      if (last && last->first + last->count == t && last->count < limits::tablets_per_grant)
        ++last->count;
      else
        it->second.push_back({.first = t, .count = 1});
    }
  }
  return std::all_of(it->second.begin(), it->second.end(), [&](tablet_move& m) { return find_home(agent, m); });
}

bool rehoming::find_home(std::uint32_t agent, tablet_move& m) {
  object_cache::links& links = cache_.agents();
  const auto alive = [&](std::uint32_t a) { return a != tablet_move::nobody && !links[a]->lost(); };
  if (m.granted && alive(m.to)) return true;
  m.granted = false;
  // By room first. When none has any the tablets still go to a survivor: room may come.
  std::vector<bool> refused(links.size());
  const auto left = [&](std::uint32_t a) { return alive(a) && !refused[a] ? links[a]->room_bytes() : 0; };
  while (!sweep_.ends()) {
    if (!alive(m.to)) m.to = homes_.next(left, 0, links[agent]->region_bytes()).value_or(tablet_move::nobody);
    for (std::uint32_t a = 0; a < links.size() && !alive(m.to); ++a)
      if (alive(a) && !refused[a]) m.to = a;
    if (!alive(m.to)) return false;
    // It may have been a member before, and be owed the message to forget (handover.h): what it had is old.
    errc e = links[m.to]->leave_tablets(m.first, m.count);
    if (e == errc::ok || e == errc::unsupported) e = links[m.to]->grant_tablets(m.first, m.count);
    m.granted = e == errc::ok;
    if (m.granted) return true;
    if (!is_refusal(e)) return false;
    refused[m.to] = true;
    m.to = tablet_move::nobody;
  }
  return false;
}

// ---- nobody is left who looked before ----

std::unique_ptr<slot_marks> rehoming::stop_threads() {
  const time_point deadline = clock::now() + limits::rehoming_pause_within;
  duration backoff = std::chrono::milliseconds(1);
  for (std::uint32_t attempt = 0;; ++attempt) {
    {
      slot_hold hold(cache_.slots(), cache_.mutators());
      const duration within =
          std::min<duration>(limits::one_pause_within * (1 << std::min(attempt, 10u)), limits::longest_attempt);
      if (mutated(mutation::rehome_without_grace)) {
        hold.note_runs();
        return hold.allocated();
      }
      if (epochs::pause(
              within, [](void* h) { static_cast<slot_hold*>(h)->note_runs(); }, &hold))
        return hold.allocated();
    }
    // The gate closes again when the sections that this attempt met have ended: others would stand at it for nothing.
    const std::uint64_t stamp = epochs::stamp();
    do {
      if (clock::now() >= deadline || sweep_.ends()) return nullptr;
      std::this_thread::sleep_for(backoff);
    } while (!epochs::try_pass(stamp));
    backoff = std::min<duration>(backoff * 2, limits::backoff_most);
  }
}

// ---- the words ----

std::uint64_t rehoming::sweep_tablet(std::uint32_t agent, std::uint32_t tablet, const slot_marks& allocated) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  std::array<std::uint64_t, slot_marks::tablet_words> lost{};
  std::uint64_t n = 0;
  for (slot_t from = first; from < first + tablet_slots; from += page_slots) {
    const bool is_open = page_of(from).state.load(std::memory_order_acquire) != page_given_back;
    for (slot_t slot = from; slot < from + page_slots;) {
      bool waits = false;
      {
        const section in_section;
        for (; slot < from + page_slots && !waits; ++slot) {
          bool gone = true;
          if (is_open && !sweep_word(slot, gone)) {
            waits = true;
            break;
          }
          const std::uint64_t i = slot % tablet_slots;
          if (!gone || !allocated.dead(slot)) continue;
          lost[i / 64] |= std::uint64_t{1} << (i % 64);
          ++n;
        }
      }
      if (waits) sweep_.await_fetch(slot);
      if (sweep_.ends()) return 0;
    }
  }
  cache_.losses().add(tablet, agent, lost);
  return n;
}

bool rehoming::sweep_word(slot_t slot, bool& gone) noexcept {
  std::atomic<word_t>& word = word_at(slot);
  for (word_t w = word.load(std::memory_order_acquire);;) {
    gone = w != word::free;
    if (w == word::free || w == word::unknown) return true;
    if (word::is_fetching(w)) {
      return mutated(mutation::rehome_without_grace);
    }
    if (word::is_remote(w)) {
      if (word.compare_exchange_weak(w, word::unknown, std::memory_order_acq_rel)) return true;
      continue;
    }
    gone = false;
    if (word::is_busy(w)) {
      cpu_relax();
      w = word.load(std::memory_order_acquire);
      continue;
    }
    if (!word::is_clean(w)) return true;
    if (!word.compare_exchange_weak(w, w & ~word::clean_bit, std::memory_order_acq_rel)) continue;
    note_dirty(slot);
    return true;
  }
}

}  // namespace fm::detail
