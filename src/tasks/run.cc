// Awaiting in coroutines: awaits of fetches and of events, and the run loop that resumes them (farmem/tasks/run.h,
// farmem/tasks/await.h, farmem/detail/event.h).
//
// Invariants owned here
//   - Nothing of a heap is looked at that was closed meanwhile.
//   - A coroutine is resumed on the thread of its loop, outside of every section. Before each wait the loop notes how
//     far the heaps and the bell are, so an end that comes after its look ends the wait.
//
// Called by fm::run, fm::run_all and co_await.
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include <farmem/tasks/run.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fm::detail {

namespace {

// Reached through functions only: a coroutine that moves between threads must not keep the address of a thread_local.
thread_local run_loop* innermost = nullptr;

os::spin_place idle_place;    // learns whether polling pays for loops that have nothing to resume
os::spin_place gather_place;  // learns whether gathering does: not where a fetch is a copy, or coroutines run for long

}  // namespace

void refuse_inside_scope(const char* what) {
  const thread_state& t = this_thread;
  if (t.depth == 0) return;
  if (const char* file = t.file.load(std::memory_order_relaxed))
    throw error(errc::scope_misuse,
                fmt::format("{} while the fm::scope, cursor or walk of {}:{} is open on this thread: close it first",
                            what, file, t.line.load(std::memory_order_relaxed)));
  throw error(errc::scope_misuse, fmt::format("{} in an expression that reads in place (p->x), and holds it until its "
                                              "end: put the handle into a variable first",
                                              what));
}

// ---- one await ----

fetch_wait::fetch_wait(slot_t slot) {
  state_.slot = slot;
  if (slot != 0) root_ = roots::make(slot);
}

fetch_wait::~fetch_wait() {
  if (payload_) frame::prefix(payload_).pins.fetch_sub(1, std::memory_order_release);
  if (root_) roots::drop(root_);
}

void fetch_wait::look_once() {
  if (root_ && roots::get(root_) == 0)
    throw error(errc::heap_closed, fmt::format("the heap of slot {:#x} was closed while it was awaited", state_.slot));
  payload_ = detached_fetches::look_for(state_);
}

bool fetch_wait::look() noexcept {
  try {
    look_once();
  } catch (...) {
    error_ = std::current_exception();
  }
  return payload_ || error_;
}

bool fetch_wait::await_ready() {
  refuse_inside_scope("co_await of a fetch");
  run_loop* loop = run_loop::current();
  if (!loop) {
    const user_section in_section;
    payload_ = const_cast<char*>(read_barrier(state_.slot));
    pin_frame(payload_);
    return true;
  }
  // Those that wait for a place to fetch in came first. What is here needs none.
  if (state_.slot != 0 && !word::is_resident(word_at(state_.slot).load(std::memory_order_acquire)) && loop->queues())
    return false;
  return look();
}

void fetch_wait::await_suspend(std::coroutine_handle<> h) {
  coroutine_ = h;
  const bool posted =
      state_.why == holdup::fetch || state_.why == holdup::others_fetch || state_.why == holdup::connection;
  run_loop::current()->add(*this, posted);
}

char* fetch_wait::take() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::exchange(payload_, nullptr);
}

bool event_wait::await_ready() {
  refuse_inside_scope("co_await of something outside");
  if (event_->has_happened()) return true;
  if (run_loop::current()) return false;
  while (!event_->wait(time_point::max())) {
  }
  return true;
}

void event_wait::await_suspend(std::coroutine_handle<> h) {
  coroutine_ = h;
  run_loop::current()->add(*this);
  event_->tell(run_loop::current()->door());
}

// ---- the loop ----

run_loop::run_loop() : outer_(innermost) {
  refuse_inside_scope("fm::run");
  innermost = this;
}

run_loop::~run_loop() { innermost = outer_; }

run_loop* run_loop::current() noexcept { return innermost; }

void run_loop::add(fetch_wait& w, bool posted) noexcept {
  (posted ? in_flight_ : queued_).push_back(w);
  if (posted || gathering_since_ == time_point{}) return;
  if (++gathered_ == limits::gathered_most || clock::now() - gathering_since_ > limits::gather_for) post_queued();
}

bool run_loop::begins_gathering() noexcept {
  if (!gather_place.lets_spin()) return false;
  gathering_since_ = clock::now();
  gathered_ = 0;
  return true;
}

/// Those that have just queued, in one call: over TCP each by itself costs a system call here and one at the agent.
void run_loop::post_queued() noexcept {
  const time_point since = std::exchange(gathering_since_, time_point{});
  std::array<awaited*, limits::gathered_most> gathered;
  std::size_t n = 0;
  for (fetch_wait& w : queued_) {
    if (n == gathered.size()) break;
    if (awaited* const a = w.unposted()) gathered[n++] = a;
  }
  const std::size_t on_their_way = n < 2 ? 0 : detached_fetches::post_together({gathered.data(), n});
  if (since == time_point{}) return;
  if (on_their_way >= 2 && clock::now() - since <= 4 * limits::gather_for)
    gather_place.paid();
  else
    gather_place.in_vain();
}

