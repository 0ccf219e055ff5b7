// The thread that evicts, steps, what the next one is about, and cooling; see evictor.h. Sweeping is in sweep.cc,
// write-back in writeback.cc.
//
// Invariant: members that are not atomic are used under mutex_, by the one thread that makes a step. A step takes a
// bounded number of frames and waits for nothing.
#include "cache/eviction/evictor.h"
#include "cache/frames/segment_walk.h"

#include <algorithm>
#include <utility>

namespace fm::detail {

evictor::evictor(object_cache& cache)
    : cache_(cache),
      arena_(cache.memory()),
      open_(limits::agents_max, nullptr),
      denied_(limits::agents_max, 0),
      refusals_(limits::agents_max) {}

evictor::~evictor() { stop(); }

void evictor::start() {
  if (!cache_.options().background_evictor) return;
  thread_ = std::thread([this] {
    os::name_thread("fm-evictor");
    run();
  });
}

void evictor::stop() noexcept {
  if (stopping_.exchange(true)) return;
  wake();
  if (thread_.joinable()) thread_.join();
}

void evictor::give_back_piece() noexcept { cache_.leases().give_back(moved_); }

void evictor::wake() noexcept {
  work_.fetch_add(1, std::memory_order_release);
  os::futex_wake(work_, 1);
}

void evictor::run() noexcept {
  while (!stopping_.load(std::memory_order_acquire)) {
    const std::uint32_t seen = work_.load(std::memory_order_acquire);
    if (!short_of_memory() && !cache_.pages().wanting()) {
      time_point until = clock::now() + std::chrono::milliseconds(100);
      if (cache_.pages().over()) until = std::min(until, cache_.pages().again_at());
      send();                           // nobody would for as long as memory is not short
      if (arena_.newest_dead() != 0) {  // somebody was inside a section when they were set aside
        const std::lock_guard lock(mutex_);
        release_passed();
        until = std::min(until, clock::now() + std::chrono::milliseconds(1));
      }
      os::futex_wait(work_, seen, until);
      cache_.retirements().acknowledge();
      continue;
    }
    bool moved = false;
    time_point again_at;
    {
      const std::lock_guard lock(mutex_);
      moved = step_if_worth_it();
      again_at = again_at_;
    }
    // Nothing to do until sections end or acknowledgements come; the latter wake this thread.
    // An agent that takes nothing more is asked again now and then, not in a loop.
    // Beside others that take something it is asked when a step has moved nothing, or what they take would come late.
    const auto refuses = [](const auto& r) { return r.load(std::memory_order_relaxed) != 0; };
    const auto end = refusals_.begin() + static_cast<std::ptrdiff_t>(cache_.agents().size());
    const bool all = std::all_of(refusals_.begin(), end, refuses);
    const bool some = all || std::any_of(refusals_.begin(), end, refuses);
    if (!moved || all) os::futex_wait(work_, seen, some ? clock::now() + limits::asked_again_after : again_at);
  }
}

void evictor::release_dead() noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t stamp = epochs::stamp();
  if (arena_.set_dead_aside(stamp)) release_passed();
}

// mutex_.
bool evictor::release_passed() noexcept {
  bool any = false;
  const std::uint64_t newest = arena_.newest_dead();
  if (newest == 0) return false;
  if (!epochs::passed(newest)) epochs::try_pass(newest);
  const std::uint64_t passed_below = mutated(mutation::release_dead_without_grace)
                                         ? ~std::uint64_t{0}
                                         : epochs::passed_.load(std::memory_order_acquire);
  while (segment* s = arena_.next_dead(passed_below)) {
    FM_ASSERT(epochs::passed(s->cold_stamp.load(std::memory_order_relaxed)),
              "a segment of dead objects waits for sections");
    release(*s);
    any = true;
  }
  return any;
}

bool evictor::help() noexcept {
  if (!short_of_memory()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && !stopping_.load(std::memory_order_relaxed) && step_if_worth_it();
}

// mutex_. What ends its rest early is counted by work_: acknowledgements, above all. Ends of sections are not announced.
bool evictor::step_if_worth_it() noexcept {
  const std::uint32_t seen = work_.load(std::memory_order_acquire);
  if (in_vain_ && seen == in_vain_at_ && clock::now() < again_at_) return false;
  const std::uint64_t before = left_so_far();
  const bool moved = step();
  in_vain_ = !moved;
  // Cooling goes on, but makes no room: a cache that is full of what cannot leave now would be cooled and swept all the
  // while.
  if (left_so_far() != before) {
    rest_.reset();
  } else if (!moved) {
    in_vain_at_ = seen;
    again_at_ = clock::now() + rest_.next();
  }
  return moved;
}

std::uint64_t evictor::left_so_far() const noexcept {
  return counts.dropped.load(std::memory_order_relaxed) + counts.written.get() +
         counts.segments_released.load(std::memory_order_relaxed);
}

// mutex_.
void evictor::release(segment& s) noexcept {
  counts.segments_released.fetch_add(1, std::memory_order_relaxed);
  arena_.release(s);
  cache_.pressure().note_released();
}

void evictor::give_pages_back() noexcept {
  wake();
  hit_pages& pages = cache_.pages();
  if (this_thread.depth != 0 || !pages.far_over() || !pages.wanting()) return;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < limits::page_steps_for_run && !stopping_.load(std::memory_order_relaxed); ++i)
    if (!pages.far_over() || !pages.step([this] { return cache_.slots().tablets(); })) return;
}

