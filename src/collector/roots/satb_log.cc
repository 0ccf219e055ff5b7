// The threads' SATB logs, the stack of full chunks, and the bits. See satb_log.h for who takes them.
//
// Invariants owned here
//   - Every reference that a thread overwrites while `marking` is set is in its log, on the stack or a bit until the
//     collector takes it. If a thread logs a slot again that it has logged in this cycle, it may leave that out.
//   - Logging waits for nothing and cannot fail: when there is no memory, or all chunks are in use, the slot becomes a
//     bit, in memory that was reserved before marking began.
//   - There are at most limits::log_chunks_max chunks. Each is a thread's, on the stack, or the collector's.
//   - The stack is pushed to by any thread, without a lock, and taken as a whole by the collector: nobody takes a single
//     chunk, so that none comes back under another's comparison.
//   - A log lives until its thread ends. Then the stack has its chunk, and another thread may use the log.
//   - Bits that are left when a cycle ends were of no use; a later one at most keeps garbage because of them.
//
// log_overwritten is called by any thread, inside or outside of a section.
#include "satb_log.h"

#include "base/base.h"
#include "base/limits.h"
#include "os/os.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace fm::detail {

std::atomic<std::uint32_t> marking{0};

namespace {

struct satb_chunk {
  satb_chunk* next = nullptr;  ///< on the stack, or among those that the collector took
  std::uint32_t count = 0;
  std::array<slot_t, limits::log_slots> slots;  // without contents: a chunk is made while a thread stores
};

struct satb_log {
  satb_chunk* chunk = nullptr;                        ///< null: there was none to be had
  std::array<slot_t, limits::recent_slots> recent{};  ///< what was logged in this cycle, by hash: not logged again
  satb_log* next = nullptr;                           ///< of all
  satb_log* next_unused = nullptr;                    ///< of those whose threads ended
};

thread_local constinit satb_log* own_log = nullptr;

/// A bit for each slot of the table, and a flag for each tablet that may have some. Untouched pages cost no memory.
class logged_bits {
 public:
  logged_bits() : words_(hit.slots / 8, page_bytes), flags_(hit.slots / tablet_slots, page_bytes) {}

  void set(slot_t slot) noexcept {
    word(slot / 64).fetch_or(std::uint64_t{1} << (slot % 64), std::memory_order_relaxed);
    // After the bit: whoever takes the flag looks at the bits then.
    flag(tablet_of(slot)).store(1, std::memory_order_release);
    any_.store(1, std::memory_order_release);
    if (touched_.load(std::memory_order_relaxed) == 0) touched_.store(1, std::memory_order_relaxed);
  }
  template <class F>
  std::uint64_t take(std::span<const std::uint32_t> tablets, F&& f) {
    if (any_.exchange(0, std::memory_order_acq_rel) == 0) return 0;
    std::uint64_t n = 0;
    for (const std::uint32_t t : tablets) {
      if (flag(t).load(std::memory_order_acquire) == 0 || flag(t).exchange(0, std::memory_order_acq_rel) == 0) continue;
      for (std::uint64_t w = t * words_per_tablet; w < (t + std::uint64_t{1}) * words_per_tablet; ++w) {
        if (word(w).load(std::memory_order_relaxed) == 0) continue;
        for (std::uint64_t b = word(w).exchange(0, std::memory_order_acq_rel); b != 0; b &= b - 1, ++n)
          f(w * 64 + static_cast<std::uint64_t>(__builtin_ctzll(b)));
      }
    }
    return n;
  }
  /// In a pause: clears those that `keep` does not want; whether there are others. In one word at a time, so that what
  /// is set again is not looked at twice.
  template <class F>
  bool keep_if(std::span<const std::uint32_t> tablets, F&& keep) noexcept {
    if (any_.load(std::memory_order_acquire) == 0) return false;
    bool any = false;
    for (const std::uint32_t t : tablets) {
      if (flag(t).load(std::memory_order_acquire) == 0) continue;
      for (std::uint64_t w = t * words_per_tablet; w < (t + std::uint64_t{1}) * words_per_tablet; ++w) {
        std::uint64_t kept = 0;
        for (std::uint64_t b = word(w).load(std::memory_order_relaxed); b != 0; b &= b - 1)
          if (keep(w * 64 + static_cast<std::uint64_t>(__builtin_ctzll(b)))) kept |= b & (~b + 1);
        if (kept != word(w).load(std::memory_order_relaxed)) word(w).store(kept, std::memory_order_relaxed);
        any |= kept != 0;
      }
    }
    return any;
  }
  /// Gives the memory back. Bits that are set meanwhile may be lost or stay.
  void discard() noexcept {
    if (touched_.exchange(0, std::memory_order_relaxed) == 0) return;
    os::reservation::discard(words_.base(), words_.bytes());
    os::reservation::discard(flags_.base(), flags_.bytes());
  }

