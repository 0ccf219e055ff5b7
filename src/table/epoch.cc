// The cold half of epochs: registering threads, advancing, pauses, and waiting at the gate (farmem/detail/barriers/epoch.h).
//
// Invariants owned here
//   - A thread is in the registry from its first section until it ends, and its announcement is looked at all the
//     while.
//   - The registry's lock is taken when a thread comes or ends, and by whoever advances the epoch; never on a mutator's
//     path.
//   - The gate is closed for one pause at a time.
//   - A child after fork knows of the thread that forked alone, and its gate holds every section back until the child
//     has a heap of its own (heap/inherited.h).
#include "base/base.h"
#include "os/os.h"
#include "table/table.h"
#include <pthread.h>

#include <mutex>
#include <thread>

namespace fm::detail {

thread_local constinit thread_state this_thread;

namespace epochs {

std::atomic<std::uint64_t> current{1};
std::atomic<std::uint64_t> passed_{1};
std::atomic<std::uint32_t> gate{0};
std::atomic<void (*)() noexcept> relieve{nullptr};

namespace {

std::atomic<void (*)(thread_state&) noexcept> end_functions[4];

// The registry lock is taken when a thread comes or ends, and by whoever advances the epoch; never on a mutator's path.
struct thread_list {
  thread_state* first = nullptr;

