#include "scheduler.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ending.h"
#include "fiber.h"

namespace fm::sim {

namespace {

struct thread {
  fiber on;
  std::uint32_t number = 0;
  char name[16] = "";
  void* (*run)(void*) = nullptr;
  void* argument = nullptr;
  std::uint64_t turns = 0, points = 0;
  const void* waits_for = nullptr;  // null: it can run
  moment until = never;
  moment frozen_until = 0;
  bool timed_out = false, ended = false;
  std::vector<std::pair<destructor, void*>> at_end;
};

constexpr moment begin_of_time = 1'000'000'000'000;
constexpr moment ns_per_point = 8;
constexpr std::int64_t no_decision = std::int64_t{1} << 60;

schedule how;
bool running = false;
bool inside = false;  // the scheduler's own code, which is no part of the schedule
std::uint32_t held = 0;
moment clock_ns = begin_of_time;
std::int64_t interval = 0;  // what points_left began with
std::uint64_t random_state = 1;
outcome result;
std::vector<std::unique_ptr<thread>> threads;
thread* self = nullptr;
std::vector<std::pair<unsigned, destructor>> keys;
constexpr int destructor_rounds = 4;  // as many as glibc makes

void account() {
  if (self != nullptr && interval > points_left) self->points += static_cast<std::uint64_t>(interval - points_left);
  if (interval - points_left > 0) clock_ns += static_cast<moment>(interval - points_left) * ns_per_point;
  interval = points_left;
}

void new_interval() {
  interval = points_left =
      held != 0 ? no_decision : static_cast<std::int64_t>(1 + random() % (2 * std::uint64_t{how.points_mean}));
}

// The run stands still, or would take too long.
[[noreturn]] void give_up(const char* why) {
  running = false;
  std::fprintf(stderr, "simulation: %s, at %llu ns after %llu decisions\n%s", why,
               static_cast<unsigned long long>(clock_ns - begin_of_time),
               static_cast<unsigned long long>(result.decisions), threads_text().c_str());
  std::fflush(stderr);
  ::_exit(exit_status(ending::alarm));
}

// Who runs next; `last` only if nobody else can.
thread& choose(thread* last) {
  for (;;) {
    thread* chosen = nullptr;
    std::uint64_t able = 0;
    moment next = never;
    for (const auto& p : threads) {
      thread& t = *p;
      if (t.ended) continue;
      if (t.waits_for != nullptr && t.until <= clock_ns) {
        t.waits_for = nullptr;
        t.timed_out = true;
      }
      if (t.waits_for != nullptr) {
        next = std::min(next, t.until);
      } else if (t.frozen_until > clock_ns) {
        next = std::min(next, t.frozen_until);
      } else if (&t != last && random() % ++able == 0) {
        chosen = &t;
      }
    }
    if (chosen != nullptr) return *chosen;
    if (last != nullptr && !last->ended && last->waits_for == nullptr && last->frozen_until <= clock_ns) return *last;
    if (next == never) give_up("nobody can run, and nobody waits for a deadline");
    clock_ns = std::max(clock_ns, next);
  }
}

void hand_over(thread* last) {
  if (++result.decisions > how.decisions_max) give_up("no progress");
  thread& next = choose(last);
  result.hash = (result.hash ^ (next.number + (clock_ns << 8))) * 0x9e3779b97f4a7c15;
  result.hash ^= result.hash >> 29;
  new_interval();
  if (&next == self) return;
  thread& me = *self;
  self = &next;
  ++next.turns;
  me.on.switch_to(next.on);
}

thread& new_thread() {
  threads.push_back(std::make_unique<thread>());
  threads.back()->number = static_cast<std::uint32_t>(threads.size());
  return *threads.back();
}

// What the C library would do at the end of a thread, in its order: thread_locals, then the values of keys.
void run_destructors(thread& t) {
  while (!t.at_end.empty()) {
    const auto [f, object] = t.at_end.back();
    t.at_end.pop_back();
    f(object);
  }
  bool any = true;
  for (int round = 0; round < destructor_rounds && any; ++round) {
    any = false;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [key, f] = keys[i];
      void* const value = ::pthread_getspecific(key);
      if (value == nullptr) continue;
      any = true;
      ::pthread_setspecific(key, nullptr);
      f(value);
    }
  }
}

void thread_main() noexcept {
  inside = false;
  thread& t = *self;
  t.run(t.argument);
  run_destructors(t);
  inside = true;
  account();
  t.ended = true;
  wake(&t, 1 << 30);
  hand_over(nullptr);
  std::abort();  // nobody can have handed over to it
}

}  // namespace