 private:
  static constexpr std::uint64_t words_per_tablet = tablet_slots / 64;
  using atomic_word = std::atomic<std::uint64_t>;
  using atomic_flag_byte = std::atomic<std::uint8_t>;
  static_assert(sizeof(atomic_word) == 8 && sizeof(atomic_flag_byte) == 1);
  [[nodiscard]] atomic_word& word(std::uint64_t w) const noexcept {
    return reinterpret_cast<atomic_word*>(words_.base())[w];
  }
  [[nodiscard]] atomic_flag_byte& flag(std::uint32_t t) const noexcept {
    return reinterpret_cast<atomic_flag_byte*>(flags_.base())[t];
  }
  os::reservation words_, flags_;
  std::atomic<std::uint32_t> any_{0};      ///< some flag may be set
  std::atomic<std::uint32_t> touched_{0};  ///< memory is used
};

struct shared_logs {
  std::mutex mutex;            ///< leaf; taken when a thread gets a log or ends, and in pauses
  satb_log* all = nullptr;     ///< never freed
  satb_log* unused = nullptr;  ///< of threads that ended
  std::atomic<satb_chunk*> full{nullptr};
  satb_chunk* spent = nullptr;  ///< to be freed, outside of pauses; the collector's
  std::atomic<std::uint32_t> chunks{0};
  std::atomic<std::uint64_t> overflowed{0};
  std::atomic<logged_bits*> bits{nullptr};  ///< from the first prepare() on
};
shared_logs& shared() {
  static auto* s = new shared_logs;  // outlives every thread
  return *s;
}
const os::fork_guard logs_at_fork(
    os::fork_rank::leaves, []() noexcept { shared().mutex.lock(); }, []() noexcept { shared().mutex.unlock(); },
    []() noexcept {
      marking.store(0, std::memory_order_relaxed);  // the cycle is the parent's
      shared().mutex.unlock();
    });

void set_bit(shared_logs& s, slot_t slot) noexcept {
  // What is no slot of the table was no reference.
  if (slot < hit.slots) s.bits.load(std::memory_order_acquire)->set(slot);
}

void push_full(shared_logs& s, satb_chunk* c) noexcept {
  c->next = s.full.load(std::memory_order_relaxed);
  while (!s.full.compare_exchange_weak(c->next, c, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

satb_chunk* make_chunk(shared_logs& s) noexcept {
  satb_chunk* c = nullptr;
  if (s.chunks.fetch_add(1, std::memory_order_relaxed) < limits::log_chunks_max) c = new (std::nothrow) satb_chunk;
  if (c == nullptr) s.chunks.fetch_sub(1, std::memory_order_relaxed);
  return c;
}

void free_chunk(shared_logs& s, satb_chunk* c) noexcept {
  delete c;
  s.chunks.fetch_sub(1, std::memory_order_relaxed);
}

void free_spent(shared_logs& s) noexcept {
  while (s.spent != nullptr) free_chunk(s, std::exchange(s.spent, s.spent->next));
}

/// Of all chunks that are full: `f(chunk)`, and then it is spent.
template <class F>
void take_full(shared_logs& s, F&& f) {
  struct chain {
    shared_logs& s;
    satb_chunk* next;
    satb_chunk* pop() noexcept {
      satb_chunk* const c = next;
      next = c->next;
      c->next = s.spent;
      s.spent = c;
      return c;
    }
    ~chain() {
      while (next != nullptr) pop();  // after an exception
    }
  } taken{s, s.full.exchange(nullptr, std::memory_order_acquire)};
  while (taken.next != nullptr) f(*taken.pop());
}

void end_log(thread_state&) noexcept {
  if (!own_log) return;
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);  // a pause may be looking at the log: the thread is in no section
  if (satb_chunk* const c = std::exchange(own_log->chunk, nullptr)) push_full(s, c);
  own_log->next_unused = s.unused;
  s.unused = own_log;
  own_log = nullptr;
}

satb_log* new_log(shared_logs& s) noexcept {
  epochs::at_thread_end(end_log);
  const std::lock_guard lock(s.mutex);
  if (s.unused) {
    own_log = s.unused;
    s.unused = own_log->next_unused;
  } else if (auto* made = new (std::nothrow) satb_log; made != nullptr) {
    made->next = s.all;
    s.all = own_log = made;
  }
  return own_log;
}

/// For who has no chunk.
[[gnu::noinline]] void overflow(shared_logs& s, slot_t slot) noexcept {
  set_bit(s, slot);
  s.overflowed.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void log_overwritten(slot_t slot) noexcept {
  if (slot == 0 || mutated(mutation::log_nothing)) return;
  const section in_section;
  if (marking.load(std::memory_order_relaxed) == 0) return;
  shared_logs& s = shared();
  satb_log* const log = own_log ? own_log : new_log(s);
  if (log == nullptr) return overflow(s, slot);
  slot_t& recent = log->recent[(slot ^ (slot >> 11)) % limits::recent_slots];
  if (recent == slot) return;
  recent = slot;
  if (log->chunk == nullptr && (log->chunk = make_chunk(s)) == nullptr) return overflow(s, slot);
  satb_chunk& c = *log->chunk;
  c.slots[c.count++] = slot;
  if (c.count == limits::log_slots) push_full(s, std::exchange(log->chunk, nullptr));
}

void log_unpinned(slot_t slot) noexcept {
  if (!mutated(mutation::unpin_without_log)) log_overwritten(slot);
}

namespace satb {

void prepare() {
  shared_logs& s = shared();
  take_full(s, [](satb_chunk&) {});  // of threads that ended since
  free_spent(s);
  if (s.bits.load(std::memory_order_acquire) == nullptr)
    s.bits.store(new logged_bits, std::memory_order_release);  // one collection at a time prepares
}

void begin() noexcept {
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  take_full(s, [](satb_chunk&) {});
  for (satb_log* log = s.all; log; log = log->next) {
    if (log->chunk) log->chunk->count = 0;
    log->recent.fill(0);
  }
  marking.store(1, std::memory_order_seq_cst);
}

void end() noexcept { marking.store(0, std::memory_order_seq_cst); }

void discard() noexcept {
  shared_logs& s = shared();
  take_full(s, [](satb_chunk&) {});
  free_spent(s);
  if (logged_bits* b = s.bits.load(std::memory_order_acquire)) b->discard();
}

void set_aside() noexcept {
  shared_logs& s = shared();
  take_full(s, [&](const satb_chunk& c) {
    for (std::uint32_t i = 0; i < c.count; ++i) set_bit(s, c.slots[i]);
  });
  free_spent(s);
}

std::uint64_t take(std::span<const std::uint32_t> tablets, visit_slot visit, void* context) {
  shared_logs& s = shared();
  std::uint64_t n = 0;
  take_full(s, [&](const satb_chunk& c) {
    for (std::uint32_t i = 0; i < c.count; ++i) visit(c.slots[i], context);
    n += c.count;
  });
  free_spent(s);
  return n + s.bits.load(std::memory_order_acquire)->take(tablets, [&](slot_t slot) { visit(slot, context); });
}

bool take_rest(std::span<const std::uint32_t> tablets, bool (*keep)(slot_t, void*), void* context) noexcept {
  shared_logs& s = shared();
  bool any = s.bits.load(std::memory_order_acquire)->keep_if(tablets, [&](slot_t slot) { return keep(slot, context); });
  const auto look_at = [&](satb_chunk& c) {
    for (std::uint32_t i = 0; i < c.count; ++i)
      if (keep(c.slots[i], context)) {
        set_bit(s, c.slots[i]);
        any = true;
      }
    c.count = 0;
  };
  const std::lock_guard lock(s.mutex);  // a thread that ends moves its chunk to the stack
  take_full(s, look_at);
  for (satb_log* log = s.all; log; log = log->next)
    if (log->chunk) look_at(*log->chunk);
  return any;
}

std::uint64_t overflowed() noexcept { return shared().overflowed.load(std::memory_order_relaxed); }

}  // namespace satb
}  // namespace fm::detail
