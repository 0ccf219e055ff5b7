// Cooling, sweeping, and moving what stays behind; see evictor.h. Write-back is in writeback.cc.
//
// Invariant: members that are not atomic are used under mutex_, by the one thread that makes a step. A step takes a
// bounded number of frames and waits for nothing.
#include "evictor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

namespace {

struct looked_at {
  char* payload;
  slot_t slot;
  std::atomic<word_t>* word;
};

// Collects the next frames of a segment that hold an object, prefetching their words. Returns how many.
std::uint32_t look(char*& cursor, const char* end, looked_at (&out)[limits::look_ahead]) {
  std::uint32_t n = 0;
  while (n < limits::look_ahead && cursor < end) {
    char* payload = cursor + sizeof(frame_prefix);
    frame_prefix& px = frame::prefix(payload);
    const std::uint64_t total = frame::total_bytes_of(payload);
    FM_ASSERT(total != 0, "a frame has a size");
    if (total < sizeof(frame_prefix)) {  // a filler
      cursor += total;
      continue;
    }
    const std::uint64_t h = px.header.load(std::memory_order_relaxed);
    __builtin_prefetch(cursor + limits::prefetch_bytes);
    cursor += total;
    const slot_t slot = header::slot(h);
    if (slot == 0 || slot >= hit.slots) continue;  // nothing installed
    out[n].payload = payload;
    out[n].slot = slot;
    out[n].word = &word_at(slot);
    __builtin_prefetch(out[n].word, 1);
    ++n;
  }
  return n;
}

}  // namespace

evictor::evictor(object_cache& cache)
    : cache_(cache),
      arena_(cache.memory()),
      open_(cache.agents().size(), nullptr),
      denied_(cache.agents().size(), 0),
      refusals_(cache.agents().size()) {
  const std::uint32_t n = arena_.capacity_segments();
  low_ = std::max(3u, n / 16);
  high_ = std::max(low_ + 1, n / 8);
  inactive_target_ = static_cast<std::uint32_t>(cache.options().queues.inactive_target(n, 2));
}

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
    const bool all = std::all_of(refusals_.begin(), refusals_.end(), refuses);
    const bool some = all || std::any_of(refusals_.begin(), refusals_.end(), refuses);
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
  while (segment* s = arena_.next_dead(epochs::passed_.load(std::memory_order_acquire))) {
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
  return counts.dropped.load(std::memory_order_relaxed) + counts.written.load(std::memory_order_relaxed) +
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
  // What the largest maker asks for beside an agent that refuses, and one more: it would wait beside clean frames.
  const frame_space& frames = cache_.frames();
  const std::uint32_t of_makers = frames.keeps_for_reads() ? frames.reserve_of_new() + frames.span_most() + 1 : 0;
  return arena_.available() < std::max({high_, 2 * arena_.gate_level() + 2, of_makers});
}