  void add(thread_state& t) noexcept {
    t.next = first;
    t.prev = nullptr;
    if (t.next) t.next->prev = &t;
    first = &t;
  }
  void remove(thread_state& t) noexcept {
    (t.prev ? t.prev->next : first) = t.next;
    if (t.next) t.next->prev = t.prev;
    t.next = t.prev = nullptr;
  }
};
struct registry {
  std::mutex mutex;
  thread_list watched;  ///< may be in sections
  thread_list quiet;    ///< in none, and `watched` of each is false: their next sections come through watch()
};
registry& threads() {
  static auto* r = new registry;  // outlives every thread
  return *r;
}
std::mutex pause_mutex;
const os::fork_guard pauses_at_fork(
    os::fork_rank::pauses, []() noexcept { pause_mutex.lock(); }, []() noexcept { pause_mutex.unlock(); },
    []() noexcept {
      new (&pauses()) pause_log;  // its lock may have been held
      pause_mutex.unlock();
    });

/// Some thread has had a section in this process or in one that it was forked from.
std::atomic<bool> any_section{false};

// Of the threads that had sections, a child has the one that forked, without what it was to the heaps of its parent.
void only_this_thread() noexcept {
  thread_state& t = this_thread;
  threads().watched.first = t.registered ? &t : nullptr;
  threads().quiet.first = nullptr;
  t.next = t.prev = nullptr;
  t.watched.store(t.registered, std::memory_order_relaxed);
  t.quiet_looks = 0;
  t.collects = false;
  t.waits_for.store(0, std::memory_order_relaxed);
  t.reads_nothing.store(0, std::memory_order_relaxed);
  for (mutator*& m : t.mutators) m = nullptr;
  // A child that touches a heap of its parent must fail loudly instead of corrupting it; one that only execs never asks.
  gate.store(any_section.load(std::memory_order_relaxed) ? std::uint32_t{gate_forked} : 0, std::memory_order_relaxed);
  threads().mutex.unlock();
}
pthread_key_t end_key();
const os::fork_guard threads_at_fork(
    os::fork_rank::threads,
    []() noexcept {
      (void)end_key();  // not at load: a simulation has keys of its own by the time when the first heap is opened
      threads().mutex.lock();
    },
    []() noexcept { threads().mutex.unlock(); }, only_this_thread);

/// Which list a registered thread is in, under the lock: it is taken from the first at a count that no other thread has.
bool is_quiet(const thread_state& t) { return t.quiet_looks == limits::looks_until_quiet; }

void end_thread(void* state) {
  thread_state& t = *static_cast<thread_state*>(state);
  for (auto& f : end_functions)
    if (auto* run = f.load(std::memory_order_acquire)) run(t);
  const std::lock_guard lock(threads().mutex);
  (is_quiet(t) ? threads().quiet : threads().watched).remove(t);
  t.registered = false;
  t.quiet_looks = 0;
  t.watched.store(false, std::memory_order_relaxed);
  t.epoch.store(0, std::memory_order_release);
}

// A pthread key and not a thread_local with a destructor: its destructor runs after those of every thread_local, which
// may still use handles, and again if one of those registered the thread anew.
pthread_key_t end_key() {
  static const pthread_key_t key = [] {
    pthread_key_t k{};
    FM_CHECK(pthread_key_create(&k, end_thread) == 0, "pthread_key_create");
    return k;
  }();
  return key;
}

const os::at_load made_at_load([]() noexcept {
  pauses();
  gate_waits();
});

/// Has a thread watched that is about to begin a section: a new one, or one that has been quiet for long.
void watch(thread_state& t) {
  t.epoch.store(0, std::memory_order_release);  // what it announced may be old by the time when it has the lock
  if (!t.registered) {
    FM_CHECK(pthread_setspecific(end_key(), &t) == 0, "pthread_setspecific");
    os::heavy_fence();  // registers the process for membarrier before anybody relies on it
    any_section.store(true, std::memory_order_relaxed);
  }
  const std::lock_guard lock(threads().mutex);
  const bool is_listed = t.registered && !is_quiet(t);
  if (is_quiet(t)) threads().quiet.remove(t);
  if (!is_listed) threads().watched.add(t);
  t.registered = true;
  t.quiet_looks = 0;
  t.watched.store(true, FM_TSAN ? std::memory_order_seq_cst : std::memory_order_relaxed);
}

/// Notes what a look has found, which follows a heavy fence: whether the thread is in a section. Under the lock.
void note_look(thread_state& t, bool in_section) {
  constexpr auto order = FM_TSAN ? std::memory_order_seq_cst : std::memory_order_relaxed;
  if (in_section) {
    t.quiet_looks = 0;
    if (!t.watched.load(std::memory_order_relaxed)) t.watched.store(true, order);
    return;
  }
  ++t.quiet_looks;
  if (t.quiet_looks + 1 == limits::looks_until_quiet) t.watched.store(false, order);
  if (!is_quiet(t)) return;
  threads().watched.remove(t);
  threads().quiet.add(t);
}

std::uint64_t announced(const thread_state& t) {
  return t.epoch.load(FM_TSAN ? std::memory_order_seq_cst : std::memory_order_acquire);
}

}  // namespace

void enter_slowly(thread_state& t, std::uint32_t obey) noexcept {
  bool relieved = false;
  time_point held_since{};
  for (;;) {
    if (!t.watched.load(std::memory_order_relaxed)) watch(t);
    t.epoch.exchange(current.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
    if (!t.watched.load(std::memory_order_seq_cst)) continue;  // it was held back here for many looks
    const std::uint32_t holds = gate.load(std::memory_order_seq_cst) & obey;
    FM_CHECK((holds & gate_forked) == 0,
             "a forked child uses a heap of its parent before it has opened one of its own");
    if ((holds & gate_pause) == 0 && held_since != time_point{}) {
      gate_waits().add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - held_since).count()));
      held_since = {};
    }
    // A shortage is waited out once: the allocation that still finds no memory then says why.
    if (holds == 0 || (holds == gate_memory && relieved)) return;
    t.epoch.store(0, std::memory_order_release);
    if ((holds & gate_pause) != 0) {
      if ((obey & gate_memory) != 0 && held_since == time_point{}) held_since = clock::now();
      os::futex_wait(gate, gate.load(std::memory_order_relaxed) | gate_pause,
                     clock::now() + std::chrono::milliseconds(10));
    } else {
      // Eviction begins sections of its own; the section that is to begin may have taken its place for a payload.
      const std::uint32_t handed_out = t.handed_out;
      --t.depth;
      if (auto* f = relieve.load(std::memory_order_acquire)) f();
      ++t.depth;
      t.payloads[0] = nullptr;
      t.handed_out = handed_out;
      relieved = true;
    }
  }
}

void renew() noexcept {
  thread_state& t = this_thread;
  FM_ASSERT(t.depth == 1, "only an outer section can be renewed");
  leave();
  enter(user_gate);
  (void)t;
}

