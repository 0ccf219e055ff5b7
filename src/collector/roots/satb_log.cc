// The threads' SATB logs, and the queue of full ones. See satb_log.h for who takes them.
//
// Invariants owned here
//   - Every reference that a thread overwrites while `marking` is set is in its log or in the queue until the collector
//     takes it. If a thread logs a slot again that it has logged in this cycle, it may leave that out.
//   - A log lives until its thread ends. Then the queue has its contents, and another thread may use it.
//
// log_overwritten is called by any thread, inside or outside of a section.
#include "satb_log.h"

#include "base/base.h"
#include "base/limits.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

namespace fm::detail {

std::atomic<std::uint32_t> marking{0};

namespace {

struct satb_log {
  std::uint32_t count = 0;
  std::array<slot_t, limits::log_slots> slots;
  std::array<slot_t, limits::recent_slots> recent{};  ///< what was logged in this cycle, by hash: not logged again
};

thread_local constinit satb_log* mine = nullptr;

struct shared_logs {
  std::mutex mutex;  ///< leaf; taken once a log, not once a store
  std::vector<std::unique_ptr<satb_log>> all;
  std::vector<satb_log*> unused;  ///< of threads that ended
  std::vector<slot_t> full;       ///< what full logs held
};
shared_logs& shared() {
  static auto* s = new shared_logs;  // outlives every thread
  return *s;
}

void take(satb_log& log, std::vector<slot_t>& out) {
  out.insert(out.end(), log.slots.begin(), log.slots.begin() + log.count);
  log.count = 0;
}

void hand_over(thread_state&) noexcept {
  if (!mine) return;
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  take(*mine, s.full);
  s.unused.push_back(mine);
  mine = nullptr;
}

satb_log& new_log() {
  epochs::at_thread_end(hand_over);
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  if (!s.unused.empty()) {
    mine = s.unused.back();
    s.unused.pop_back();
  } else {
    s.all.push_back(std::make_unique<satb_log>());
    mine = s.all.back().get();
  }
  return *mine;
}

}  // namespace

void log_overwritten(slot_t slot) noexcept {
  if (slot == 0 || mutated(mutation::log_nothing)) return;
  const section in_section;
  if (marking.load(std::memory_order_relaxed) == 0) return;
  satb_log& log = mine ? *mine : new_log();
  slot_t& recent = log.recent[(slot ^ (slot >> 11)) % limits::recent_slots];
  if (recent == slot) return;
  recent = slot;
  log.slots[log.count++] = slot;
  if (log.count < limits::log_slots) return;
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  take(log, s.full);
}

namespace satb {

void begin() noexcept {
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  for (const auto& log : s.all) {
    log->count = 0;
    log->recent.fill(0);
  }
  s.full.clear();
  marking.store(1, std::memory_order_seq_cst);
}

void end() noexcept { marking.store(0, std::memory_order_seq_cst); }

void take_full(std::vector<slot_t>& out) {
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  out.insert(out.end(), s.full.begin(), s.full.end());
  s.full.clear();
}

void take_all(std::vector<slot_t>& out) {
  shared_logs& s = shared();
  const std::lock_guard lock(s.mutex);
  for (const auto& log : s.all) take(*log, out);
  out.insert(out.end(), s.full.begin(), s.full.end());
  s.full.clear();
}

}  // namespace satb
}  // namespace fm::detail
