// Sweeping: what leaves a segment, what stays, and what moves on; see evictor.h. Members of evictor.
//
// Invariant: a sweep looks at a bounded number of frames in a step and goes on at the same frame in the next one. No
// object that it makes cold leaves before a grace period that begins after the sweep.
#include "cache/eviction/evictor.h"
#include "cache/frames/segment_walk.h"

#include <algorithm>
#include <utility>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

void evictor::run_sweeping() {
  {
    const section in_section;
    if (grow_up()) return;
    // Others change these counts, too: they are changed once a step, and before any batch of it is sent.
    const struct count_at_end {
      evictor& e;
      ~count_at_end() {
        if (e.dropped_ != 0) e.counts.dropped.fetch_add(std::exchange(e.dropped_, 0), std::memory_order_relaxed);
        if (e.copied_ != 0) e.segment_->writing.fetch_add(std::exchange(e.copied_, 0), std::memory_order_relaxed);
      }
    } counted{*this};
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
          cool_again(payload, word, w);
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
        if ((shape & frame::used_bit) != 0 && move_on(payload, word, w)) continue;
        if (!word::is_clean(w)) {
          if (copy_out(payload, word, w)) {
            if (!growing_.payload) continue;
            cursor_ = payload - sizeof(frame_prefix) +
                      frame::total_bytes_of(payload);  // a long array: the rest of it comes first
            return;
          }
          // No batch to be had until acknowledgements or a region come: soon, as a rule, and then the sweep goes on
          // here. The rest of the segment, and others that wait only to be swept, are not held up for long.
          if (refusal_of(frames[i].slot) == errc::ok) {
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
        FM_ASSERT(word::is_remote(home) || home == word::unknown, "a clean frame has a home copy");
        if (word.compare_exchange_strong(w, home, std::memory_order_acq_rel)) {
          retire_frame(payload);
          ++dropped_;
          note_left(frames[i].slot, *segment_, shape, home);
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

// In a section.
void evictor::cool_again(char* payload, std::atomic<word_t>& word, word_t seen) {
  ++kept_;
  kept_bytes_ += frame::total_bytes_of(payload);
  if (word::is_busy(seen) || word::is_cold(seen)) return;
  // A large object is its segment, which moves on as a whole. Draining keeps nothing.
  if (segment_->span == 1 && !draining_)
    frame::prefix(payload).shape.fetch_or(frame::used_bit, std::memory_order_relaxed);
  // If it is changed just now, it stays warm until the next round.
  word.compare_exchange_strong(seen, seen | word::cold_bit, std::memory_order_acq_rel);
}

bool evictor::move_on(char* payload, std::atomic<word_t>& word, word_t seen) {
  // Beside agents that refuse, what is clean goes round in a few segments, and none is taken to keep it.
  if (draining_ || moving_ >= limits::sweeps_that_only_move || cache_.frames().keeps_for_reads()) return false;
  const std::uint64_t bytes = frame::total_bytes_of(payload);
  switch (cache_.frames().relocate(word, seen, moved_, 1)) {
    case frame_space::relocated::moved: counts.relocated += 1; return true;
    case frame_space::relocated::touched:
      ++kept_;
      kept_bytes_ += bytes;
      return true;
    case frame_space::relocated::no_memory: break;
  }
  return false;
}

// By whoever drops it: the evictor, or an acknowledgement.
void evictor::note_left(slot_t slot, const segment& s, std::uint32_t shape, word_t home) noexcept {
  if ((shape & frame::elastic_bit) != 0 && word::is_remote(home)) {
    counts.elastic_untouched.fetch_add(1, std::memory_order_relaxed);
    cache_.misses()
        .windows(tablet_info_of(slot).agent.load(std::memory_order_relaxed))
        .reduce(home_address::unpack(home));
  } else if (s.on_trial) {
    cache_.misses().left().note(slot);
  }
}

// An open batch leaves when it is full, when there is nothing else to do, and by these rules: segments wait for it in
// `writing`, and sweeps that find work without end (the same pinned segments, round and round) are no reason to keep
// it.
void evictor::after_sweep(bool released) {
  const bool moved = released || counts.dropped.load(std::memory_order_relaxed) + counts.written.get() != left_;
  futile_ = moved ? 0 : futile_ + 1;
  ++sweeps_since_submit_;
  moving_ = moved || counts.relocated.get() == moved_so_far_ ? 0 : moving_ + 1;
  coolings_due_ = limits::coolings_each_sweep;
  const arena::counts q = arena_.queue_lengths();
  const bool going_round = futile_ > q.filled + q.trial + q.active;
  if (going_round || draining_ || sweeps_since_submit_ >= limits::sweeps_per_batch || arena_.available() < low() ||
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
    // A touch brings the word back. One that is warm was so when it was put aside, or has been cooled here since.
    if (!word::is_cold(aside)) {
      aside |= word::cold_bit;
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
      const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
      retire_frame(payload);
      ++dropped_;
      note_left(slot, *segment_, shape, px.home.load(std::memory_order_relaxed));
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
  if (!s.on_trial && !s.swept) arena_.note_wanted(kept_bytes_, s.used);
  s.swept = true;
  if (kept_ + pinned_ + dirty_kept_ + waiting_ == 0 && s.writing.load(std::memory_order_acquire) == 0) {
    release(s);
    return true;
  }
  counts.stragglers.fetch_add(kept_, std::memory_order_relaxed);
  const std::uint64_t stamp = kept_ != 0 ? epochs::stamp() : stamp_;
  // What was being written when the sweep saw it may be acknowledged by now and still be here: it is swept again.
  const bool waits = waiting_ != 0 || s.writing.load(std::memory_order_acquire) != 0;
  const bool moves = kept_ != 0 && s.span == 1 && s.rounds < limits::rounds_before_pause;
  if (waits || moves) {
    s.rounds += moves;
    s.cold_stamp.store(stamp, std::memory_order_release);
    arena_.enter_writing(s);
    return false;
  }
  if (kept_ != 0 && pinned_ + dirty_kept_ == 0 && s.span == 1 && this_thread.depth == 0 &&
      kept_bytes_ < arena_.segment_bytes() / 2 && relocate_stragglers(s))
    return true;
  arena_.enter_active(s, kept_ != 0 ? stamp : epochs::stamp());
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
  const time_point end = clock::now();
  no_pause_before_ = end + (end - begin) * limits::rest_after_pause;
  if (!ran) counts.pauses_abandoned.fetch_add(1, std::memory_order_relaxed);
  if (!ran || !moving.all || s.writing.load(std::memory_order_acquire) != 0) return false;
  release(s);
  return true;
}

}  // namespace fm::detail
