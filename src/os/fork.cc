// The list of guards, and the three handlers that fork calls; see fork.h. Guards are made while the library is loaded,
// so the list does not change any more when a program forks.
#include "os/os.h"

#include <pthread.h>
#include <spdlog/details/console_globals.h>

#include <atomic>
#include <mutex>

namespace fm::os {

namespace {

constinit fork_guard* first = nullptr;  // in the order of ranks
constinit std::atomic<std::uint32_t> depth{0};

// The logger is everybody's: a thread of the parent may be writing a line.
std::mutex& console() noexcept { return spdlog::details::console_mutex::mutex(); }

}  // namespace

struct fork_guards {
  static void before() noexcept {
    for (const fork_guard* g = first; g != nullptr; g = g->next_) g->before_();
    console().lock();
  }
  // In any order: nobody waits for a lock while holding one of these.
  static void in_parent() noexcept {
    console().unlock();
    for (const fork_guard* g = first; g != nullptr; g = g->next_) g->in_parent_();
  }
  static void in_child() noexcept {
    depth.fetch_add(1, std::memory_order_relaxed);
    console().unlock();
    for (const fork_guard* g = first; g != nullptr; g = g->next_) g->in_child_();
  }
};

fork_guard::fork_guard(fork_rank rank, void (*before)() noexcept, void (*in_parent)() noexcept,
                       void (*in_child)() noexcept) noexcept
    : rank_(rank), before_(before), in_parent_(in_parent), in_child_(in_child) {
  if (first == nullptr)
    FM_CHECK(::pthread_atfork(fork_guards::before, fork_guards::in_parent, fork_guards::in_child) == 0,
             "pthread_atfork");
  fork_guard** place = &first;
  while (*place != nullptr && (*place)->rank_ <= rank_) place = &(*place)->next_;
  next_ = *place;
  *place = this;
}

std::uint32_t fork_depth() noexcept { return depth.load(std::memory_order_relaxed); }

}  // namespace fm::os
