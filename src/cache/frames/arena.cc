// The queues of segments and their memory; see arena.h.
//
// Invariant: everything that changes a queue, the runs or the number of backed segments holds the arena's lock; the
// numbers that are read without it are atomic.
#include "arena.h"

#include <algorithm>
#include <bit>

#include "policy.h"
#include "retire_frame.h"

namespace fm::detail {

namespace {
// How many heaps of the process are short of memory; the gate's bit is set while it is not 0.
std::mutex short_mutex;
std::uint32_t short_heaps = 0;
const os::fork_guard shortage_at_fork(
    os::fork_rank::leaves, []() noexcept { short_mutex.lock(); }, []() noexcept { short_mutex.unlock(); },
    []() noexcept {
      short_heaps = 0;  // those of the parent
      short_mutex.unlock();
    });
}  // namespace

namespace {
constinit arena_ranges ranges;
}  // namespace

void arena_ranges::add(std::uintptr_t begin, std::uintptr_t end) noexcept {
  for (std::size_t i = 0; i < std::size(all_); ++i) {
    std::uintptr_t none = 0;
    if (!all_[i].begin.compare_exchange_strong(none, begin, std::memory_order_relaxed)) continue;
    all_[i].end.store(end, std::memory_order_release);
    for (std::size_t seen = used_.load(); seen <= i && !used_.compare_exchange_weak(seen, i + 1);) {
    }
    return;
  }
  overflowed_.store(true, std::memory_order_relaxed);
}

void arena_ranges::remove(std::uintptr_t begin) noexcept {
  for (range& r : all_) {
    if (r.begin.load(std::memory_order_relaxed) != begin) continue;
    r.end.store(0, std::memory_order_relaxed);
    r.begin.store(0, std::memory_order_release);
    return;
  }
}

bool arena_ranges::contains(std::uintptr_t at) const noexcept {
  const std::size_t n = used_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i)
    if (at < all_[i].end.load(std::memory_order_acquire) && at >= all_[i].begin.load(std::memory_order_relaxed))
      return true;
  return overflowed_.load(std::memory_order_relaxed);
}

bool is_managed(const void* address) noexcept { return ranges.contains(reinterpret_cast<std::uintptr_t>(address)); }

arena::arena(std::uint64_t capacity, std::uint64_t capacity_most, std::uint64_t segment_bytes, bool dumped) {
  FM_CHECK(is_power_of_two(segment_bytes) && segment_bytes >= page_bytes, "segment size");
  shift_ = std::countr_zero(segment_bytes);
  capacity_ = wanted_capacity_ = static_cast<std::uint32_t>(capacity >> shift_);
  capacity_most_ = static_cast<std::uint32_t>(std::max(capacity, capacity_most) >> shift_);
  const std::uint64_t space = std::uint64_t{capacity_most_} * limits::address_space_factor << shift_;
  memory_ = os::reservation(space, std::max(segment_bytes, os::huge_page_bytes));
  if (dumped) os::reservation::set_dumped(memory_.base(), space, true);
  // Objects are scattered over all of it, so that every access of a large cache would miss the TLB as well.
  if (space >= limits::address_space_factor * limits::huge_pages_from)
    os::reservation::prefer_huge_pages(memory_.base(), space);
  base_ = reinterpret_cast<char*>(memory_.base());
  segments_ = std::vector<segment>(std::size_t{capacity_most_} * limits::address_space_factor);
  for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i].base = base_ + (i << shift_);
  available_ = capacity_segments();
  freed_.reserve(segments_.size());
  free_runs_.reserve(limits::free_runs_max);
  ranges.add(reinterpret_cast<std::uintptr_t>(base_), reinterpret_cast<std::uintptr_t>(base_) + space);
}

arena::~arena() {
  if (memory_.base() == nullptr) return;  // abandoned
  ranges.remove(reinterpret_cast<std::uintptr_t>(base_));
#if FM_ASAN
  // The addresses may be used for something else.
  for (segment& s : segments_)
    if (s.state.load() != segment_state::unbacked || __asan_address_is_poisoned(s.base))
      reuse_memory(s.base, segment_bytes());
#endif
}

// With mutex_ held.
void arena::update_gate() {
  const bool now = available_.load(std::memory_order_relaxed) < gate_level();
  if (now == short_of_memory_) return;
  short_of_memory_ = now;
  const std::lock_guard lock(short_mutex);
  if (now ? short_heaps++ == 0 : --short_heaps == 0) {
    if (now)
      epochs::gate.fetch_or(epochs::gate_memory, std::memory_order_seq_cst);
    else
      epochs::gate.fetch_and(~std::uint32_t{epochs::gate_memory}, std::memory_order_seq_cst);
  }
}