void run_loop::resume_ready() {
  while (!ready_.empty()) {
    fetch_wait& w = ready_.front();
    ready_.pop_front();
    w.resume();  // may end and destroy it, and others
    FM_CHECK(this_thread.depth == 0, "a coroutine was suspended inside of an open scope");
  }
}

// A heap may have been closed meanwhile, such as by one of the coroutines here: then nothing of it may be looked at.
void run_loop::add_heap(const fetch_wait& w) {
  if (!w.heap_open()) return;
  object_cache* c = w.state().cache;
  if (std::none_of(heaps_.begin(), heaps_.end(), [&](const seen& s) { return s.cache == c; }))
    heaps_.push_back({c, 0, 0, false, true});
}

void run_loop::note(const fetch_wait& w) {
  const awaited& a = w.state();
  auto at = std::find_if(heaps_.begin(), heaps_.end(), [&](const seen& s) { return s.cache == a.cache; });
  if (at == heaps_.end()) return;
  at->memory |= a.why == holdup::memory;
  at->ours &= a.why == holdup::fetch || a.why == holdup::records;
}

// Those that have happened; others may be added, or destroyed, by those that are resumed.
bool run_loop::resume_events() {
  rings_seen_ = door_->rings.load(std::memory_order_seq_cst);
  event_list happened;
  for (auto i = event_waits_.begin(); i != event_waits_.end();) {
    event_wait& w = *i++;
    if (!w.ready()) continue;
    w.unlink();
    happened.push_back(w);
  }
  const bool any = !happened.empty();
  while (!happened.empty()) {
    event_wait& w = happened.front();
    happened.pop_front();
    w.resume();
    FM_CHECK(this_thread.depth == 0, "a coroutine was suspended inside of an open scope");
  }
  return any;
}

bool run_loop::look_at(fetch_wait& w) {
  if (w.look()) {
    w.unlink();
    ready_.push_back(w);
    return true;
  }
  note(w);
  return false;
}

bool run_loop::look() {
  // Before looking: what ends after it, ends the sleep.
  for (seen& s : heaps_)
    s = {s.cache, s.cache->detached().completions(), s.cache->memory().release_count(), false, true};
  for (auto i = in_flight_.begin(); i != in_flight_.end();) look_at(*i++);
  if (!queued_.empty() && queued_.front().state().why != holdup::memory) post_queued();
  while (!queued_.empty()) {
    fetch_wait& w = queued_.front();
    if (look_at(w)) continue;
    if (w.state().why == holdup::records || w.state().why == holdup::memory) break;
    w.unlink();
    in_flight_.push_back(w);
  }
  return !ready_.empty();
}

void run_loop::turn() {
  if (!ready_.empty()) return resume_ready();
  if (!event_waits_.empty() && resume_events()) return;
  if (in_flight_.empty() && queued_.empty()) {
    // A ring after the look above ends the sleep; an event has a deadline of its own.
    if (!event_waits_.empty()) os::futex_wait(door_->rings, rings_seen_, clock::now() + std::chrono::milliseconds(100));
    return;
  }
  heaps_.clear();
  for (const fetch_wait& w : in_flight_) add_heap(w);
  if (!queued_.empty()) add_heap(queued_.front());
  if (look()) {
    if (std::exchange(spins_, false) && idle_since_ != time_point{}) idle_place.paid();
    idle_since_ = {};
    return resume_ready();
  }
  std::size_t done = 0;
  for (const seen& s : heaps_) done += s.cache->detached().poll();
  if (done == 0) idle();
}

void run_loop::idle() {
  const time_point now = clock::now();
  if (idle_since_ == time_point{}) {
    idle_since_ = now;
    spins_ = idle_place.lets_spin();
  }
  bool evicted = false;
  for (const seen& s : heaps_) evicted = s.cache->eviction().help() || evicted;
  if (evicted) return;
  if (spins_) {
    if (now - idle_since_ < limits::spin_for) return cpu_relax();
    spins_ = false;
    idle_place.in_vain();
  }
  if (heaps_.empty()) return;
  const seen& s = heaps_.front();
  const bool woken = heaps_.size() == 1 && s.ours;
  const time_point until = now + (woken ? duration(limits::sleep_at_most) : duration(limits::look_again_after));
  if (s.memory)
    s.cache->pressure().sleep_until_released(s.releases, until);
  else
    s.cache->detached().sleep_until_completed(s.completions, until);
}

}  // namespace fm::detail
