// What the store does of its own accord, in bounded steps: lets leases run out, repeats retirement notices that did not
// get through, and cleans when memory is short. Runs on the store's thread, or in a test's hands (store::maintain); then it traces, evacuates and sends ghosts, too.
#include <spdlog/spdlog.h>

#include "agent_store.h"

namespace fm::store::node {

namespace {

constexpr auto notice_retry = std::chrono::milliseconds(5);
constexpr auto maintain_at_least_every =
    std::chrono::seconds(1);  ///< the longest sleep, so that a lost wake-up costs at most this

}  // namespace

std::vector<std::shared_ptr<heap>> agent_store::all_heaps() const {
  std::vector<std::shared_ptr<heap>> all;
  std::lock_guard lock(heaps_mutex_);
  all.reserve(heaps_.size());
  for (const auto& [id, h] : heaps_) all.push_back(h);
  return all;
}

void agent_store::free_heap(const std::shared_ptr<heap>& h, const char* why, bool only_if_expired) {
  std::lock_guard heaps_lock(heaps_mutex_);
  std::lock_guard lock(h->mutex);
  if (h->closed.load() || (only_if_expired && (h->owner != nullptr || h->lease_until > now()))) return;
  const std::size_t regions = h->regions.size();
  h->close();
  heaps_.erase({h->key.heap_id[0], h->key.heap_id[1]});
  if (only_if_expired) ++heaps_expired_;
  spdlog::log(heap_level(), "store {}: heap {} freed with {} regions: {}", options_.name, h->name, regions, why);
}

time_point agent_store::expire_leases() {
  time_point next = time_point::max();
  for (const auto& h : all_heaps()) {
    time_point until;
    {
      std::lock_guard lock(h->mutex);
      until = h->owner == nullptr ? h->lease_until : time_point::max();
    }
    if (until <= now())
      free_heap(h, "its lease ran out", true);
    else
      next = std::min(next, until);
  }
  return next;
}

time_point agent_store::send_lost_notices() {
  bool left = false;
  for (const auto& h : all_heaps()) {
    std::lock_guard lock(h->mutex);
    if (!h->notices_pending || h->owner == nullptr) continue;
    h->notices_pending = false;
    for (region* r : h->regions)
      if (r->notice_pending) {
        h->send_notice(*r);
        if (r->notice_pending) break;  // the peer's queue is full; the rest later
      }
    h->notices_pending =
        std::any_of(h->regions.begin(), h->regions.end(), [](const region* r) { return r->notice_pending; });
    left = left || h->notices_pending;
  }
  return left ? now() + notice_retry : time_point::max();
}

bool agent_store::maintain() {
  std::lock_guard lock(maintain_mutex_);
  wake_at_ = std::min({expire_leases(), send_lost_notices(), paged_.expire(now())});
  const bool compacted = maintain_pools();
  const bool traced = !options_.hooks.background && trace_step(0);
  const bool evacuated = !options_.hooks.background && evacuate_some();
  const bool sent = !options_.hooks.background && ghosts_.step();
  const auto heaps = all_heaps();
  for (std::size_t i = 0; i < heaps.size(); ++i) {
    clean_next_ = (clean_next_ + 1) % heaps.size();
    if (clean_step(*heaps[clean_next_], options_.clean_below_live_ratio, options_.hooks.cleaner_copied,
                   options_.hooks.context))
      return true;
  }
  return compacted || traced || evacuated || sent;
}

void agent_store::wake() noexcept {
  work_.fetch_add(1);
  os::futex_wake(work_, 1);
}

void agent_store::run() {
  os::name_thread("fm-store");
  while (!stop_.load()) {
    const std::uint32_t seen = work_.load();
    if (maintain()) {
      std::this_thread::yield();  // between two steps of cleaning, to whoever serves the owners
      continue;
    }
    time_point until;
    {
      std::lock_guard lock(maintain_mutex_);
      until = std::min(wake_at_, now() + maintain_at_least_every);
    }
    if (!stop_.load()) os::futex_wait(work_, seen, until);
  }
}

}  // namespace fm::store::node