// With mutex_ held. More is available: a level that was given up counts again if it is reached.
void arena::reach_gate_level() {
  if (const std::uint32_t wanted = gate_wanted_.load(std::memory_order_relaxed);
      gate_level() < wanted && available() >= wanted)
    gate_level_.store(wanted, std::memory_order_relaxed);
  update_gate();
}

void arena::give_up_gate_level() {
  const std::lock_guard lock(mutex_);
  gate_level_.store(std::min(gate_level(), available()), std::memory_order_relaxed);
  update_gate();
}

void arena::change_gate_level(std::uint32_t segments) {
  const std::lock_guard lock(mutex_);
  if (left_gate_) return;
  const bool given_up = gate_level() < gate_wanted_.load(std::memory_order_relaxed);
  gate_wanted_.store(segments, std::memory_order_relaxed);
  if (!given_up || segments < gate_level()) gate_level_.store(segments, std::memory_order_relaxed);
  update_gate();
}

void arena::rearm_gate_level() {
  const std::lock_guard lock(mutex_);
  if (left_gate_) return;
  gate_level_.store(gate_wanted_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  update_gate();
}

void arena::leave_gate() {
  const std::lock_guard lock(mutex_);
  left_gate_ = true;
  set_gate_level(0);
  update_gate();
}

void arena::discard(char* from, std::uint64_t bytes) noexcept {
  if (before_discard_) before_discard_(reinterpret_cast<std::byte*>(from), bytes);
  os::reservation::discard(from, bytes);
}

// With mutex_ held. A run that was released, the last one first: its memory is warm, and the kernel need not clear it.
segment* arena::take_free_run(std::uint32_t span) noexcept {
  for (std::size_t i = free_runs_.size(); i-- > 0;) {
    run& r = free_runs_[i];
    if (r.span < span) continue;
    const run taken{r.first, span};
    const bool whole = std::all_of(&segments_[r.first], &segments_[r.first] + span, [](const segment& s) {
      return s.state.load(std::memory_order_relaxed) == segment_state::free;
    });
    r = {r.first + span, r.span - span};
    if (!whole || r.span < 2) free_runs_.erase(free_runs_.begin() + static_cast<std::ptrdiff_t>(i));
    if (whole) return take_run(taken);
  }
  return nullptr;
}

// With mutex_ held. Segments that are free have their memory already; the others get it, and where the capacity needs
// that, free segments elsewhere give theirs up: enough of them do, as long as so many are available.
segment* arena::take_run(run r) {
  std::uint32_t fresh = 0;
  for (segment* s = &segments_[r.first]; s != &segments_[r.first] + r.span; ++s) {
    if (s->state.load(std::memory_order_relaxed) == segment_state::free)
      free_.erase(queue::s_iterator_to(*s));
    else
      ++fresh;
    s->state.store(segment_state::filling, std::memory_order_relaxed);
  }
  discard_free(capacity_segments() - fresh);
  backed_ += fresh;
  return &segments_[r.first];
}

// With mutex_ held.
void arena::discard_free(std::uint32_t backed_most) {
  while (backed_ > backed_most) {
    FM_CHECK(!free_.empty(), "backed segments are accounted for");
    segment& f = free_.front();
    free_.pop_front();
    discard(f.base, segment_bytes());
    f.state.store(segment_state::unbacked, std::memory_order_relaxed);
    --backed_;
  }
}

void arena::set_capacity(std::uint32_t segments) {
  FM_CHECK(segments <= capacity_most_, "there is address space for so many segments");
  {
    const std::lock_guard lock(mutex_);
    wanted_capacity_.store(segments, std::memory_order_release);
    if (segments <= capacity_segments()) return;
    available_.fetch_add(segments - capacity_segments(), std::memory_order_relaxed);
    capacity_.store(segments, std::memory_order_relaxed);
    reach_gate_level();
  }
  wake_waiters();
}

bool arena::shrink(std::uint32_t keep) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t capacity = capacity_segments(), available = available_.load(std::memory_order_relaxed);
  if (available <= keep || wanted_capacity() >= capacity) return false;
  const std::uint32_t fewer = std::min(available - keep, capacity - wanted_capacity());
  available_.store(available - fewer, std::memory_order_relaxed);
  capacity_.store(capacity - fewer, std::memory_order_relaxed);
  discard_free(capacity - fewer);
  update_gate();
  return true;
}

void arena::stop_shrinking(std::uint32_t segments) {
  const std::lock_guard lock(mutex_);
  if (wanted_capacity() == segments && segments < capacity_segments())
    wanted_capacity_.store(capacity_segments(), std::memory_order_release);
}