bool evictor::step() noexcept {
  ++steps_;
  for (auto& link : cache_.agents()) link->poll();
  cache_.retirements().acknowledge();
  forget_old_refusals();
  const bool released = release_passed();
  const bool gave_back = cache_.pages().step([this] { return cache_.slots().tablets(); }) || released;
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

bool evictor::pick_job() {
  segment_ = nullptr;
  if (draining_ || short_of_memory()) {
    segment_ = arena_.next_written();
    if (!segment_) {
      if (const std::uint64_t oldest = arena_.oldest_cold_stamp(); oldest != 0 && epochs::try_pass(oldest))
        segment_ = arena_.next_to_sweep(epochs::passed_.load(std::memory_order_acquire));
      else if (mutated(mutation::evict_without_grace))
        segment_ = arena_.next_to_sweep(~std::uint64_t{0});
    }
    if (segment_) {
      job_ = job::sweeping;
      kept_ = pinned_ = dirty_kept_ = waiting_ = 0;
      kept_bytes_ = 0;
      left_ = counts.dropped.load(std::memory_order_relaxed) + counts.written.load(std::memory_order_relaxed);
    }
  }
  if (!segment_ && (draining_ || arena_.inactive_segments() < inactive_target_)) {
    // Segments that came back to active wait for a stamp; nobody else may be advancing the epoch.
    epochs::try_pass(epochs::current.load(std::memory_order_relaxed) - 1);
    segment_ = arena_.next_to_cool(epochs::passed_.load(std::memory_order_acquire), futile_ == 0 && !draining_);
    if (segment_) job_ = job::cooling;
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
    arena_.enter_inactive(*segment_, epochs::stamp());
    job_ = job::none;
  }
}

void evictor::run_sweeping() {
  {
    const section in_section;
    if (grow_up()) return;
    const char* end = segment_->base + segment_->used;
    looked_at frames[limits::look_ahead];
    for (std::uint32_t done = 0; done < limits::frames_per_step;) {
      const std::uint32_t n = look(cursor_, end, frames);
      if (n == 0) break;
      for (std::uint32_t i = 0; i < n; ++i) {
        char* payload = frames[i].payload;
        std::atomic<word_t>& word = *frames[i].word;
        word_t w = word.load(std::memory_order_acquire);
        if (w == word::unknown) {
          if (sweep_aside(frames[i].slot, payload)) continue;
          w = word.load(std::memory_order_acquire);
        }
        if (!word::is_resident(w) || word::payload(w) != payload) continue;  // moved, or lost an install race
        frame_prefix& px = frame::prefix(payload);
        if (!word::is_cold(w) || word::is_busy(w)) {
          ++kept_;
          kept_bytes_ += frame::total_bytes_of(payload);
          continue;
        }
        if (px.pins.load(std::memory_order_acquire) != 0 && !mutated(mutation::move_while_pinned)) {
          ++pinned_;
          continue;
        }
        const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
        if ((shape & frame::writing_bit) != 0) {
          ++waiting_;
          continue;
        }
        if (!word::is_clean(w)) {
          if (copy_out(payload, word, w, *segment_)) {
            if (!growing_.payload) continue;
            cursor_ = payload - sizeof(frame_prefix) +
                      frame::total_bytes_of(payload);  // a long array: the rest of it comes first
            return;
          }
          // No batch to be had until acknowledgements or a region come: soon, as a rule, and then the sweep goes on
          // here. The rest of the segment, and others that wait only to be swept, are not held up for long.
          if (refusal(tablet_info_of(frames[i].slot).agent.load(std::memory_order_acquire)) == errc::ok) {
            starved_ = true;
            close_open_batches();
            if (held_ < limits::steps_held) {
              ++held_;
              cursor_ = payload - sizeof(frame_prefix);
              return;
            }
          }
          ++dirty_kept_;
          continue;
        }
        if (waits_for_home(frames[i].slot)) {
          ++dirty_kept_;
          continue;
        }
        const word_t home = px.home.load(std::memory_order_relaxed);
        FM_ASSERT(word::is_remote(home), "a clean frame has a home copy");
        if (word.compare_exchange_strong(w, home, std::memory_order_acq_rel)) {
          retire_frame(payload);
          counts.dropped.fetch_add(1, std::memory_order_relaxed);
          if ((shape & frame::elastic_bit) != 0) {
            counts.elastic_untouched.fetch_add(1, std::memory_order_relaxed);
            const slot_t slot = header::slot(px.header.load(std::memory_order_relaxed));
            cache_.misses()
                .windows(tablet_info_of(slot).agent.load(std::memory_order_relaxed))
                .reduce(home_address::unpack(home));
          }
        } else {
          ++kept_;
        }
      }
      done += n;
    }
    if (cursor_ < end) return;
  }
  finish_sweep();
}

// An open batch leaves when it is full, when there is nothing else to do, and by these rules: segments wait for it in
// `writing`, and sweeps that find work without end (the same pinned segments, round and round) are no reason to keep
// it.
void evictor::after_sweep(bool released) {
  const bool moved =
      released ||
      counts.dropped.load(std::memory_order_relaxed) + counts.written.load(std::memory_order_relaxed) != left_;
  futile_ = moved ? 0 : futile_ + 1;
  ++sweeps_since_submit_;
  const arena::counts q = arena_.queue_lengths();
  const bool going_round = futile_ > q.active + q.proactive + q.inactive;
  if (going_round || draining_ || sweeps_since_submit_ >= limits::sweeps_per_batch || arena_.available() < low_ ||
      arena_.awaited())
    submit_open_batches();
  // All that can be swept was swept in vain: whoever steps waits for pins, sections or acknowledgements, and not in a
  // loop.
  if (going_round) {
    futile_ = 0;
    starved_ = true;
    if (!draining_) cache_.leases().take_back_lingering();
  }
}

// The word of a frame is in the side table, or nowhere. False when it is in the HIT now: what is dirty or being written
// goes on there.
bool evictor::sweep_aside(slot_t slot, char* payload) {
  bool to_table = false;
  const auto at = cache_.pages().with_sided(slot, [&](word_t& aside) {
    if (!word::is_resident(aside) || word::payload(aside) != payload) return true;
    frame_prefix& px = frame::prefix(payload);
    if (!word::is_cold(aside)) {
      ++kept_;
      kept_bytes_ += frame::total_bytes_of(payload);
    } else if (px.pins.load(std::memory_order_acquire) != 0) {
      ++pinned_;
    } else if (!word::is_clean(aside) || (px.shape.load(std::memory_order_acquire) & frame::writing_bit) != 0) {
      to_table = true;
    } else if (waits_for_home(slot)) {
      ++dirty_kept_;
    } else {
      // Whoever wants it asks the agent.
      retire_frame(payload);
      counts.dropped.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    return true;
  });
  if (to_table) cache_.pages().open(slot);
  return at != hit_pages::found::in_table && !to_table;
}

void evictor::finish_sweep() {
  segment& s = *segment_;
  after_sweep(end_sweep(s));
}

// Puts the segment where it belongs. True when it was released.
bool evictor::end_sweep(segment& s) {
  job_ = job::none;
  segment_ = nullptr;
  // What was being written when the sweep saw it may be acknowledged by now and still be here: it is swept again.
  if (waiting_ != 0 || s.writing.load(std::memory_order_acquire) != 0) {
    arena_.enter_writing(s);
    return false;
  }
  if (kept_ + pinned_ + dirty_kept_ == 0) {
    release(s);
    return true;
  }
  counts.stragglers.fetch_add(kept_, std::memory_order_relaxed);
  ++s.rounds;
  if (s.rounds >= limits::rounds_before_pause && pinned_ + dirty_kept_ == 0 && s.span == 1 && this_thread.depth == 0 &&
      kept_bytes_ < arena_.segment_bytes() / 2 && relocate_stragglers(s))
    return true;
  arena_.enter_active(s, epochs::stamp());
  return false;
}

bool evictor::relocate_stragglers(segment& s) {
  struct work {
    evictor* self;
    segment* s;
    bool all = true;
  } moving{this, &s};
  const time_point begin = clock::now();
  if (begin < no_pause_before_ && !draining_) return false;  // it is swept again
  counts.pauses.fetch_add(1, std::memory_order_relaxed);
  const bool ran = epochs::pause(
      limits::straggler_pause_within,
      [](void* context) {
        auto& w = *static_cast<work*>(context);
        const char* end = w.s->base + w.s->used;
        for (char* at = w.s->base + 8; at < end;) {
          char* payload = at + sizeof(frame_prefix);
          at += frame::total_bytes_of(payload);
          if (at <= payload) continue;  // a filler
          frame_prefix& px = frame::prefix(payload);
          const std::uint64_t h = px.header.load(std::memory_order_relaxed);
          if (h == 0) continue;
          auto& word = word_at(header::slot(h));
          const word_t seen = word.load(std::memory_order_acquire);
          if (seen == word::unknown && word::payload(w.self->cache_.pages().now(header::slot(h))) == payload) {
            w.all = false;  // put aside: it stays warm only until it is cooled there
            return;
          }
          if (!word::is_resident(seen) || word::payload(seen) != payload) continue;
          char* to = px.pins.load(std::memory_order_acquire) != 0 || word::is_busy(seen)
                         ? nullptr
                         : w.self->cache_.frames().bump_frame(w.self->moved_,
                                                              frame::total_bytes_of(payload) - sizeof(frame_prefix), 0);
          if (!to) {
            w.all = false;
            return;
          }
          w.self->cache_.frames().move_frame(payload, to);
          word.store(word::resident(to, seen & (word::clean_bit)), std::memory_order_release);
        }
      },
      &moving);
  cache_.leases().give_back(moved_);
  const time_point end = clock::now();
  no_pause_before_ = end + (end - begin) * limits::rest_after_pause;
  if (!ran) counts.pauses_abandoned.fetch_add(1, std::memory_order_relaxed);
  if (!ran || !moving.all || s.writing.load(std::memory_order_acquire) != 0) return false;
  release(s);
  return true;
}

}  // namespace fm::detail