std::int64_t points_left = no_decision;
std::int64_t data_weight = 0;

std::uint64_t random() noexcept {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545f4914f6cdd1d >> 8;
}

void start(const schedule& s) {
  how = s;
  random_state = (s.seed + 1) * 0x9e3779b97f4a7c15 | 1;
  for (int i = 0; i < 8; ++i) random();
  self = &new_thread();
  self->on.adopt();
  data_weight = s.data_points ? 1 : 0;
  new_interval();
  running = true;
}

void finish() {
  running = false;
  self = nullptr;
  points_left = no_decision;
}

bool scheduled() noexcept { return running && self != nullptr && !inside; }

void decide() noexcept {
  if (!scheduled()) {
    if (!running) points_left = no_decision;
    return;
  }
  inside = true;
  account();
  if (held != 0) {
    new_interval();
  } else {
    if (how.freeze_one_in != 0 && random() % how.freeze_one_in == 0)
      self->frozen_until = clock_ns + (moment{1} << (8 + random() % (how.freeze_bits_max - 7)));
    hand_over(nullptr);
  }
  inside = false;
}

void yield() noexcept {
  if (!scheduled() || held != 0) return;
  inside = true;
  account();
  hand_over(self);
  inside = false;
}

bool block(const void* what, moment until) noexcept {
  inside = true;
  account();
  self->waits_for = what;
  self->until = until;
  self->timed_out = false;
  hand_over(nullptr);
  inside = false;
  return !self->timed_out;
}

int wake(const void* what, int count) noexcept {
  if (!running) return 0;
  std::uint32_t waiting = 0;
  for (const auto& t : threads) waiting += !t->ended && t->waits_for == what;
  int woken = 0;
  for (const auto& t : threads) {
    if (t->ended || t->waits_for != what) continue;
    // Of `waiting` that are left, `count - woken` are to be woken.
    if (random() % waiting-- >= static_cast<std::uint64_t>(std::max(count - woken, 0))) continue;
    t->waits_for = nullptr;
    ++woken;
  }
  return woken;
}

void sleep_until(moment until) noexcept {
  static const char nothing = 0;
  if (until <= now()) return yield();
  block(&nothing, until);
}

moment now() noexcept {
  account();
  return clock_ns += 20;
}

moment of_this_thread() noexcept {
  account();
  return self->points * ns_per_point;
}

undisturbed::undisturbed() {
  if (held++ == 0) new_interval();
}
undisturbed::~undisturbed() {
  account();
  if (--held == 0) new_interval();
}

unsigned long begin_thread(void* (*f)(void*), void* argument) noexcept {
  thread& t = new_thread();
  t.run = f;
  t.argument = argument;
  if (!t.on.make(thread_main)) return 0;
  return t.on.handle();
}

void wait_ended(unsigned long handle) noexcept {
  // The latest of that handle: they are used again.
  for (auto it = threads.rbegin(); it != threads.rend(); ++it) {
    thread& t = **it;
    if (t.on.handle() != handle) continue;
    while (!t.ended) block(&t, never);
    t.on.release();
    return;
  }
}

void at_thread_end(destructor f, void* object) { self->at_end.emplace_back(f, object); }
void at_thread_end(unsigned key, destructor f) { keys.emplace_back(key, f); }
bool is_first_thread() noexcept { return self == threads.front().get(); }

void name_thread(const char* name) noexcept {
  if (self != nullptr) std::strncpy(self->name, name, sizeof self->name - 1);
}

outcome so_far() noexcept {
  result.at = clock_ns - begin_of_time;
  return result;
}

std::string thread_text() { return self == nullptr ? "none" : std::to_string(self->number) + " " + self->name; }

std::string threads_text() {
  std::string text;
  for (const auto& t : threads) {
    char line[200];
    const char* const is = t->ended                  ? "ended"
                           : t.get() == self         ? "runs"
                           : t->waits_for != nullptr ? "waits for"
                                                     : "can run";
    std::snprintf(
        line, sizeof line, "  thread %u %s: %s %p until %lld ns; %llu turns, %llu points\n", t->number, t->name, is,
        t->waits_for,
        t->waits_for == nullptr || t->until == never ? -1LL : static_cast<long long>(t->until - begin_of_time),
        static_cast<unsigned long long>(t->turns), static_cast<unsigned long long>(t->points));
    text += line;
  }
  return text;
}

}  // namespace fm::sim
