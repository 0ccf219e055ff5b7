// The functions of the C and C++ libraries through which a program meets other threads and the time, on the scheduler's
// terms: defined here, in the executable, they come before the libraries' own, for the libraries too. A thread that is not
// scheduled, before the run and after it, gets the real ones.
//
// A mutex is the real one, which the thread that runs either gets at once or waits for here; condition variables are only names.
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <random>
#include <vector>

#include "scheduler.h"

namespace {

using namespace fm::sim;

constexpr std::uint64_t wakes_early_one_in = 64;  // a wait may return for no reason
constexpr moment realtime_from = 1'700'000'000'000'000'000;

template <class F>
F* real(F*& known, const char* name) {
  if (known == nullptr) known = reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
  return known;
}
#define FM_SIM_REAL(name) real(real_##name, #name)
#define FM_SIM_DECLARE(name) decltype(::name)* real_##name = nullptr
FM_SIM_DECLARE(pthread_mutex_lock);
FM_SIM_DECLARE(pthread_mutex_trylock);
FM_SIM_DECLARE(pthread_mutex_unlock);
FM_SIM_DECLARE(pthread_rwlock_rdlock);
FM_SIM_DECLARE(pthread_rwlock_tryrdlock);
FM_SIM_DECLARE(pthread_rwlock_wrlock);
FM_SIM_DECLARE(pthread_rwlock_trywrlock);
FM_SIM_DECLARE(pthread_rwlock_unlock);
FM_SIM_DECLARE(pthread_create);
FM_SIM_DECLARE(pthread_join);
FM_SIM_DECLARE(pthread_key_create);
int (*real___cxa_thread_atexit)(destructor, void*, void*) = nullptr;
FM_SIM_DECLARE(clock_gettime);
FM_SIM_DECLARE(poll);
FM_SIM_DECLARE(ppoll);
FM_SIM_DECLARE(write);
FM_SIM_DECLARE(send);
FM_SIM_DECLARE(sendmsg);
FM_SIM_DECLARE(recv);
FM_SIM_DECLARE(shutdown);
FM_SIM_DECLARE(syscall);
FM_SIM_DECLARE(prctl);
FM_SIM_DECLARE(sched_yield);

moment moment_of(clockid_t clock, const timespec& t) {
  const moment ns = static_cast<moment>(t.tv_sec) * 1'000'000'000 + static_cast<moment>(t.tv_nsec);
  return clock == CLOCK_REALTIME ? ns - realtime_from : ns;
}

int wait_for(pthread_cond_t* c, pthread_mutex_t* m, moment until) {
  FM_SIM_REAL(pthread_mutex_unlock)(m);
  wake(m, 1 << 30);
  bool in_time = true;
  if (one_in(wakes_early_one_in))
    yield();
  else
    in_time = block(c, until);
  while (FM_SIM_REAL(pthread_mutex_trylock)(m) != 0) block(m, never);
  return in_time ? 0 : ETIMEDOUT;
}

// A descriptor becomes ready by what is done to it or to its other end in this process, or not at all.
template <class Look>
int poll_until(moment until, const Look& look) {
  for (;;) {
    const int ready = look();
    if (ready != 0 || now() >= until) return ready;
    block(&real_poll, until);
  }
}
template <class Result>
Result something_is_ready(Result rc) {
  if (!scheduled()) return rc;
  const int why = errno;
  wake(&real_poll, 1 << 30);
  point();
  errno = why;
  return rc;
}
// As much of a stream's bytes as has come, or as has room: any number, but the few of one message whole.
std::size_t a_piece_of(std::size_t n) {
  constexpr std::size_t whole = 64, most = 2048;
  return n <= whole ? n : whole + fm::sim::random() % std::min(n - whole + 1, most);
}

template <class Try, class Lock>
int take(Lock* lock, Try* attempt) {
  point();
  int rc = 0;
  while ((rc = attempt(lock)) == EBUSY) block(lock, never);
  return rc;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  if (!scheduled()) return FM_SIM_REAL(pthread_mutex_lock)(m);
  return take(m, FM_SIM_REAL(pthread_mutex_trylock));
}
int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
  if (scheduled()) point();
  return FM_SIM_REAL(pthread_mutex_trylock)(m);
}
int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
  const int rc = FM_SIM_REAL(pthread_mutex_unlock)(m);
  if (!scheduled()) return rc;
  wake(m, 1 << 30);
  point();
  return rc;
}
int pthread_rwlock_rdlock(pthread_rwlock_t* l) noexcept {
  if (!scheduled()) return FM_SIM_REAL(pthread_rwlock_rdlock)(l);
  return take(l, FM_SIM_REAL(pthread_rwlock_tryrdlock));
}
int pthread_rwlock_wrlock(pthread_rwlock_t* l) noexcept {
  if (!scheduled()) return FM_SIM_REAL(pthread_rwlock_wrlock)(l);
  return take(l, FM_SIM_REAL(pthread_rwlock_trywrlock));
}
int pthread_rwlock_unlock(pthread_rwlock_t* l) noexcept {
  const int rc = FM_SIM_REAL(pthread_rwlock_unlock)(l);
  if (!scheduled()) return rc;
  wake(l, 1 << 30);
  point();
  return rc;
}

