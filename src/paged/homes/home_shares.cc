// Which share of a range each agent has, and what it promises for that; see home.h. agents.cc, watch.cc and mend.cc call it,
// and write-backs have it called that find too few places.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "home.h"

namespace fm::detail {

std::vector<home_agent*> home::sharing(home_agent* joins) const {
  std::vector<home_agent*> mine;
  for (std::uint32_t i = 0; i < agents(); ++i)
    if (takes(agent(i)) || agent(i).as.load() == home_agent::role::joins) mine.push_back(&agent(i));
  if (joins != nullptr) mine.push_back(joins);
  return mine;
}

// All get the same, but none more than it has room for: a range is as fast as its agents together. Copies of a page are in
// different zones, so that a zone takes one copy of everything and no more, whatever room its agents have. Where zones
// may be shared and there is no other way, that is left out.
home::agent_shares home::shares_of(const std::vector<home_agent*>& mine, bool within_room) const {
  std::set<std::uint16_t> zones;
  const auto first_of_zone = [&](const home_agent* a) { return a->zone() == 0 || zones.insert(a->zone()).second; };
  const auto in_zones = static_cast<std::size_t>(std::count_if(mine.begin(), mine.end(), first_of_zone));
  const std::size_t most = std::min<std::size_t>(replicas(), options_.strict_zones ? in_zones : mine.size());
  agent_shares s = shares_within(mine, most * stripes_, within_room, true);
  if (s.left != 0 && !options_.strict_zones) s = shares_within(mine, most * stripes_, within_room, false);
  return s;
}

// Every round is the last one, or the last one of an agent or of a zone. O(agents²)
home::agent_shares home::shares_within(std::vector<home_agent*> open, std::uint64_t copies, bool within_room,
                                       bool in_zones) const {
  struct zone {
    std::uint64_t left;
    std::size_t open = 0;
  };
  std::map<std::uint32_t, zone> zones;
  const auto zone_of = [&](const home_agent* a) -> zone& {
    const std::uint32_t own = (1U << 16) + a->number();
    return zones.try_emplace(in_zones && a->zone() != 0 ? a->zone() : own, zone{stripes_}).first->second;
  };
  agent_shares s{.left = copies};
  const auto room = [&](const home_agent* a) {
    const std::uint64_t most = within_room ? std::min(a->promised() + a->room(), stripes_) : stripes_;
    return std::min(most - std::min(most, s.of[a->number()]), zone_of(a).left);
  };
  for (;;) {
    std::erase_if(open, [&](const home_agent* a) { return room(a) == 0; });
    if (s.left == 0 || open.empty()) return s;
    for (auto& [number, z] : zones) z.open = 0;
    for (const home_agent* a : open) ++zone_of(a).open;
    std::uint64_t each = s.left / open.size();
    for (const home_agent* a : open) each = std::min({each, room(a), zone_of(a).left / zone_of(a).open});
    for (const home_agent* a : open) {  // one each where there is less than one for all
      const std::uint64_t n = std::min({std::max<std::uint64_t>(each, 1), room(a), s.left});
      s.of[a->number()] += n;
      s.all += n;
      s.left -= n;
      zone_of(a).left -= n;
    }
  }
}

std::uint64_t home::lacking(home_agent* joins) const {
  return stripes_ * replicas() - shares_of(sharing(joins), true).all;
}

void home::share_out(duration within, bool asks, home_agent* joins) {
  const std::vector<home_agent*> mine = sharing(joins);
  std::string text;
  if (mine.empty()) throw error(errc::agent_lost, "all agents are lost, or want to be left");
  if (asks)
    for (home_agent* const a : mine)
      if (!a->is_silent()) static_cast<void>(a->promise(a->promised(), within, text));
  const agent_shares shares = shares_of(mine, mine.size() > 1);  // a single one says itself what it has no room for
  for (std::uint32_t i = 0; i < shares.of.size(); ++i) share_[i].store(shares.of[i], std::memory_order_relaxed);
  std::optional<error> refused;
  if (shares.left != 0)
    refused.emplace(
        errc::agent_full,
        fmt::format("{} agents{} have room for {} bytes less than {} copies of {}", mine.size(),
                    options_.strict_zones ? ", each copy in a zone of its own," : "", shares.left * stripe_bytes(),
                    (shares.all + shares.left) / stripes_, stripes_ * stripe_bytes()));
  for (home_agent* const a : mine) {
    const std::uint64_t share = share_of(*a);
    if (share <= a->promised()) continue;  // what is too much is given back when it is not used
    text.clear();
    if (const errc e = a->promise(share, within, text); e != errc::ok)
      refused.emplace(e, text.empty() ? a->url() : fmt::format("{}: {}", a->url(), text));
  }
  make_turns();
  if (refused) throw *refused;
}

template <class May>
bool home::grow_one(const May& may, duration within) noexcept {
  std::string text;
  const time_point now = clock::now();
  for (std::uint32_t i = 0; i < agents(); ++i) {
    home_agent& a = agent(i);
    const std::uint64_t each = a.region_bytes() / stripe_bytes();
    if (may(a) && a.up() && !a.is_silent() && a.had_room(now) && a.room() >= each &&
        a.promise(a.promised() + each, within, text) == errc::ok)
      return true;
  }
  return false;
}

bool home::grow(const member_list& but, const home_agent* instead_of, duration within) noexcept {
  return grow_one([&](const home_agent& a) { return may_join(a, but, instead_of); }, within);
}

// A write that found too few places had looked at all agents. More places on an agent that has some left are no help, nor
// are those on one that has no memory for what it promised.
void home::grow_for_writes(duration within) noexcept {
  lacks_room_.store(false);
  const bool grew = grow_one([](const home_agent& a) { return takes(a) && a.places().left() == 0; }, within);
  no_more_until_.store(grew ? 0 : (clock::now() + paged_limits::no_more_for).time_since_epoch().count());
}

void home::give_back_promises(duration within) noexcept {
  std::string text;
  for (std::uint32_t i = 0; i < agents(); ++i) {
    home_agent& a = agent(i);
    const std::uint64_t share = share_of(a), each = a.region_bytes() / stripe_bytes();
    const bool serves = !a.lost() && a.as.load() == home_agent::role::serves;
    if (serves && a.up() && round_up(share, each) < a.promised() && a.places().regions_used() * each <= share)
      static_cast<void>(a.promise(share, within, text));
  }
}

// Smooth weighted turns: each agent's credit grows by its share, and whoever has the most pays for all.
void home::make_turns() {
  std::array<std::int64_t, paged_limits::agents_max> credit{};  // as above
  std::int64_t all = 0;
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < agents(); ++i) {
    const auto share = static_cast<std::int64_t>(share_of(agent(i)));
    all += share;
    n += share != 0;
  }
  if (n == 0) return;
  std::vector<std::uint32_t> turns;
  for (std::uint32_t t = 0; t < n * (64 / n + 1); ++t) {
    for (std::uint32_t i = 0; i < agents(); ++i) credit[i] += static_cast<std::int64_t>(share_of(agent(i)));
    const auto most = static_cast<std::uint32_t>(std::max_element(credit.begin(), credit.end()) - credit.begin());
    credit[most] -= all;
    turns.push_back(most);
  }
  // An agent that comes and goes brings the same ones again.
  auto same = std::find_if(all_turns_.begin(), all_turns_.end(), [&](const auto& t) { return *t == turns; });
  if (same == all_turns_.end())
    same = all_turns_.insert(same, std::make_unique<const std::vector<std::uint32_t>>(std::move(turns)));
  turns_.store(same->get(), std::memory_order_release);
}

}  // namespace fm::detail
