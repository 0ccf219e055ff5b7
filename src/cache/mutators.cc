// Threads that come and end, and the heaps of this process that they find by number; see mutators.h.
//
// Invariant: a number stands in open_lists from the moment at which threads may use it until none does; the lock of
// that table is taken by heaps that open or close, by threads that end, and at the memory gate. In a child after fork
// the numbers of its parent's heaps stay taken, so that a thread never finds one of its own heaps by them.
#include "mutators.h"
#include "cache/memory/access_wait.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fm::detail {

namespace {

std::mutex lists_mutex;
const os::fork_guard lists_at_fork = os::guard_at_fork<lists_mutex>(os::fork_rank::heaps);
std::atomic<mutator_list*> open_lists[heaps_max];

void thread_ends(thread_state& t) noexcept {
  // No heap can close meanwhile and free a mutator: closing takes the same lock first, and then takes the mutator from here.
  const std::lock_guard lock(lists_mutex);
  for (std::size_t i = 0; i < heaps_max; ++i) {
    if (!t.mutators[i]) continue;
    if (mutator_list* l = open_lists[i].load(std::memory_order_acquire)) l->detach(*t.mutators[i]);
    t.mutators[i] = nullptr;
  }
}

// Before a user's section begins while some heap is short of memory: the thread holds nothing that stands in the way,
// so it evicts or waits here. Bounded: whoever still finds no memory afterwards gets the error that says why.
void relieve_shortage() noexcept {
  std::array<mutator*, heaps_max> mine;
  std::size_t n = 0;
  {
    // A heap may be closed meanwhile: that takes the same lock, and then waits for those who are counted.
    const std::lock_guard lock(lists_mutex);
    for (mutator* m : this_thread.mutators)
      if (m != nullptr) m->cache.pressure().waiters.fetch_add(1, std::memory_order_relaxed), mine[n++] = m;
  }
  const time_point begin = clock::now();
  for (std::size_t i = 0; i < n; ++i) {
    object_cache& c = mine[i]->cache;
    c.pressure().wait_at_gate(*mine[i], begin + c.options().memory_within);
    c.pressure().waiters.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace

void mutator_list::open() {
  const std::lock_guard lock(lists_mutex);
  epochs::at_thread_end(thread_ends);
  epochs::relieve.store(relieve_shortage, std::memory_order_release);
  for (index_ = 0; index_ < heaps_max && open_lists[index_].load() != nullptr; ++index_) {
  }
  if (index_ == heaps_max)
    throw error(errc::invalid_argument, fmt::format("{} heaps are open in this process already", heaps_max));
  open_lists[index_].store(this, std::memory_order_release);
}

void mutator_list::close() noexcept {
  const std::lock_guard lock(lists_mutex);
  const std::uint32_t index = index_;
  epochs::for_each_thread([](thread_state& t, void* i) { t.mutators[*static_cast<const std::uint32_t*>(i)] = nullptr; },
                          const_cast<std::uint32_t*>(&index));
  open_lists[index_].store(nullptr, std::memory_order_release);
}

std::size_t mutator_list::count() noexcept {
  const std::lock_guard lock(mutex_);
  return all_.size() - free_.size();
}

mutator& mutator_list::attach(slot_t reaches) {
  if (opened_in_ != os::fork_depth())
    throw error(errc::heap_closed, "a heap of the parent is used in a child after fork, which can open its own");
  // Outside of sections: a snapshot holds the lock while its pause waits for sections.
  const access_wait outside(cache_.pressure(), reaches);
  { const section registered; }  // makes the thread known, so that its end is noticed
  mutator* m = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(all_.size() + 1);  // for all of them, when their threads end
      all_.push_back(std::make_unique<mutator>(cache_));
      free_.push_back(all_.back().get());
      free_.back()->next_agent = static_cast<std::uint32_t>(all_.size() - 1);
    }
    m = free_.back();
    free_.pop_back();
  }
  cache_.leases().begin(*m, this_thread);
  return *(this_thread.mutators[index_] = m);
}

void mutator_list::detach(mutator& m) noexcept {
  cache_.leases().end(m);
  const std::lock_guard lock(mutex_);
  free_.push_back(&m);
}

}  // namespace fm::detail