bool evictor::short_of_memory() const noexcept {
  if (arena_.is_shrinking()) return true;
  // Room for the makers' next object, and one segment more; beside an agent that refuses, room for the largest object, which
  // would otherwise wait beside clean frames.
  const frame_space& frames = cache_.frames();
  const std::uint32_t of_makers = frames.reserve_of_new() + (frames.keeps_for_reads() ? frames.span_most() : 1) + 1;
  return arena_.available() < std::max({high(), 2 * arena_.gate_level() + 2, of_makers});
}

bool evictor::step() noexcept {
  ++steps_;
  for (auto& link : cache_.agents()) link->poll();
  cache_.retirements().acknowledge();
  forget_old_refusals();
  const bool released = release_passed();
  // What the next maker needs stays.
  const bool shrank =
      arena_.is_shrinking() && arena_.shrink(cache_.frames().reserve_of_new() + cache_.frames().span_most());
  if (shrank) cache_.frames().note_capacity();
  const bool gave_back = cache_.pages().step([this] { return cache_.slots().tablets(); }) || released || shrank;
  if (job_ == job::none) {
    if (!draining_ && !short_of_memory()) return gave_back;
    // Segments may be short because threads hold pieces of many.
    if (!pick_job()) {
      const bool taken = !draining_ && cache_.leases().take_back_lingering();
      return submit_open_batches() || gave_back || taken;
    }
  }
  if (job_ == job::cooling)
    run_cooling();
  else
    run_sweeping();
  submit_closed();
  return !std::exchange(starved_, false);
}

// A segment whose grace period is over, if eviction is wanted. As long as some thread stays in a section, because it
// does not run or waits, swept segments keep the objects that were used. Sweeping others meanwhile would empty the whole
// cache of what was not used just now. So it goes on only for threads that wait.
segment* evictor::to_sweep() noexcept {
  if (const std::uint64_t stamp = arena_.awaited_stamp(); stamp != 0) epochs::try_pass(stamp);
  const std::uint64_t passed =
      mutated(mutation::evict_without_grace) ? ~std::uint64_t{0} : epochs::passed_.load(std::memory_order_acquire);
  if (segment* s = arena_.next_written(passed)) return s;
  if (coolings_due_ != 0) return nullptr;
  const bool is_needed = draining_ || (cache_.pressure().has_waiters() && arena_.available() < low());
  if (!is_needed && arena_.await_stamp(passed) >= std::max(limits::segments_await_stamp_min, low() / 2)) return nullptr;
  // Active may be all pinned, or dirty beside agents that are full.
  const bool trial_first = futile_ % 2 != 0;
  return arena_.next_to_sweep(passed, trial_first);
}

// Filled segments are cooled ahead of sweeping, so that touches are seen for as long as an object is in a queue. Where
// many are filled at once, because memory was not short before, each sweep is followed by some coolings.
bool evictor::pick_job() {
  segment_ = nullptr;
  if (!draining_ && !short_of_memory()) return false;
  for (int attempt = 0; attempt < 2 && !segment_; ++attempt) {
    if ((segment_ = to_sweep())) {
      job_ = job::sweeping;
      stamp_ = segment_->cold_stamp.exchange(never_passed, std::memory_order_acq_rel);
      kept_ = pinned_ = dirty_kept_ = waiting_ = 0;
      kept_bytes_ = 0;
      left_ = counts.dropped.load(std::memory_order_relaxed) + counts.written.get();
      moved_so_far_ = counts.relocated.get();
    } else if ((segment_ = arena_.next_to_cool())) {
      job_ = job::cooling;
      coolings_due_ -= coolings_due_ != 0;
    } else {
      coolings_due_ = 0;
    }
  }
  if (segment_) cursor_ = segment_->base + 8;
  return segment_ != nullptr;
}

void evictor::run_cooling() {
  const section in_section;
  const char* end = segment_->base + segment_->used;
  looked_at frames[limits::look_ahead];
  for (std::uint32_t done = 0; done < limits::frames_per_step;) {
    const std::uint32_t n = look(cursor_, end, frames);
    if (n == 0) break;
    for (std::uint32_t i = 0; i < n; ++i) {
      word_t w = frames[i].word->load(std::memory_order_relaxed);
      if (w == word::unknown) {
        const auto at = cache_.pages().with_sided(frames[i].slot, [&](word_t& aside) {
          if (word::payload(aside) == frames[i].payload) aside |= word::cold_bit;
          return true;
        });
        if (at != hit_pages::found::in_table) continue;
        w = frames[i].word->load(std::memory_order_relaxed);
      }
      if (word::is_resident(w) && word::payload(w) == frames[i].payload && !word::is_cold(w)) {
        // The word may have moved on meanwhile; making another frame of the same object cold is harmless.
        word_t expected = w;
        frames[i].word->compare_exchange_strong(expected, w | word::cold_bit, std::memory_order_acq_rel);
      }
    }
    done += n;
  }
  if (cursor_ >= end) {
    counts.cooled.fetch_add(1, std::memory_order_relaxed);
    arena_.enter_cooled(*segment_, epochs::stamp());
    job_ = job::none;
  }
}

}  // namespace fm::detail
