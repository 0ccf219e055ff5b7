// The store's own threads, and their bounded steps. The maintenance thread lets leases run out, repeats retirement
// notices that did not get through, cleans when memory is short, frees objects of pools that have expired, and compacts
// pools. The tracing threads trace; the first of them also evacuates. Without threads (store_hooks::background) a test calls
// store::maintain, which does all of it.
//
// Without memory, the steps of heaps and spaces leave what they have not done for the next time. In a pool, a merge of
// blocks that has no memory ends the agent: it would leave half of a block.
#include "base/log.h"

#include "agent/base/limits.h"
#include "agent/moving/mover.h"
#include "agent_store.h"

namespace fm::agent {

bool agent_store::maintain() {
  std::lock_guard lock(maintain_mutex_);
  wake_at_ = time_point::max();
  const bool has_more = pools_.maintain(wake_at_), drops_more = regions_.drop_some(limits::dropped_at_once);
  try {
    return maintain_heaps() || has_more || drops_more;
  } catch (const std::bad_alloc&) {  // no line, as always without memory
    wake_at_ = std::min(wake_at_, agent_.now() + limits::memory_retry);
    return has_more || drops_more;
  }
}

bool agent_store::maintain_heaps() {
  wake_at_ = std::min({wake_at_, heaps_.expire_leases(), heaps_.send_lost_notices(), spaces_.expire(agent_.now()),
                       spaces_.send_drain_notices()});
  const bool traced = !agent_.options.hooks.background && cycles_.step(0);
  const bool evacuated = !agent_.options.hooks.background && evacuations_.step();
  const bool sent = !agent_.options.hooks.background && peers_.step();
  const auto all = heaps_.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    clean_next_ = (clean_next_ + 1) % all.size();
    if (clean_step(*all[clean_next_], agent_.options.clean_below_live_ratio, agent_.options.hooks.cleaner_copied,
                   agent_.options.hooks.context))
      return true;
  }
  return traced || evacuated || sent;
}

void agent_store::run() {
  os::name_thread("fm-store");
  while (!stop_.load()) {
    const std::uint32_t seen = agent_.work.load();
    if (maintain()) {
      std::this_thread::yield();  // between two steps of cleaning, to whoever serves the owners
      continue;
    }
    time_point until;
    {
      std::lock_guard lock(maintain_mutex_);
      until = std::min(wake_at_, agent_.now() + limits::sleep_max);
    }
    if (!stop_.load()) os::futex_wait(agent_.work, seen, until);
  }
}

void agent_store::run_tracing(std::uint32_t worker) {
  os::name_thread("fm-trace");
  os::yield_to_others(agent_.options.trace_nice);
  while (!stop_.load()) {
    const std::uint32_t seen = bell_.work.load();
    duration rest = limits::sleep_max;
    try {
      bool more = cycles_.step(worker);
      if (worker == 0 && evacuations_.step()) {
        more = true;
        std::this_thread::yield();  // to whoever serves the owners
      }
      if (more) continue;
    } catch (const std::bad_alloc&) {
      rest = limits::memory_retry;
    }
    bell_.sleepers.fetch_add(1);
    if (!stop_.load()) os::futex_wait(bell_.work, seen, clock::now() + rest);
    bell_.sleepers.fetch_sub(1);
  }
}

}  // namespace fm::agent
