// Epochs: how farmem knows that nobody holds a raw pointer any more.
//
// A thread announces the current epoch while it is inside a section (an fm::scope, a full expression p->x, a slow
// path), and announces 0 outside. A stamp taken after a change is *passed* when every section that began before has
// ended: then whoever is inside a section now saw the change. Announcing costs no fence: the thread that wants to know
// pays for it with membarrier (os::heavy_fence), once per advance.
//
// Invariant: passed(s) implies that every section that could have read a word before the change that s was taken after
// has ended. Why it holds: the stamp is read with a read-modify-write, so the change is visible to whoever reads a
// later epoch. If a thread has read an older epoch and has not announced it yet when advance() looks, it has not read
// any word either. After the heavy fence it can only read the changed ones.
//
// A pause is the same announcement used the other way round: the gate keeps new outer sections from beginning, and
// the pause holds when every thread is outside. Pauses that do not succeed within their bound are abandoned.
//
// Thousands of threads may sleep. A thread of which many looks in a row found no section is watched no more: looks pass
// over it. Its next section finds that out after it has announced itself, as it finds the gate closed, and has the
// thread watched again. The flag is cleared at one look, and the thread is taken from the list at the next one, if that
// finds no section either. Between the two there is a heavy fence: a section that has not seen the flag cleared is seen
// by then.
//
// A section that is about to block is left: others would wait for it, and perhaps for what it waits for. For that, the
// barriers note what they hand out (hand_out), and section_break turns the notes into pins (section_break.h).
//
// Handles open sections for programs, and every layer from the cache up opens sections of its own; collector and
// evictor pause.
#pragma once

#include <atomic>
#include <farmem/base/histogram.h>
#include <farmem/base/pauses.h>
#include <farmem/base/units.h>
#include <farmem/detail/check.h>
#include <farmem/detail/sync.h>

