// The members of fm::paged that are about agents: add_agent, remove_agent, keep_agent, set_replicas; see farmem/paged/paged.h. The
// moving is the mender's (mend.cc).
#include <fmt/format.h>

#include <set>

#include "base/log.h"
#include "core.h"

namespace fm::detail {

home_agent& paged_core::agent_named(const std::string& url) const {
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    home_agent& a = home_.agent(i);
    if (url == a.url() && !a.lost() && a.as.load() != home_agent::role::gone) return a;
  }
  throw error(errc::invalid_argument, fmt::format("paged range {}: {} is none of its agents", name_, url));
}

void paged_core::add_agent(const std::string& url) {
  const std::lock_guard one(adds_agent_);
  for (std::uint32_t i = 0; i < home_.agents(); ++i)
    if (home_agent& a = home_.agent(i); url == a.url() && !a.lost() && a.as.load() != home_agent::role::gone)
      throw error(errc::invalid_argument, fmt::format("paged range {}: {} is one of its agents", name_, url));
  const std::size_t least = least_blocks(home_.serving() + 1);
  if (limit_.load() >> order_max_ < least || fetch_slots_.size() < least)
    throw error(errc::invalid_argument,
                fmt::format("paged range {}: {} blocks of local memory are needed with another agent, and {} at most "
                            "with the agents that it was opened with",
                            name_, least, fetch_slots_.size()));
  home_agent& a = home_.open(url);
  const std::lock_guard lock(agents_change_);
  try {
    home_.share_out(options_.connect_within, true, &a);
  } catch (const std::exception& e) {
    // Of a range that lacks room, or agents, it may have what it can.
    const auto* const why = dynamic_cast<const error*>(&e);
    const bool helps = why != nullptr && why->code() == errc::agent_full && home_.share_of(a) != 0 &&
                       a.promised() >= home_.share_of(a) && home_.lacking(&a) < home_.lacking();
    if (!helps) {
      home_.refuse(a);
      share_out_quietly();
      throw;
    }
    log::warn("paged range {}: not all of it has a place, also with {}: {}", name_, url, e.what());
  }
  home_.admit(a);
  evens_out_.store(true);
  home_.expect_room();
  home_.agent_changed();
}

// Those that leave already, or are drained, do not count. Without enough agents, or zones, its stripes would have nowhere
// to go.
void paged_core::check_without(const home_agent& a) const {
  const std::uint32_t wanted = home_.replicas(), zones = home_.zones(&a);
  if (home_.takers(&a) < wanted)
    throw error(errc::invalid_argument, fmt::format("paged range {}: without {} it has fewer than {} agents that stay",
                                                    name_, a.url(), wanted));
  if (options_.strict_zones && zones < std::min(wanted, home_.zones()))
    throw error(errc::invalid_argument,
                fmt::format("paged range {}: without {} its agents are in {} zones, and each page "
                            "is stored on {}",
                            name_, a.url(), zones, wanted));
}

void paged_core::remove_agent(const std::string& url, duration within) {
  const time_point until = clock::now() + within;
  home_agent* leaving = nullptr;
  {
    const std::lock_guard lock(agents_change_);
    home_agent& a = agent_named(url);
    check_without(a);
    a.as.store(home_agent::role::leaves);
    try {
      home_.share_out(options_.connect_within, true);
    } catch (...) {
      stay(a);
      throw;
    }
    leaving = &a;
  }
  home_.agent_changed();
  for (;;) {
    const std::uint32_t seen = mending_.load();
    const home_agent::role now = leaving->as.load();
    if (now == home_agent::role::gone || leaving->lost()) return;
    if (now == home_agent::role::serves)
      throw error(errc::cancelled, fmt::format("paged range {}: {} stays", name_, url));
    if (clock::now() >= until) break;
    os::futex_wait(mending_, seen, std::min(until, clock::now() + paged_limits::look_at_close));
  }
  const std::lock_guard lock(agents_change_);
  if (leaving->as.load() == home_agent::role::gone) return;
  stay(*leaving);
  throw error(errc::timed_out, fmt::format("paged range {}: {} still has {} bytes of it", name_, url,
                                           leaving->places().taken() * home_.stripe_bytes()));
}

void paged_core::keep_agent(const std::string& url) {
  const std::lock_guard lock(agents_change_);
  home_agent& a = agent_named(url);
  if (a.as.load() == home_agent::role::leaves) stay(a);
}

void paged_core::set_replicas(std::uint32_t n) {
  const std::lock_guard lock(agents_change_);
  const std::uint32_t before = home_.replicas(), most = home_.possible_replicas();
  if (n < options_.min_replicas || n > most)
    throw error(errc::invalid_argument, fmt::format("paged range {}: {} replicas: {} to {} are possible, which are "
                                                    "min_replicas and the agents, or zones, that there are",
                                                    name_, n, options_.min_replicas, most));
  if (n > 1 && options_.suspect_within <= duration::zero())
    throw error(errc::invalid_argument, fmt::format("paged range {}: suspect_within is not positive", name_));
  std::set<std::string> named;
  for (std::uint32_t i = 0; n > 1 && i < home_.agents(); ++i)
    if (const home_agent& a = home_.agent(i); home::takes(a) && !named.insert(a.url()).second)
      throw error(
          errc::invalid_argument,
          fmt::format("paged range {}: {} is two of its agents: replicas need agents of their own", name_, a.url()));
  home_.replicas(n);
  try {
    home_.share_out(options_.connect_within, true);
  } catch (...) {
    home_.replicas(before);
    share_out_quietly();
    throw;
  }
  home_.agent_changed();
}

// It has promised what it had, and may have promised it to nobody else meanwhile.
void paged_core::stay(home_agent& a) {
  a.as.store(home_agent::role::serves);
  share_out_quietly();
  home_.expect_room();
  evens_out_.store(true);
  home_.agent_changed();
}

// Others promise what they can: as it was.
void paged_core::share_out_quietly() {
  try {
    home_.share_out(options_.connect_within, false);
  } catch (const error&) {
    // Said before, or nothing has changed.
  }
}

}  // namespace fm::detail
