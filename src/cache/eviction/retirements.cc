// Adding and acknowledging; see retirements.h.
//
// Invariant: the list is in the order of its stamps, so the first retirement that sections hold up holds up the rest.
#include "cache/eviction/retirements.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"

#include <algorithm>
#include <array>
#include <span>

namespace fm::detail {

bool region_retirements::add(std::uint32_t agent, std::uint32_t region, std::uint32_t generation) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    waiting_.emplace_back();
  } catch (const std::bad_alloc&) {
    return false;
  }
  // The agent session has made the region unreadable before this call: what reads it now began before the stamp.
  waiting_.back() = {agent, region, generation, epochs::stamp()};
  pending_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_release);
  cache_.eviction().wake();
  return true;
}

void region_retirements::acknowledge() noexcept {
  if (pending_.load(std::memory_order_acquire) == 0) return;
  std::array<retirement, limits::retired_together> ready;
  std::size_t n = 0;
  {
    // Who has a section that is not left does not wait for a lock here: whoever has the list of mutators may be waiting
    // for sections to end, in a cycle's pause. The next round comes back to it.
    const bool waits = this_thread.depth == 0;
    std::unique_lock lock(mutex_, std::defer_lock);
    if (waits)
      lock.lock();
    else if (!lock.try_lock())
      return;
    // First the sections, then the fetches that have none: a fetch that is not seen here was posted in a section that had not
    // ended, so the stamp had not passed.
    std::uint64_t newest = 0;
    for (const retirement& r : waiting_) {
      if (!epochs::readers_passed(r.stamp)) break;
      newest = r.stamp;
    }
    std::uint64_t oldest_detached = ~std::uint64_t{0};
    const auto look_at = [&](const fetch& f) {
      if (const std::uint64_t at = f.posted_at.load(std::memory_order_seq_cst); at != 0)
        oldest_detached = std::min(oldest_detached, at);
    };
    const auto look_at_waited = [&](const mutator& m) { look_at(m.waited); };
    if (waits)
      cache_.mutators().for_each(look_at_waited);
    else if (!cache_.mutators().try_for_each(look_at_waited))
      return;
    cache_.leases().for_each_fetch(look_at);
    std::erase_if(waiting_, [&](const retirement& r) {
      if ((r.stamp > newest || oldest_detached <= r.stamp) && !mutated(mutation::retire_while_read)) return false;
      if (n == ready.size()) return false;  // the next time
      ready[n++] = r;
      return true;
    });
    pending_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_release);
  }
  for (const retirement& r : std::span(ready).first(n)) cache_.agents()[r.agent]->retired(r.region, r.generation);
}

}  // namespace fm::detail