int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) { return wait_for(c, m, never); }
int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* t) {
  return wait_for(c, m, moment_of(CLOCK_REALTIME, *t));
}
int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock, const timespec* t) {
  return wait_for(c, m, moment_of(clock, *t));
}
int pthread_cond_signal(pthread_cond_t* c) noexcept {
  point();
  wake(c, 1);
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* c) noexcept {
  point();
  wake(c, 1 << 30);
  return 0;
}
int pthread_cond_destroy(pthread_cond_t*) noexcept { return 0; }

int pthread_once(pthread_once_t* once, void (*run)()) {
  constexpr int begun = 1, done = 2;
  while (*once == begun) block(once, never);
  if (*once == done) return 0;
  *once = begun;
  try {
    run();
  } catch (...) {
    *once = PTHREAD_ONCE_INIT;
    wake(once, 1 << 30);
    throw;
  }
  *once = done;
  wake(once, 1 << 30);
  return 0;
}

// Function-local statics: the first byte says that one is made, the second that somebody is making it.
int __cxa_guard_acquire(std::uint64_t* guard) {
  auto* bytes = reinterpret_cast<volatile std::uint8_t*>(guard);
  while (bytes[0] == 0 && bytes[1] != 0) block(guard, never);
  if (bytes[0] != 0) return 0;
  bytes[1] = 1;
  return 1;
}
void __cxa_guard_release(std::uint64_t* guard) {
  auto* bytes = reinterpret_cast<volatile std::uint8_t*>(guard);
  bytes[0] = 1;
  bytes[1] = 0;
  wake(guard, 1 << 30);
}
void __cxa_guard_abort(std::uint64_t* guard) {
  reinterpret_cast<volatile std::uint8_t*>(guard)[1] = 0;
  wake(guard, 1 << 30);
}

int pthread_create(pthread_t* handle, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  if (!scheduled()) return FM_SIM_REAL(pthread_create)(handle, attributes, run, argument);
  *handle = begin_thread(run, argument);
  point();
  return *handle == 0 ? EAGAIN : 0;
}
int pthread_join(pthread_t handle, void** returned) {
  if (scheduled()) wait_ended(handle);
  return FM_SIM_REAL(pthread_join)(handle, returned);
}
int pthread_key_create(pthread_key_t* key, destructor at_end) {
  const bool here = scheduled() && at_end != nullptr;
  const int rc = FM_SIM_REAL(pthread_key_create)(key, here ? nullptr : at_end);
  if (here && rc == 0) at_thread_end(*key, at_end);
  return rc;
}
int __cxa_thread_atexit(destructor f, void* object, void* library) {
  if (!scheduled() || is_first_thread()) return FM_SIM_REAL(__cxa_thread_atexit)(f, object, library);
  at_thread_end(f, object);
  return 0;
}

int sched_yield() noexcept {
  if (scheduled())
    yield();
  else
    FM_SIM_REAL(sched_yield)();
  return 0;
}

int clock_gettime(clockid_t clock, timespec* t) noexcept {
  if (!scheduled()) return FM_SIM_REAL(clock_gettime)(clock, t);
  const moment ns = clock == CLOCK_THREAD_CPUTIME_ID ? of_this_thread()
                    : clock == CLOCK_REALTIME        ? now() + realtime_from
                                                     : now();
  t->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  t->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}