// With mutex_ held. By next fit: where nothing has memory, and if there is no such place, anywhere.
segment* arena::take_any_run(std::uint32_t span) {
  const auto n = static_cast<std::uint32_t>(segments_.size());
  for (const bool among_free : {false, true}) {
    std::uint32_t length = 0, at = next_unbacked_;
    for (std::uint32_t step = 0; step < 2 * n && length < span; ++step, ++at) {
      if (at == n) at = length = 0;
      const segment_state s = segments_[at].state.load(std::memory_order_relaxed);
      length = s == segment_state::unbacked || (among_free && s == segment_state::free) ? length + 1 : 0;
    }
    if (length < span) continue;
    next_unbacked_ = at == n ? 0 : at;
    return take_run({at - span, span});
  }
  return nullptr;
}

segment* arena::take(std::uint32_t span, std::uint32_t leave) {
  const std::lock_guard lock(mutex_);
  if (available_.load(std::memory_order_relaxed) < span + leave) return nullptr;
  segment* s = nullptr;
  if (span == 1 && !free_.empty()) {
    s = &free_.back();
    free_.pop_back();
  } else {
    if (span > 1) s = take_free_run(span);
    if (!s) s = take_any_run(span);
    if (!s) return nullptr;
  }
#if FM_ASAN
  if (!__asan_address_is_poisoned(s->base)) retire_memory(s->base, std::uint64_t{span} << shift_);  // its first use
#endif
  s->state.store(segment_state::filling, std::memory_order_relaxed);
  s->span = span;
  s->rounds = 0;
  s->swept = s->on_trial = false;
  s->used = 0;
  s->freed = 0;
  s->filler = 0;
  s->held_until.store(0, std::memory_order_relaxed);
  s->cold_stamp.store(0, std::memory_order_relaxed);
  available_.fetch_sub(span, std::memory_order_relaxed);
  update_gate();
  return s;
}

// With mutex_ held, as leave.
void arena::enter(segment& s, segment_state state, queue& to) {
  s.state.store(state, std::memory_order_relaxed);
  if (&to == &trial_) on_trial_.fetch_add(s.span, std::memory_order_relaxed);
  to.push_back(s);
}

void arena::leave(segment& s, queue& from) {
  if (&from == &trial_) on_trial_.fetch_sub(s.span, std::memory_order_relaxed);
  from.erase(queue::s_iterator_to(s));
  s.state.store(segment_state::sweeping, std::memory_order_relaxed);
}

void arena::retire(segment& s, std::uint64_t used, bool promoted) {
  const std::uint64_t stamp = s.warm ? 0 : epochs::stamp();
  const std::lock_guard lock(mutex_);
  s.used = used;
  s.on_trial = s.kind == fill_kind::fetched && !promoted;
  s.cold_stamp.store(stamp, std::memory_order_release);
  if (s.warm)
    enter(s, segment_state::filled, filled_);
  else if (s.on_trial)
    enter(s, segment_state::trial, trial_);
  else
    enter(s, segment_state::active, active_);
}

void arena::release(segment& s) {
  retire_memory(s.base, std::uint64_t{s.span} << shift_);
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t span = s.span;
    s.cold_stamp.store(0, std::memory_order_relaxed);
    if (span == 1) {
      s.state.store(segment_state::free, std::memory_order_relaxed);
      free_.push_back(s);
    } else {
      const auto first = static_cast<std::uint32_t>(&s - segments_.data());
      s.span = 1;
      // Single segments come from the other end.
      for (std::uint32_t i = first; i < first + span; ++i) {
        segments_[i].state.store(segment_state::free, std::memory_order_relaxed);
        free_.push_front(segments_[i]);
      }
      if (free_runs_.size() == limits::free_runs_max) free_runs_.erase(free_runs_.begin());
      free_runs_.push_back({first, span});
    }
    available_.fetch_add(span, std::memory_order_relaxed);
    reach_gate_level();
    released_.fetch_add(1, std::memory_order_release);
  }
  if (waiters_.load(std::memory_order_seq_cst) != 0) os::futex_wake(released_, 1 << 30);
}

segment* arena::next_to_cool() {
  const std::lock_guard lock(mutex_);
  for (segment& s : filled_) {
    // A fetch in flight writes headers here that may name anything: not to be walked before it has ended.
    if (s.inflight.load(std::memory_order_acquire) != 0) continue;
    leave(s, filled_);
    return &s;
  }
  return nullptr;
}

void arena::enter_cooled(segment& s, std::uint64_t stamp) {
  const std::lock_guard lock(mutex_);
  s.cold_stamp.store(stamp, std::memory_order_release);
  if (s.on_trial)
    enter(s, segment_state::trial, trial_);
  else
    enter(s, segment_state::active, active_);
}

