// Scheduling points in the code under test, put there by the compiler: it is built with -fsanitize=thread, and this file is
// what its instrumentation calls, in place of the sanitizer's library. Every atomic operation is a point, and, if the
// schedule says so, every plain access; a weak compare-exchange fails now and then for no reason. Memory is sequentially
// consistent: what the processor may reorder is the real thread sanitizer's business.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scheduler.h"
#include "watch.h"

namespace {

inline void data_point() noexcept {
  if ((fm::sim::points_left -= fm::sim::data_weight) < 0) fm::sim::decide();
}

constexpr std::uint64_t weak_fails_one_in = 64;

// A word that is watched: what is done to it is printed, with the caller, for addr2line.
void show(const volatile void* at, std::uint64_t is, const void* from) noexcept {
  if (at == fm::sim::watched) fm::sim::show_watched(is, from);
}

bool fails_weakly() noexcept { return fm::sim::scheduled() && fm::sim::one_in(weak_fails_one_in); }

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}

#define FM_SIM_ACCESS(name) \
  void __tsan_##name(void*) { data_point(); }
#define FM_SIM_ACCESSES(aligned, size)        \
  FM_SIM_ACCESS(aligned##read##size)          \
  FM_SIM_ACCESS(aligned##write##size)         \
  FM_SIM_ACCESS(aligned##read_write##size)    \
  FM_SIM_ACCESS(aligned##volatile_read##size) \
  FM_SIM_ACCESS(aligned##volatile_write##size)
FM_SIM_ACCESSES(, 1)
FM_SIM_ACCESSES(, 2)
FM_SIM_ACCESSES(, 4)
FM_SIM_ACCESSES(, 8)
FM_SIM_ACCESSES(, 16)
FM_SIM_ACCESSES(unaligned_, 2)
FM_SIM_ACCESSES(unaligned_, 4)
FM_SIM_ACCESSES(unaligned_, 8)
FM_SIM_ACCESSES(unaligned_, 16)
void __tsan_read_range(void*, std::size_t) { data_point(); }
void __tsan_write_range(void*, std::size_t) { data_point(); }
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void* __tsan_memcpy(void* to, const void* from, std::size_t n) { return std::memcpy(to, from, n); }
void* __tsan_memmove(void* to, const void* from, std::size_t n) { return std::memmove(to, from, n); }
void* __tsan_memset(void* to, int c, std::size_t n) { return std::memset(to, c, n); }

#define FM_SIM_FETCH(bits, type, name)                                            \
  type __tsan_atomic##bits##_fetch_##name(type* at, type v, int) {                \
    fm::sim::point();                                                             \
    const type was = __atomic_fetch_##name(at, v, __ATOMIC_SEQ_CST);              \
    show(at, __atomic_load_n(at, __ATOMIC_SEQ_CST), __builtin_return_address(0)); \
    return was;                                                                   \
  }
#define FM_SIM_ATOMIC(bits, type)                                                                              \
  type __tsan_atomic##bits##_load(const type* at, int) {                                                       \
    fm::sim::point();                                                                                          \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                            \
  void __tsan_atomic##bits##_store(type* at, type v, int) {                                                    \
    fm::sim::point();                                                                                          \
    __atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                                                 \
    show(at, v, __builtin_return_address(0));                                                                  \
  }                                                                                                            \
  type __tsan_atomic##bits##_exchange(type* at, type v, int) {                                                 \
    fm::sim::point();                                                                                          \
    const type was = __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                                             \
    show(at, v, __builtin_return_address(0));                                                                  \
    return was;                                                                                                \
  }                                                                                                            \
  FM_SIM_FETCH(bits, type, add)                                                                                \
  FM_SIM_FETCH(bits, type, sub)                                                                                \
  FM_SIM_FETCH(bits, type, and)                                                                                \
  FM_SIM_FETCH(bits, type, or)                                                                                 \
  FM_SIM_FETCH(bits, type, xor)                                                                                \
  FM_SIM_FETCH(bits, type, nand)                                                                               \
  int __tsan_atomic##bits##_compare_exchange_strong(type* at, type* expected, type v, int, int) {              \
    fm::sim::point();                                                                                          \
    const bool done = __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    if (done) show(at, v, __builtin_return_address(0));                                                        \
    return done;                                                                                               \
  }                                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(type* at, type* expected, type v, int, int) {                \
    fm::sim::point();                                                                                          \
    if (fails_weakly()) {                                                                                      \
      *expected = __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                       \
      return false;                                                                                            \
    }                                                                                                          \
    const bool done = __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    if (done) show(at, v, __builtin_return_address(0));                                                        \
    return done;                                                                                               \
  }                                                                                                            \
  type __tsan_atomic##bits##_compare_exchange_val(type* at, type expected, type v, int, int) {                 \
    fm::sim::point();                                                                                          \
    __atomic_compare_exchange_n(at, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
    return expected;                                                                                           \
  }
FM_SIM_ATOMIC(8, std::uint8_t)
FM_SIM_ATOMIC(16, std::uint16_t)
FM_SIM_ATOMIC(32, std::uint32_t)
FM_SIM_ATOMIC(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) { fm::sim::point(); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
