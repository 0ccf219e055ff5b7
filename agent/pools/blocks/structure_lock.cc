// Waiting for a pool's structure, and the numbers of the threads that serve; see structure_lock.h for the protocol.
// A thread polls a little before it sleeps, because others stay inside for a moment only.
// Called by whoever serves a pool; any thread may.
#include "structure_lock.h"

#include "agent/base/limits.h"
#include <bit>
#include <limits>

namespace fm::agent {

namespace {

constexpr unsigned no_number = ~0u;

std::atomic<std::uint64_t> numbers_taken{0};
std::atomic<unsigned> next_shared{0};

// Two of them, so that a thread that is ending can still ask: the number needs no destructor, what gives it back has
// one.
thread_local unsigned number_of_mine = no_number;
struct number_holder {
  std::uint64_t bit = 0;
  ~number_holder() {
    if (bit == 0) return;
    numbers_taken.fetch_and(~bit, std::memory_order_release);
    number_of_mine = serving_numbers - 1;  // shared with whoever has it
  }
};
thread_local number_holder my_number;

unsigned take_number() noexcept {
  std::uint64_t taken = numbers_taken.load(std::memory_order_relaxed);
  while (~taken != 0) {
    const auto n = static_cast<unsigned>(std::countr_one(taken));
    if (!numbers_taken.compare_exchange_weak(taken, taken | std::uint64_t{1} << n, std::memory_order_acq_rel,
                                             std::memory_order_relaxed))
      continue;
    my_number.bit = std::uint64_t{1} << n;
    return n;
  }
  return next_shared.fetch_add(1, std::memory_order_relaxed) % serving_numbers;
}

/// Whoever is counted goes on in a moment, unless the processor was taken from them.
void await_zero(std::atomic<std::uint32_t>& count) noexcept {
  std::uint32_t n = count.load(std::memory_order_seq_cst);
  for (int i = 0; n != 0; ++i, n = count.load(std::memory_order_seq_cst)) {
    if (i < limits::structure_polls_max)
      fm::detail::cpu_relax();
    else
      os::futex_wait(count, n, clock::now() + limits::sleep_max);
  }
}

}  // namespace

unsigned serving_number() noexcept {
  static_assert(serving_numbers == 64, "a bit each");
  if (number_of_mine == no_number) [[unlikely]]
    number_of_mine = take_number();
  return number_of_mine;
}

void structure_lock::lock() noexcept {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  await_zero(queued_);
  exclusive_.store(1, std::memory_order_seq_cst);
  for (seat& s : seats_) await_zero(s.inside);
}

void structure_lock::unlock() noexcept {
  exclusive_.store(0, std::memory_order_seq_cst);
  if (queued_.load(std::memory_order_seq_cst) != 0) os::futex_wake(exclusive_, std::numeric_limits<int>::max());
  mutex_.unlock();
}

/// Once nobody has it exclusively, nobody can before this one is inside: whoever wants to, awaits that none is queued.
/// But one may have looked before this one was.
void structure_lock::queue(seat& mine) noexcept {
  leave(mine);
  queued_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    while (exclusive_.load(std::memory_order_seq_cst) != 0)
      os::futex_wait(exclusive_, 1, clock::now() + limits::sleep_max);
    mine.inside.fetch_add(1, std::memory_order_seq_cst);
    if (exclusive_.load(std::memory_order_seq_cst) == 0) break;
    leave(mine);
  }
  if (queued_.fetch_sub(1, std::memory_order_seq_cst) == 1) os::futex_wake(queued_, 1);
}

}  // namespace fm::agent
