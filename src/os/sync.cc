// The system calls behind futexes, the heavy fence and threads; see farmem/detail/sync.h.
//
// Invariant: deadlines are absolute times of steady_clock, so that a wait that is repeated does not grow. A kernel
// without membarrier ends the program at the first section: without it no epoch could be passed.
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"
#include <cerrno>
#include <climits>
#include <ctime>

namespace fm::os {

namespace {

bool wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, time_point deadline, int flag) noexcept {
  timespec until{};
  timespec* until_p = nullptr;
  if (deadline != time_point::max()) {
    // steady_clock is CLOCK_MONOTONIC, which FUTEX_WAIT_BITSET takes as an absolute time.
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    if (ns <= 0) return false;
    until.tv_sec = ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    until_p = &until;
  }
  const long rc = ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET | flag, expected,
                            until_p, nullptr, FUTEX_BITSET_MATCH_ANY);
  return !(rc != 0 && errno == ETIMEDOUT);
}

void wake_on(std::atomic<std::uint32_t>& word, int count, int flag) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE | flag, count, nullptr, nullptr, 0);
}

#if !FM_TSAN
bool register_membarrier() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}
bool registered() noexcept {
  static const bool done = register_membarrier();
  return done;
}
const at_load registered_at_load([]() noexcept { (void)registered(); });

// What is registered is the memory of a process, and no manual says that a copy of it is.
const fork_guard membarrier_at_fork(
    fork_rank::leaves, []() noexcept {}, []() noexcept {}, []() noexcept { register_membarrier(); });
#endif

}  // namespace

bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, time_point deadline) noexcept {
  return wait_on(word, expected, deadline, FUTEX_PRIVATE_FLAG);
}
void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept { wake_on(word, count, FUTEX_PRIVATE_FLAG); }
bool futex_wait_shared(std::atomic<std::uint32_t>& word, std::uint32_t expected, time_point deadline) noexcept {
  return wait_on(word, expected, deadline, 0);
}
void futex_wake_shared(std::atomic<std::uint32_t>& word, int count) noexcept { wake_on(word, count, 0); }

void heavy_fence() noexcept {
#if FM_TSAN
  static std::atomic<std::uint64_t> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  FM_CHECK(registered(), "membarrier is not available: Linux 4.14 or newer is needed");
  FM_CHECK(::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0, "membarrier");
#endif
}

std::uint64_t thread_cpu_ns() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

void name_thread(const char* name) noexcept { ::prctl(PR_SET_NAME, name, 0, 0, 0); }

void yield_to_others(int nice) noexcept {
  // On Linux the value is the thread's own.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), nice);
}

}  // namespace fm::os
