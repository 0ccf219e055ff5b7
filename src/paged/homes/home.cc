// The members of stripes and their places; see home.h for the invariants. Fills, write-backs, mend.cc and members.cc call
// it. home_shares.cc has the shares of agents.
#include "home.h"

#include "agent/embedded/embedded.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

namespace {

/// Agents that have no zone are each in one of their own.
bool in_other_zone(const home_agent& a, const home::member_list& list, const home_agent* instead_of) noexcept {
  return std::none_of(list.begin(), list.end(), [&](const home::member& m) {
    return m.agent != instead_of && a.zone() != 0 && m.agent->zone() == a.zone();
  });
}

}  // namespace

home::home(const paged_options& options, std::uint64_t pages, std::uint32_t stripe_order,
           std::atomic<std::uint32_t>& wakes)
    : options_(options),
      stripe_order_(stripe_order),
      replicas_(options.replicas),
      stripes_((pages + (std::uint64_t{1} << stripe_order) - 1) >> stripe_order),
      wakes_(wakes),
      map_(stripes_ * paged_limits::replicas_max * sizeof(std::uint64_t), page_bytes),
      states_(stripes_ * sizeof(stripe_state), page_bytes) {
  const auto locals = static_cast<std::uint64_t>(std::count_if(
      options.agents.begin(), options.agents.end(), [](const std::string& u) { return u.starts_with("local:"); }));
  if (locals != 0) {
    const std::uint64_t region = options.local_region, n = options.agents.size(),
                        share = (stripes_ * options.replicas + n - 1) / n * stripe_bytes(),
                        memory = std::max<std::uint64_t>(locals * round_up(share, region), 2 * region);
    local_ = agent::start_embedded({agent::embedded_for::pages, memory, region});
  }
  try {
    for (const std::string& url : options.agents) {
      const std::uint32_t n = open(url).number();
      count_.store(n + 1, std::memory_order_release);
    }
    share_out(options.access_within, false);
  } catch (...) {
    close(options.connect_within);  // sessions ask about each other until then
    throw;
  }
  for (std::uint32_t i = 0; i < agents(); ++i) agent(i).as.store(home_agent::role::serves);
}

// ---- members ----

home::member_list home::members(std::uint64_t stripe) const noexcept {
  member_list list;
  for (std::uint32_t i = 0; i < paged_limits::replicas_max; ++i) {
    const std::uint64_t w = words(stripe)[i].load(std::memory_order_acquire);
    if (w != 0) list.add({agents_[(w & 0xffff) - 1].get(), w >> 16});
  }
  return list;
}

// A reader meanwhile finds some of both, each of which is or was one. An agent's stripes are never counted too low
// (is_replaceable).
void home::set_members(std::uint64_t stripe, const member_list& to) noexcept {
  const member_list before = members(stripe);
  for (const member& m : to) m.agent->stripes_with[to.count].fetch_add(1);
  for (std::uint32_t i = 0; i < std::max(before.count, to.count); ++i)
    words(stripe)[i].store(i < to.count ? to.at[i].place << 16 | (to.at[i].agent->number() + 1) : 0,
                           std::memory_order_release);
  for (const member& m : before) m.agent->stripes_with[before.count].fetch_sub(1);
  counts_[before.count].fetch_sub(1, std::memory_order_relaxed);
  counts_[to.count].fetch_add(1, std::memory_order_relaxed);
}

home::member home::reader_of(std::uint64_t page) const noexcept {
  member best;
  int merit = -1;
  for (const member& m : members(stripe_of(page))) {
    const int now = m.agent->lost() ? 0 : !m.agent->up() ? 1 : m.agent->is_silent() ? 2 : m.agent->is_slow() ? 3 : 4;
    if (now > merit) best = m;
    merit = std::max(merit, now);
  }
  return best;
}

bool home::is_lost(std::uint64_t stripe) const noexcept {
  const member_list all = members(stripe);
  return all.count != 0 && std::all_of(all.begin(), all.end(), [](const member& m) { return m.agent->lost(); });
}

