// The table of ranges, the handler of SIGBUS, and fork; see ranges.h. In a child, ranges are not mapped
// (MADV_DONTFORK): touching one is a SIGSEGV, and a handler that exists only there says why before the process ends as
// it would have.
#include "ranges.h"

#include <fmt/format.h>
#include <pthread.h>
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

std::mutex handlers_mutex;  ///< installing
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
  if (paged_core* core = info->si_code > 0 ? range_of(info->si_addr) : nullptr) {
    std::array<char, 256> text;
    const auto end = fmt::format_to_n(text.data(), text.size(),
                                      "farmem: {} is in paged range {}, which does not exist in a child after fork\n",
                                      info->si_addr, core->name());
    [[maybe_unused]] const ssize_t n =
        ::write(STDERR_FILENO, text.data(), std::min(text.size(), static_cast<std::size_t>(end.size)));
  }
  pass_on(segv_before, signal, info, context);
}

void in_child() {
  bool any = false;
  for (const range_slot& s : ranges) any = any || s.core.load(std::memory_order_relaxed) != nullptr;
  if (!any) return;
  struct sigaction a {};
  a.sa_sigaction = on_child_segv;
  a.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &a, &segv_before);
}

void install(bool in_place) {
  const std::lock_guard lock(handlers_mutex);
  if (!fork_installed) ::pthread_atfork(nullptr, nullptr, in_child);
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
