// The scheduler of the simulation: exactly one of the program's threads runs at a time (fiber.h), and others come to run only at
// scheduling points, chosen by a seeded generator. Time is virtual: it passes a little at every point, and jumps to the next
// deadline when nobody can run. So a seed is one interleaving, and replays.
//
// Invariant owned here: nothing else of this process runs beside the thread whose turn it is; so the scheduler's own state
// needs no lock. Called by what stands in for the operating system (interpose.cc) and by the instrumentation
// (instrumented.cc); the program under test calls none of it.
#pragma once

#include <cstdint>
#include <string>

namespace fm::sim {

/// How a run is scheduled. All of it follows from the seed of the run.
struct schedule {
  std::uint64_t seed = 1;
  std::uint32_t points_mean = 64;            ///< scheduling points between two decisions
  std::uint32_t freeze_one_in = 0;           ///< of the preempted threads, one in so many sleeps for a while; 0: none
  std::uint32_t freeze_bits_max = 20;        ///< for at most 2^this ns
  bool data_points = false;                  ///< plain memory accesses are scheduling points, too
  std::uint64_t decisions_max = 20'000'000;  ///< a run with more than that makes no progress
};

/// A moment of the virtual clock in ns; `never` is no deadline.
using moment = std::uint64_t;
constexpr moment never = ~moment{0};

/// The calling thread becomes the first one, and the only one that runs.
void start(const schedule& s);
/// Ends the simulation: the other threads have ended.
void finish();
/// Whether the calling thread is scheduled here.
bool scheduled() noexcept;

extern std::int64_t points_left;  ///< until the next decision
extern std::int64_t data_weight;  ///< what a plain access takes off it
void decide() noexcept;
/// Somebody else may run here.
inline void point() noexcept {
  if (--points_left < 0) decide();
}
/// Somebody else runs here, if anybody can.
void yield() noexcept;
/// Waits for wake(what) or the deadline. False: it was the deadline.
bool block(const void* what, moment until) noexcept;
/// Makes `count` of those who wait for `what`, chosen at random, able to run; returns how many there were.
int wake(const void* what, int count) noexcept;
void sleep_until(moment until) noexcept;

moment now() noexcept;
/// Time that the calling thread has run, ns.
moment of_this_thread() noexcept;
/// Random numbers of the schedule; drawing one is part of it.
std::uint64_t random() noexcept;
inline bool one_in(std::uint64_t n) noexcept { return n != 0 && random() % n == 0; }

/// While it exists, nobody else runs: for walks over everything.
class undisturbed {
 public:
  undisturbed();
  ~undisturbed();
};

// ---- threads, for interpose.cc ----
using destructor = void (*)(void*);
/// Begins a thread that runs `f(argument)`; its handle, or 0 when there is no memory.
unsigned long begin_thread(void* (*f)(void*), void* argument) noexcept;
/// Waits until the thread has run to its end; it can be joined then.
void wait_ended(unsigned long handle) noexcept;
/// Of the calling thread: called when it ends, the last one first.
void at_thread_end(destructor f, void* object);
[[nodiscard]] bool is_first_thread() noexcept;
/// Called for the value that a thread has there when it ends.
void at_thread_end(unsigned key, destructor f);
void name_thread(const char* name) noexcept;

/// What identifies a run: equal for equal seeds.
struct outcome {
  std::uint64_t decisions = 0, hash = 0;
  moment at = 0;
};
outcome so_far() noexcept;
/// Of the thread that runs: "7 fm-evictor".
std::string thread_text();
/// Who waits for what; for the report of a run that went wrong.
std::string threads_text();

}  // namespace fm::sim