const home_agent* home::blamed(std::uint64_t page, bool is_page_lost) const noexcept {
  const std::uint16_t to = state(stripe_of(page)).lost_to;
  return is_page_lost && to != 0 ? agents_[to - 1].get() : reader_of(page).agent;
}

home::outcome home::begin_write(std::uint64_t stripe) noexcept {
  FM_ASSERT(!is_copied(stripe), "a stripe is written while it is copied");
  remove_lost(stripe);
  stripe_state& s = state(stripe);
  member_list list = members(stripe);
  if (list.count != 0 && s.kept == 0 && s.writes == 0 && is_lost(stripe)) {
    forget(stripe);
    list = {};
  }
  if (list.count == 0) {
    const auto fill_up = [&](std::uint32_t to, bool full_too) {
      while (list.count < to) {
        const std::optional<member> m = take_place(stripe, list, nullptr, full_too);
        if (!m) return;
        list.add(*m);
      }
    };
    fill_up(replicas(), false);
    const bool lacks_room = list.count < replicas() && may_grow(list);
    if (lacks_room && !lacks_room_.exchange(true)) agent_changed();  // the mender asks for more
    const bool waits = lacks_room && clock::now().time_since_epoch().count() >= no_more_until_.load();
    const std::uint32_t least = std::max(options_.min_replicas, 1u);
    if (!waits) fill_up(least, true);  // they may have memory again
    if (waits || list.count < least) {
      for (const member& m : list) give_place(m);
      const errc why = waits             ? errc::ok
                       : list.count != 0 ? errc::under_replicated
                       : serving() != 0  ? errc::agent_full
                                         : errc::agent_lost;
      return {false, why, nullptr};
    }
    set_members(stripe, list);
  } else if (list.at[0].agent->lost()) {
    // What it had is given up first (mend.cc), if there is an agent to go on with.
    return {false, serving() != 0 ? errc::ok : errc::agent_lost, list.at[0].agent};
  } else if (list.count < options_.min_replicas) {
    return {false, errc::under_replicated, nullptr};
  }
  ++s.writes;
  return {true, errc::ok, nullptr};
}

void home::end_write(std::uint64_t stripe, std::uint32_t kept, home_agent* refused) noexcept {
  stripe_state& s = state(stripe);
  FM_ASSERT(s.writes != 0, "a write ends that did not begin");
  --s.writes;
  s.kept = static_cast<std::uint16_t>(s.kept + kept);
  if (refused == nullptr) return;
  refused->has_no_room();
  give_unused(stripe);
}

void home::drop(std::uint64_t stripe, std::uint32_t pages) noexcept {
  stripe_state& s = state(stripe);
  FM_ASSERT(s.kept >= pages, "more home copies are dropped than there are");
  s.kept = static_cast<std::uint16_t>(s.kept - pages);
  give_unused(stripe);
}

void home::give_unused(std::uint64_t stripe) noexcept {
  const stripe_state& s = state(stripe);
  if (s.kept != 0 || s.writes != 0 || s.copying) return;
  const member_list list = members(stripe);
  if (list.count == 0) return;
  set_members(stripe, {});
  for (const member& m : list) give_place(m);
}

bool home::begin_copy(std::uint64_t stripe) noexcept {
  stripe_state& s = state(stripe);
  if (s.writes != 0 || s.copying) return false;
  return s.copying = true;
}

void home::end_copy(std::uint64_t stripe, const member* added, const home_agent* instead_of) noexcept {
  state(stripe).copying = false;
  if (added != nullptr) {
    member_list list;
    for (const member& m : members(stripe))
      if (m.agent != instead_of) list.add(m);
    list.add(*added);
    set_members(stripe, list);
  }
  give_unused(stripe);
}

void home::remove(std::uint64_t stripe, const home_agent& agent) noexcept {
  FM_ASSERT(is_copied(stripe), "a member is taken out while writes to it may be under way");
  member_list left;
  for (const member& m : members(stripe))
    if (m.agent != &agent) left.add(m);
  set_members(stripe, left);
}