bool arena::set_dead_aside(std::uint64_t stamp) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(freed_, [&](segment* s) {
    const segment_state state = s->state.load(std::memory_order_relaxed);
    if (state == segment_state::filling) return false;  // what has died in it is nothing new when it has been filled
    s->noted = false;
    if (state != segment_state::filled && state != segment_state::trial && state != segment_state::active) return true;
    if (s->freed + s->filler + 8 != s->used || s->swept) return true;
    if (s->inflight.load(std::memory_order_acquire) != 0 || s->writing.load(std::memory_order_acquire) != 0)
      return true;
    leave(*s, state == segment_state::filled ? filled_ : state == segment_state::trial ? trial_ : active_);
    s->cold_stamp.store(stamp, std::memory_order_release);
    enter(*s, segment_state::dead, dead_);
    newest_dead_.store(stamp, std::memory_order_relaxed);
    return true;
  });
  return !dead_.empty();
}

segment* arena::next_dead(std::uint64_t passed_below) noexcept {
  const std::lock_guard lock(mutex_);
  if (dead_.empty() || dead_.front().cold_stamp.load(std::memory_order_relaxed) >= passed_below) return nullptr;
  segment& s = dead_.front();
  dead_.pop_front();
  if (dead_.empty()) newest_dead_.store(0, std::memory_order_relaxed);
  s.state.store(segment_state::sweeping, std::memory_order_relaxed);
  return &s;
}

// With mutex_ held.
segment* arena::oldest_passed(queue& from, std::uint64_t passed_below) {
  for (auto at = from.begin(); at != from.end();) {
    segment& s = *at++;
    if (s.cold_stamp.load(std::memory_order_relaxed) >= passed_below) break;
    // A frame was bumped, its segment filled by others and cooled, and then its thread left the section before it gave
    // the frame a word. The stamp has passed, so the count is seen.
    if (s.inflight.load(std::memory_order_acquire) != 0) continue;
    leave(s, from);
    if (s.held_until.load(std::memory_order_relaxed) < passed_below) return &s;
    // The thread is in a newer section, perhaps.
    s.cold_stamp.store(epochs::stamp(), std::memory_order_release);
    enter(s, &from == &trial_ ? segment_state::trial : segment_state::active, from);
  }
  return nullptr;
}

segment* arena::next_to_sweep(std::uint64_t passed_below, bool trial_first) {
  const std::lock_guard lock(mutex_);
  trial_first |= on_trial_.load(std::memory_order_relaxed) >= replacement_policy::trial_target(capacity_segments());
  segment* const s = oldest_passed(trial_first ? trial_ : active_, passed_below);
  return s ? s : oldest_passed(trial_first ? active_ : trial_, passed_below);
}

std::uint64_t arena::awaited_stamp() {
  const std::lock_guard lock(mutex_);
  for (const queue* q : {&writing_, &trial_, &active_}) {
    for (const segment& s : *q) {
      if (s.inflight.load(std::memory_order_relaxed) != 0) continue;
      if (q == &writing_ && s.writing.load(std::memory_order_relaxed) != 0) continue;
      const std::uint64_t stamp = s.cold_stamp.load(std::memory_order_relaxed);
      if (!epochs::passed(stamp)) return stamp;
      break;
    }
  }
  return 0;
}

void arena::enter_writing(segment& s) {
  const std::lock_guard lock(mutex_);
  enter(s, segment_state::writing, writing_);
}

segment* arena::next_written(std::uint64_t passed_below) {
  const std::lock_guard lock(mutex_);
  for (segment& s : writing_) {
    if (s.writing.load(std::memory_order_acquire) != 0) continue;
    if (s.cold_stamp.load(std::memory_order_relaxed) >= passed_below) continue;
    leave(s, writing_);
    return &s;
  }
  return nullptr;
}

std::uint32_t arena::await_stamp(std::uint64_t passed_below) {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(std::count_if(writing_.begin(), writing_.end(), [&](const segment& s) {
    return s.writing.load(std::memory_order_relaxed) == 0 &&
           s.cold_stamp.load(std::memory_order_relaxed) >= passed_below;
  }));
}

void arena::enter_active(segment& s, std::uint64_t stamp) {
  const std::lock_guard lock(mutex_);
  s.cold_stamp.store(stamp, std::memory_order_release);
  s.on_trial = false;
  s.rounds = 0;
  enter(s, segment_state::active, active_);
}

bool arena::wait_released(std::uint32_t seen, time_point deadline) {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool in_time = true;
  if (released_.load(std::memory_order_seq_cst) == seen) in_time = os::futex_wait(released_, seen, deadline);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return in_time;
}

void arena::wake_waiters() {
  released_.fetch_add(1, std::memory_order_release);
  os::futex_wake(released_, 1 << 30);
}

arena::counts arena::queue_lengths() {
  const std::lock_guard lock(mutex_);
  const auto n = [](const queue& q) { return static_cast<std::uint32_t>(q.size()); };
  return {available_.load(), n(filled_), n(trial_), n(active_), n(writing_) + n(dead_), backed_};
}

}  // namespace fm::detail