int nanosleep(const timespec* t, timespec*) {
  sleep_until(now() + moment_of(CLOCK_MONOTONIC, *t));
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* t, timespec*) {
  sleep_until((flags & TIMER_ABSTIME) != 0 ? moment_of(clock, *t) : now() + moment_of(CLOCK_MONOTONIC, *t));
  return 0;
}

// Of the system calls that the library makes by number, futexes are what threads meet at.
long syscall(long number, ...) {
  long a[6];
  va_list list;
  va_start(list, number);
  for (long& v : a) v = va_arg(list, long);
  va_end(list);
  if (number != SYS_futex || !scheduled()) return FM_SIM_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  auto* const word = reinterpret_cast<std::uint32_t*>(a[0]);
  point();
  if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) return wake(word, static_cast<int>(a[2]));
  if ((a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET) std::abort();
  if (*word != static_cast<std::uint32_t>(a[2])) return errno = EAGAIN, -1;
  if (one_in(wakes_early_one_in)) return yield(), 0;
  const auto* until = reinterpret_cast<const timespec*>(a[3]);
  if (block(word, until == nullptr ? never : moment_of(CLOCK_MONOTONIC, *until))) return 0;
  return errno = ETIMEDOUT, -1;
}
int prctl(int what, ...) {
  unsigned long a[4];
  va_list list;
  va_start(list, what);
  for (unsigned long& v : a) v = va_arg(list, unsigned long);
  va_end(list);
  if (!scheduled() || what != PR_SET_NAME) return FM_SIM_REAL(prctl)(what, a[0], a[1], a[2], a[3]);
  name_thread(reinterpret_cast<const char*>(a[0]));
  return 0;
}

int poll(pollfd* fds, nfds_t n, int timeout_ms) {
  if (!scheduled()) return FM_SIM_REAL(poll)(fds, n, timeout_ms);
  const moment until = timeout_ms < 0 ? never : now() + static_cast<moment>(timeout_ms) * 1'000'000;
  return poll_until(until, [&] { return FM_SIM_REAL(poll)(fds, n, 0); });
}
int ppoll(pollfd* fds, nfds_t n, const timespec* within, const sigset_t* mask) {
  if (!scheduled()) return FM_SIM_REAL(ppoll)(fds, n, within, mask);
  const moment until = within == nullptr ? never : now() + moment_of(CLOCK_MONOTONIC, *within);
  return poll_until(until, [&] { return FM_SIM_REAL(poll)(fds, n, 0); });
}
ssize_t write(int fd, const void* from, size_t n) { return something_is_ready(FM_SIM_REAL(write)(fd, from, n)); }

// Sockets of streams, which nobody waits at but by poll.
ssize_t send(int fd, const void* from, size_t n, int flags) {
  if (!scheduled()) return FM_SIM_REAL(send)(fd, from, n, flags);
  return something_is_ready(FM_SIM_REAL(send)(fd, from, a_piece_of(n), flags));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (!scheduled()) return FM_SIM_REAL(sendmsg)(fd, message, flags);
  std::vector<iovec> pieces(message->msg_iov, message->msg_iov + message->msg_iovlen);
  std::size_t left = 0;
  for (const iovec& p : pieces) left += p.iov_len;
  left = a_piece_of(left);
  for (iovec& p : pieces) left -= p.iov_len = std::min(p.iov_len, left);
  msghdr some = *message;
  some.msg_iov = pieces.data();
  return something_is_ready(FM_SIM_REAL(sendmsg)(fd, &some, flags));
}
ssize_t recv(int fd, void* to, size_t n, int flags) {
  if (!scheduled()) return FM_SIM_REAL(recv)(fd, to, n, flags);
  return something_is_ready(FM_SIM_REAL(recv)(fd, to, a_piece_of(n), flags));
}
int shutdown(int fd, int how) noexcept { return something_is_ready(FM_SIM_REAL(shutdown)(fd, how)); }

}  // extern "C"

// Randomness from outside would be a run that does not replay.
std::random_device::result_type std::random_device::_M_getval() { return static_cast<result_type>(fm::sim::random()); }