home::member home::surplus_of(const member_list& list) const noexcept {
  const auto merit = [&](const member& m) {
    const home_agent& a = *m.agent;
    const bool own_zone = std::none_of(list.begin(), list.end(), [&](const member& o) {
      return o.agent != &a && a.zone() != 0 && o.agent->zone() == a.zone();
    });
    // One that answers is kept before one that does not and may be lost, even if it is to be left.
    return (a.up() && !a.is_silent() ? 4 : 0) + (takes(a) ? 2 : 0) + (own_zone ? 1 : 0);
  };
  return *std::min_element(list.begin(), list.end(), [&](const member& a, const member& b) {
    const int x = merit(a), y = merit(b);
    return x != y ? x < y : a.agent->places().taken() > b.agent->places().taken();
  });
}

void home::remove_lost(std::uint64_t stripe) noexcept {
  const member_list list = members(stripe);
  member_list left;
  for (const member& m : list)
    if (!m.agent->lost()) left.add(m);
  if (left.count == 0 || left.count == list.count) return;
  set_members(stripe, left);
  agent_changed();
}

void home::forget(std::uint64_t stripe) noexcept {
  stripe_state& s = state(stripe);
  FM_ASSERT(s.writes == 0, "a stripe is given up while it is written");
  if (const member_list list = members(stripe); list.count != 0 && s.kept != 0)
    s.lost_to = static_cast<std::uint16_t>(list.at[0].agent->number() + 1);
  s.kept = 0;
  set_members(stripe, {});
}

// ---- places ----

std::uint64_t home::near(std::uint64_t stripe, const home_agent& agent) const noexcept {
  const std::uint64_t reach = std::uint64_t{2} * agents();
  for (std::uint64_t d = 1; d <= reach; ++d)
    for (const std::uint64_t s : {stripe - d, stripe + d}) {
      if (s >= stripes_) continue;  // before the first one, too
      for (const member& m : members(s))
        if (m.agent == &agent) return m.place;
    }
  return region_places::none;
}

// The one whose turn it is; for a further member, or if that one cannot, the one with the most room, because with uneven
// agents it has to be in most sets. Of several, those of zones that the stripe has no member in.
home_agent* home::choose(std::uint64_t stripe, const member_list& but, const home_agent* instead_of,
                         bool full_too) const noexcept {
  const time_point now = clock::now();
  const auto rank = [&](home_agent& a) {  // 0: not at all
    const bool had_room = a.had_room(now);
    if (!may_join(a, but, instead_of) || (!had_room && !full_too)) return 0;
    return 1 + (had_room ? 4 : 0) + (a.up() && !a.is_silent() ? 2 : 0) + (in_other_zone(a, but, instead_of) ? 1 : 0);
  };
  home_agent* best = nullptr;
  int best_rank = 0;
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) {
    home_agent& a = agent(static_cast<std::uint32_t>((stripe + i) % agents()));
    const std::uint64_t left = a.places().left();
    const int r = left == 0 ? 0 : rank(a);
    if (r < best_rank || r == 0 || (r == best_rank && left <= room)) continue;
    best = &a;
    best_rank = r;
    room = left;
  }
  if (but.count == 0 && best != nullptr)
    if (const auto* const turns = turns_.load(std::memory_order_acquire); turns != nullptr && !turns->empty()) {
      home_agent& mine = agent((*turns)[stripe % turns->size()]);
      if (rank(mine) == best_rank && mine.places().left() != 0) return &mine;
    }
  return best;
}

std::optional<home::member> home::take_place(std::uint64_t stripe, const member_list& but, const home_agent* instead_of,
                                             bool full_too) noexcept {
  for (std::uint32_t tries = 0; tries < agents(); ++tries) {
    home_agent* const a = choose(stripe, but, instead_of, full_too);
    if (a == nullptr) return std::nullopt;
    if (const std::optional<member> m = take_place_on(*a, stripe)) return m;
  }
  return std::nullopt;
}

std::optional<home::member> home::take_place_on(home_agent& a, std::uint64_t stripe) noexcept {
  const std::uint64_t place = a.places().take(near(stripe, a));
  return place != region_places::none ? std::optional(member{&a, place}) : std::nullopt;
}

// ---- agents ----