namespace fm::detail {

class mutator;

constexpr std::size_t heaps_max = 64;  ///< heaps open at once in a process
/// Payloads that a thread's sections hand out before they cannot be left any more: a recursion of twenty levels with
/// three arrows each, or a scope with room for what containers reach in between. A longer scope blocks inside of its
/// section.
constexpr std::uint32_t handed_out_max = 64;

/// What farmem keeps of a thread. Reached through one thread_local; registered on first use, until the thread ends.
struct alignas(cache_line_bytes) thread_state {
  std::atomic<std::uint64_t> epoch{0};  ///< announced epoch, 0 outside every section
  alignas(8) std::uint32_t depth = 0;   ///< nesting of sections
  std::uint32_t handed_out = 0;         ///< payloads since the outermost section began; of more than fit, some are lost
  std::atomic<bool> watched{false};     ///< whether looks at sections include this thread; its own sections see to that
  bool registered = false;              ///< the registry's, under its lock
  bool collects = false;                ///< a heap's collector, which cannot wait for a collection
  std::uint8_t quiet_looks = 0;         ///< the registry's: looks in a row that found no section
  void* free_cells = nullptr;           ///< root cells (roots.h)
  std::uint32_t free_cell_count = 0;
  mutator* mutators[heaps_max] = {};  ///< this thread's allocation state in each heap
  // The registry's list, under its lock. It is linked by hand: a hook of Boost.Intrusive has no constexpr constructor, and every
  // section would pay for a thread_local that is not constant-initialised.
  thread_state* next = nullptr;
  thread_state* prev = nullptr;
  char* payloads[handed_out_max] = {};  ///< the first `handed_out` of them, if they are not too many; may be null
  /// The slot that this thread is about to reach while it has left its sections to wait: a root. Set before they are
  /// left, cleared after they were entered again; the snapshot's pause takes it.
  std::atomic<std::uint64_t> waits_for{0};
  /// 1: inside of a section, but reading no home copy, and about to look at its regions anew before it does.
  std::atomic<std::uint32_t> reads_nothing{0};
  // The section now open, for stats and for errors that must name who holds memory.
  std::atomic<const char*> file{nullptr};
  std::atomic<int> line{0};
};

extern thread_local constinit thread_state this_thread;

namespace epochs {

enum gate_bits : std::uint32_t {
  gate_pause = 1,   ///< a pause holds every new section back
  gate_forked = 2,  ///< this is a forked child: no heap may be used
  gate_memory = 4,  ///< some heap is short of memory: a user's section waits for eviction before it begins
};

extern std::atomic<std::uint64_t> current;  ///< from 1
extern std::atomic<std::uint64_t> passed_;  ///< all stamps below this are passed
extern std::atomic<std::uint32_t> gate;     ///< gate_bits: why an outer section may not begin at once

/// The cold half of enter: has the thread watched, waits out a pause, and for a user's section a shortage of memory.
void enter_slowly(thread_state& t, std::uint32_t obey) noexcept;

/// What a user's section does about a shortage before it begins, when it holds nothing that could stand in eviction's
/// way: waits a bounded time. Set by layer cache.
extern std::atomic<void (*)() noexcept> relieve;

/// Begins a section, or nests. Under 5 ns for an outer one, 2 ns nested. `obey`: the gate bits that hold it back;
/// eviction itself and acknowledgements do not wait for memory. `handed_out`: places for payloads that the caller notes
/// itself, null until then.
inline void enter(std::uint32_t obey = gate_pause | gate_forked, std::uint32_t handed_out = 0) noexcept {
  thread_state& t = this_thread;
  if (t.depth != 0) {
    ++t.depth;
    t.handed_out += handed_out;
    return;
  }
  t.depth = 1;
  t.handed_out = handed_out;
#if FM_TSAN
  t.epoch.exchange(current.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
  if (!t.watched.load(std::memory_order_seq_cst) || (gate.load(std::memory_order_seq_cst) & obey) != 0)
    enter_slowly(t, obey);
#else
  t.epoch.store(current.load(std::memory_order_acquire), std::memory_order_relaxed);
  os::light_fence();
  if (__builtin_expect(!t.watched.load(std::memory_order_relaxed), 0) ||
      __builtin_expect((gate.load(std::memory_order_relaxed) & obey) != 0, 0))
    enter_slowly(t, obey);
#endif
}

inline void leave() noexcept {
  thread_state& t = this_thread;
  FM_ASSERT(t.depth > 0, "a section is closed that was not open");
  if (--t.depth == 0) t.epoch.store(0, std::memory_order_release);
}

/// Notes a payload that a barrier gave, until the outermost section ends.
inline char* hand_out(char* payload) noexcept {
  thread_state& t = this_thread;
  t.payloads[t.handed_out % handed_out_max] = payload;
  ++t.handed_out;
  return payload;
}
/// Whether all that the sections have handed out is known. It stays as it is until the outermost one ends.
inline bool may_leave() noexcept { return this_thread.handed_out <= handed_out_max; }
/// Whether the sections have handed out nothing.
inline bool holds_nothing() noexcept {
  const thread_state& t = this_thread;
  for (std::uint32_t i = 0; i < t.handed_out; ++i)
    if (i == handed_out_max || t.payloads[i] != nullptr) return false;
  return true;
}
/// Ends a section of which nothing that it handed out is used any more; before it, `n` payloads were.
inline void leave_with(std::uint32_t n) noexcept {
  thread_state& t = this_thread;
  FM_ASSERT(t.depth > 0, "a section is closed that was not open");
  if (--t.depth == 0)
    t.epoch.store(0, std::memory_order_release);
  else if (t.handed_out <= handed_out_max)
    t.handed_out = n;
}
/// Ends the section of a temporary, which has handed out `payload`: that is not used any more, if no later one was
/// handed out.
inline void leave_with(const void* payload) noexcept {
  thread_state& t = this_thread;
  FM_ASSERT(t.depth > 0, "a section is closed that was not open");
  if (--t.depth == 0)
    t.epoch.store(0, std::memory_order_release);
  else if (t.handed_out - 1 < handed_out_max && t.payloads[t.handed_out - 1] == payload)
    --t.handed_out;
}
/// Nothing that the outer section has handed out is used any more. Has no effect in a nested one.
inline void take_back() noexcept {
  if (this_thread.depth == 1) this_thread.handed_out = 0;
}

/// Ends and begins the outer section at once: whatever it had handed out is gone. Only where nothing was.
void renew() noexcept;

/// A stamp for changes made before the call. It begins a new epoch, so that sections that begin from now on, which see
/// the changes, never hold the stamp up.
inline std::uint64_t stamp() noexcept { return current.fetch_add(1, std::memory_order_seq_cst); }

/// Whether every section that began before the stamp's changes has ended, as far as is known. Wait-free.
inline bool passed(std::uint64_t stamp) noexcept { return passed_.load(std::memory_order_acquire) > stamp; }

/// Tries to learn more: advances the epoch and looks at all threads once. Returns passed(stamp). Never waits.
bool try_pass(std::uint64_t stamp) noexcept;

/// Whether every section that began before the stamp has ended, or is of a thread that reads_nothing: for changes that
/// concern only who reads home copies. Never waits.
bool readers_passed(std::uint64_t stamp) noexcept;

/// Waits until the stamp is passed or the deadline; false on the deadline. Not inside a section.
bool wait_passed(std::uint64_t stamp, time_point deadline) noexcept;

/// Runs `work(context)` with every other thread outside of sections; false when they could not all be stopped within
/// `within` (nothing was run). After 250 us it gives its core away while it waits, so it may take longer than `within`
/// if others want the core. Not inside a section; one pause at a time. Also `work` must not enter a section.
bool pause(duration within, void (*work)(void*), void* context) noexcept;

/// What pauses cost, of all heaps of the process, since a pause stops all of its threads whoever asked for it.
pause_log& pauses() noexcept;
/// What user's sections waited at the gate for pauses: each wait of each thread is a sample.
histogram& gate_waits() noexcept;

/// Calls `visit` for every registered thread, under the registry lock.
void for_each_thread(void (*visit)(thread_state&, void*), void* context);

/// Adds a function that runs when a thread ends: layers hand over their buffers. At most four; the same one once.
void at_thread_end(void (*f)(thread_state&) noexcept);

/// The fm::scope that has been open for longest, in epochs: its place, for errors and stats. Null file when none.
struct section_site {
  const char* file = nullptr;
  int line = 0;
  std::uint64_t epochs = 0;
};
section_site oldest_section() noexcept;

}  // namespace epochs

/// What a user's section obeys.
constexpr std::uint32_t user_gate = epochs::gate_pause | epochs::gate_forked | epochs::gate_memory;

/// A section as a guard, for the library's own work.
class section {
 public:
  section() noexcept { epochs::enter(); }
  ~section() { epochs::leave(); }
  section(const section&) = delete;
  section& operator=(const section&) = delete;
};

/// A section in which the library reaches objects for user code: it begins only when there is memory for the misses
/// that it may have. No pointer that was handed out in it is used after it.
class user_section {
 public:
  user_section() noexcept {
    epochs::enter(user_gate);
    before_ = this_thread.handed_out;
  }
  ~user_section() { epochs::leave_with(before_); }
  user_section(const user_section&) = delete;
  user_section& operator=(const user_section&) = delete;

 private:
  std::uint32_t before_;
};

/// The section of a temporary that hands one payload out. Its place in the notes is taken when it begins: the first one
/// of an expression then reads nothing to find it.
class arrow_section {
 public:
  arrow_section() noexcept
      : place_(this_thread.payloads[this_thread.depth == 0 ? 0 : this_thread.handed_out % handed_out_max]) {
    place_ = nullptr;
    epochs::enter(user_gate, 1);
  }
  ~arrow_section() { epochs::leave_with(payload_); }
  arrow_section(const arrow_section&) = delete;
  arrow_section& operator=(const arrow_section&) = delete;

  void hand_out(const char* payload) noexcept { payload_ = place_ = const_cast<char*>(payload); }
  [[nodiscard]] const char* payload() const noexcept { return payload_; }

 private:
  char*& place_;
  char* payload_ = nullptr;
};

}  // namespace fm::detail
