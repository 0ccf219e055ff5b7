// The table of ranges, the handler of SIGBUS, and fork; see ranges.h. In a child, ranges are not mapped
// (MADV_DONTFORK). Their address space stays taken there, so that nothing of the child's comes to lie in it: touching
// it is a SIGSEGV, and a handler that exists only there says why before the process ends as it would have.
//
// Invariant: no address belongs to a range of another process. A child inherits the descriptors of its parent's ranges,
// and what it did through them would happen in the parent.
#include "ranges.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core.h"

namespace fm::detail {

namespace {

constexpr std::size_t ranges_max = 64;
struct range_slot {
  std::atomic<paged_core*> core{nullptr};
  std::atomic<bool> in_place{false};
};
std::array<range_slot, ranges_max> ranges;

/// Where ranges of the processes are that this one was forked from; each with the core as it was then.
std::array<std::atomic<const paged_core*>, ranges_max> of_parents;

std::mutex handlers_mutex;  ///< installing, and forking
bool bus_installed = false, fork_installed = false;
struct sigaction bus_before, segv_before;

paged_core* range_of(const void* address) noexcept {
  for (range_slot& s : ranges)
    if (paged_core* c = s.core.load(std::memory_order_acquire); c != nullptr && c->contains(address)) return c;
  return nullptr;
}

/// To whoever had the signal before, or to the default: then the instruction faults again, and ends the process.
void pass_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    ::sigaction(signal, &by_default, nullptr);
    if (info->si_code <= 0) ::raise(signal);  // somebody sent it: it does not come again by itself
  }
}

bool is_write([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  constexpr std::int64_t write_bit = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & write_bit) != 0;
#else
  return true;  // not known: what is read counts as written
#endif
}

void on_bus(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  paged_core* const core = info->si_code > 0 ? range_of(info->si_addr) : nullptr;
  const bool served = core != nullptr && core->fault_in_place(info->si_addr, is_write(context));
  errno = saved;
  if (!served) pass_on(bus_before, signal, info, context);
}

void on_child_segv(int signal, siginfo_t* info, void* context) {
  for (const auto& parents : of_parents) {
    const paged_core* const core = info->si_code > 0 ? parents.load(std::memory_order_relaxed) : nullptr;
    if (core == nullptr || !core->contains(info->si_addr)) continue;
    std::array<char, 256> text;
    const auto end = fmt::format_to_n(text.data(), text.size(),
                                      "farmem: {} is in paged range {}, which does not exist in a child after fork\n",
                                      info->si_addr, core->name());
    [[maybe_unused]] const ssize_t n =
        ::write(STDERR_FILENO, text.data(), std::min(text.size(), static_cast<std::size_t>(end.size)));
    break;
  }
  pass_on(segv_before, signal, info, context);
}

void before_fork() { handlers_mutex.lock(); }
void in_parent() { handlers_mutex.unlock(); }

void in_child() {
  for (range_slot& s : ranges) {
    const paged_core* const core = s.core.exchange(nullptr, std::memory_order_relaxed);
    if (core == nullptr) continue;
    core->take_place_in_child();
    for (auto& parents : of_parents) {  // those of its parents' parents are there already; the last ones go unnamed
      const paged_core* none = nullptr;
      if (parents.compare_exchange_strong(none, core, std::memory_order_relaxed)) break;
    }
  }
  if (of_parents[0].load(std::memory_order_relaxed) != nullptr) {
    struct sigaction a {
    }, before{};
    a.sa_sigaction = on_child_segv;
    a.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &a, &before);
    if ((before.sa_flags & SA_SIGINFO) == 0 || before.sa_sigaction != on_child_segv) segv_before = before;
  }
  handlers_mutex.unlock();
}

void install(bool in_place) {
  const std::lock_guard lock(handlers_mutex);
  if (!fork_installed) ::pthread_atfork(before_fork, in_parent, in_child);
  fork_installed = true;
  if (!in_place || bus_installed) return;
  struct sigaction a {};
  a.sa_sigaction = on_bus;
  // Signals that others send must not interrupt the handler: what they run might touch the same block. Faults may.
  a.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigfillset(&a.sa_mask);
  for (const int s : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&a.sa_mask, s);
  ::sigaction(SIGBUS, &a, &bus_before);
  bus_installed = true;
}

}  // namespace

void enter_range(paged_core& core, bool in_place) {
  install(in_place);
  for (range_slot& s : ranges) {
    paged_core* none = nullptr;
    if (!s.core.compare_exchange_strong(none, &core, std::memory_order_acq_rel)) continue;
    s.in_place.store(in_place);
    return;
  }
  throw error(errc::too_large,
              fmt::format("paged range {}: this process has {} already, the most", core.name(), ranges_max));
}

void leave_range(paged_core& core) noexcept {
  for (range_slot& s : ranges)
    if (s.core.load(std::memory_order_relaxed) == &core) s.core.store(nullptr, std::memory_order_release);
}

}  // namespace fm::detail