home_agent& home::open(const std::string& url) {
  const std::uint32_t n = agents();
  if (n == agents_.size())
    throw error(errc::invalid_argument,
                fmt::format("a paged range counts {} agents, those that it has left or lost included", n));
  agents_[n] = std::make_unique<home_agent>(url, options_, n, stripe_bytes(), stripes_, *this, local_.get());
  return *agents_[n];
}

void home::admit(home_agent& a) noexcept try {
  a.as.store(home_agent::role::serves);
  count_.store(a.number() + 1, std::memory_order_release);
  make_turns();
} catch (const std::bad_alloc&) {
  // The others have their turns as before, and this one comes after them.
}

void home::refuse(home_agent& a) noexcept {
  a.close(options_.connect_within);
  share_[a.number()].store(0, std::memory_order_relaxed);
  agents_[a.number()].reset();
}

bool home::may_join(const home_agent& a, const member_list& list, const home_agent* instead_of) const noexcept {
  return takes(a) && std::none_of(list.begin(), list.end(), [&](const member& m) { return m.agent == &a; }) &&
         (!options_.strict_zones || in_other_zone(a, list, instead_of));
}

bool home::may_grow(const member_list& list) const noexcept {
  for (std::uint32_t i = 0; i < agents(); ++i)
    if (may_join(agent(i), list)) return true;
  return false;
}

std::uint32_t home::serving() const noexcept {
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) n += !agent(i).lost() && agent(i).as.load() != home_agent::role::gone;
  return n;
}

std::uint32_t home::takers(const home_agent* without) const noexcept {
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) n += takes(agent(i)) && &agent(i) != without;
  return n;
}

std::uint32_t home::zones(const home_agent* without) const noexcept {
  const auto counts = [&](const home_agent& a) { return takes(a) && &a != without; };
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) {
    bool is_first = counts(agent(i));
    for (std::uint32_t j = 0; is_first && j < i && agent(i).zone() != 0; ++j)
      is_first = !counts(agent(j)) || agent(j).zone() != agent(i).zone();
    n += is_first;
  }
  return n;
}

std::uint32_t home::possible_replicas() const noexcept {
  const std::uint32_t n = takers();
  return std::min({n, options_.strict_zones ? zones() : n, paged_limits::replicas_max});
}

void home::agent_changed() noexcept {
  wakes_.fetch_add(1);
  os::futex_wake(wakes_, INT32_MAX);
}

// Of k others that do not answer, each stripe with more than k + 1 members has one beside them that does.
bool home::is_replaceable(const home_agent& a) const noexcept {
  if (replicas() == 1) return false;
  std::uint32_t silent = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) {
    const home_agent& o = agent(i);
    // Of one that is lost, stripes may not know yet that this one alone stores them.
    if (o.lost() && !o.is_swept.load()) return false;
    const bool answers = o.lost() || o.as.load() == home_agent::role::gone || (o.up() && !o.is_silent());
    silent += &o != &a && !answers && o.places().taken() != 0;
  }
  const std::uint32_t few = std::min(silent + 1, paged_limits::replicas_max);
  return std::all_of(a.stripes_with.begin() + 1, a.stripes_with.begin() + 1 + few,
                     [](const auto& n) { return n.load() == 0; });  // after the look at who is swept
}

// With replicas, one that is silent is found out soon. One that is slow has time the next time.
duration home::answer_within(const home_agent& a) const noexcept {
  return replicas() > 1 && !a.is_slow() ? std::min(options_.suspect_within, options_.access_within)
                                        : options_.access_within;
}

void home::release_empty(duration within, bool waits) const noexcept {
  for (std::uint32_t i = 0; i < agents(); ++i) agent(i).release_empty(within, waits);
}

void home::settle_soon() const noexcept {
  for (std::uint32_t i = 0; i < agents(); ++i) agent(i).settle_soon();
}

void home::poll() const noexcept {
  for (std::uint32_t i = 0; i < agents(); ++i) agent(i).session().poll();
}

void home::close(duration within) noexcept {
  for (std::uint32_t i = 0; i < agents(); ++i) agent(i).close(within);
}

}  // namespace fm::detail
