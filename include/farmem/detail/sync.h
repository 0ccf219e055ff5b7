// Waiting and ordering between threads: futex words, the asymmetric fence, and a few services of the kernel for
// threads.
//
// Invariant: a thread that executes light_fence, and one that executes heavy_fence afterwards, agree on what came
// first. So announcing a section costs no fence instruction, and whoever wants to know about sections pays for both.
//
// Epochs (epoch.h) use the fence. Any layer may wait on a futex word; every wait takes a deadline.
#pragma once

#include <atomic>
#include <farmem/base/units.h>
#include <farmem/detail/check.h>

namespace fm::os {

/// Sleeps while `word == expected`, until a wake or the deadline; may return early. Returns false on the deadline.
bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, time_point deadline) noexcept;
void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept;
/// The same on a word in memory that several processes have mapped.
bool futex_wait_shared(std::atomic<std::uint32_t>& word, std::uint32_t expected, time_point deadline) noexcept;
void futex_wake_shared(std::atomic<std::uint32_t>& word, int count) noexcept;

/// The heavy half of an asymmetric fence: when it returns, every thread of the process has passed a full fence since
/// the call began. About 3 microseconds. Under ThreadSanitizer, which does not see membarrier, both halves are
/// ordinary sequentially consistent operations instead.
void heavy_fence() noexcept;

/// The light half: keeps the compiler from moving memory accesses across it.
inline void light_fence() noexcept {
#if FM_TSAN
  // A full fence in the processor, on a word of the thread's own so that it orders nothing in the sanitizer's eyes.
  thread_local std::atomic<std::uint32_t> word{0};
  word.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// CPU time that the calling thread has used, ns.
std::uint64_t thread_cpu_ns() noexcept;

/// Names the calling thread, at most 15 characters, for debuggers and top.
void name_thread(const char* name) noexcept;
/// Makes the calling thread give way to others: its nice value, 0 to 19. Without effect where that is not allowed.
void yield_to_others(int nice) noexcept;

}  // namespace fm::os