bool try_pass(std::uint64_t stamp) noexcept {
  if (passed(stamp)) return true;
  const std::lock_guard lock(threads().mutex);
  if (passed(stamp)) return true;
  if (current.load(std::memory_order_relaxed) <= stamp) current.fetch_add(1, std::memory_order_seq_cst);
  std::uint64_t oldest = current.load(std::memory_order_seq_cst);
  os::heavy_fence();
  for (thread_state *t = threads().watched.first, *next = nullptr; t; t = next) {
    next = t->next;
    const std::uint64_t e = announced(*t);
    if (e != 0 && e < oldest) oldest = e;
    note_look(*t, e != 0);
  }
  // Every open section began at `oldest` or later: stamps below it are passed.
  if (oldest > passed_.load(std::memory_order_relaxed)) passed_.store(oldest, std::memory_order_release);
  return passed(stamp);
}

bool readers_passed(std::uint64_t stamp) noexcept {
  if (try_pass(stamp)) return true;
  const std::lock_guard lock(threads().mutex);
  // A thread that is seen to read nothing here, and goes on to read, looks at the regions after this fence, hence after
  // the change.
  os::heavy_fence();
  for (thread_state* t = threads().watched.first; t; t = t->next) {
    if (t->reads_nothing.load(FM_TSAN ? std::memory_order_seq_cst : std::memory_order_acquire) != 0) continue;
    if (const std::uint64_t e = announced(*t); e != 0 && e <= stamp) return false;
  }
  return true;
}

bool wait_passed(std::uint64_t stamp, time_point deadline) noexcept {
  static os::spin_place place;
  os::spin spin(place, limits::pass_spin);
  os::nap nap(limits::pass_nap_first, limits::pass_nap_most);
  while (!try_pass(stamp)) {
    if (spin.again()) {
      for (int i = 0; i < 16; ++i) cpu_relax();
      continue;
    }
    const time_point now = clock::now();
    if (now >= deadline) return false;
    // Sections are short and their ends are not announced: looking again after a moment is the protocol.
    std::atomic<std::uint32_t> never{0};
    os::futex_wait(never, 0, std::min(deadline, now + nap.next()));
  }
  return true;
}

bool pause(duration within, void (*work)(void*), void* context) noexcept {
  const std::lock_guard one(pause_mutex);
  const time_point begin = clock::now();
  gate.fetch_or(gate_pause, std::memory_order_seq_cst);
  os::heavy_fence();
  const time_point closed = clock::now();
  bool stopped = false;
  duration waited{};
  do {
    stopped = true;
    {
      const std::lock_guard lock(threads().mutex);
      for (thread_state* t = threads().watched.first; t && stopped; t = t->next) stopped = announced(*t) == 0;
    }
    if (stopped) break;
    waited = clock::now() - closed;
    // A section is over in no time, unless its thread has no core: it may be waiting for this one.
    if (waited < limits::pause_spin)
      cpu_relax();
    else
      std::this_thread::yield();
  } while (waited < within);
  if (stopped) work(context);
  gate.fetch_and(~gate_pause, std::memory_order_seq_cst);
  os::futex_wake(gate, 1 << 30);
  pauses().add({begin, static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()), !stopped});
  return stopped;
}

pause_log& pauses() noexcept {
  static pause_log log;
  return log;
}

histogram& gate_waits() noexcept {
  static histogram waits;
  return waits;
}

void for_each_thread(void (*visit)(thread_state&, void*), void* context) {
  const std::lock_guard lock(threads().mutex);
  for (const thread_list* list : {&threads().watched, &threads().quiet})
    for (thread_state* t = list->first; t; t = t->next) visit(*t, context);
}

void at_thread_end(void (*f)(thread_state&) noexcept) {
  const std::lock_guard lock(threads().mutex);
  for (auto& place : end_functions) {
    if (place.load() == f) return;
    if (place.load() != nullptr) continue;
    place.store(f, std::memory_order_release);
    return;
  }
  FM_CHECK(false, "more than four functions at thread end");
}

section_site oldest_section() noexcept {
  section_site s;
  const std::uint64_t now = current.load(std::memory_order_relaxed);
  const std::lock_guard lock(threads().mutex);
  for (thread_state* t = threads().watched.first; t; t = t->next) {
    const std::uint64_t e = announced(*t);
    const char* file = t->file.load(std::memory_order_relaxed);
    if (e == 0 || !file || (s.file && now - e <= s.epochs)) continue;
    s = {file, t->line.load(std::memory_order_relaxed), now - e};
  }
  return s;
}

}  // namespace epochs
}  // namespace fm::detail
