// The mark stack, looking ahead, and scanning of compute_tracer.h.
#include "collector/marking/compute_tracer.h"

#include "cache/eviction/evictor.h"
#include "cache/frames/frame_contents.h"

#include <algorithm>
#include <bit>

namespace fm::detail {

compute_tracer::compute_tracer(object_cache& cache, slot_marks& marks, std::size_t stack_max,
                               tracing_elsewhere* elsewhere)
    : cache_(cache), marks_(marks), stack_max_(stack_max), elsewhere_(elsewhere), in_rescans_(marks.tablets().size()) {
  remote_.reserve(limits::looked_items);
}

// ---- where slots come from ----

void compute_tracer::add(slot_t slot) {
  if (elsewhere_ && !marks_.is_dirty(slot)) return elsewhere_->refers_to(slot);
  if (!marks_.mark(slot)) return;
  if (stack_.size() < stack_max_) {
    stack_.push_back(slot);
    return;
  }
  const std::size_t tablet = marks_.index_of(slot);
  if (in_rescans_[tablet]) return;
  in_rescans_[tablet] = true;
  rescans_.push_back(tablet);
}

slot_t compute_tracer::next_slot() {
  if (!stack_.empty()) {
    const slot_t s = stack_.back();
    stack_.pop_back();
    return s;
  }
  for (;;) {
    while (rescan_bits_ == 0 && rescan_word_ < slot_marks::tablet_words) {
      rescan_bits_ = marks_.marked(rescan_tablet_)[rescan_word_] & marks_.allocated(rescan_tablet_)[rescan_word_];
      if (elsewhere_) rescan_bits_ &= marks_.dirty(rescan_tablet_)[rescan_word_];
      ++rescan_word_;
    }
    if (rescan_bits_ != 0) {
      const auto bit = static_cast<std::uint64_t>(std::countr_zero(rescan_bits_));
      rescan_bits_ &= rescan_bits_ - 1;
      return std::uint64_t{marks_.tablets()[rescan_tablet_]} * tablet_slots + (rescan_word_ - 1) * 64 + bit;
    }
    if (rescans_.empty()) return 0;
    rescan_tablet_ = rescans_.back();
    rescans_.pop_back();
    // A slot that finds no room from now on lists it again.
    in_rescans_[rescan_tablet_] = mutated(mutation::stale_local_rescan);
    rescan_word_ = 0;
  }
}

bool compute_tracer::step() {
  for (std::uint32_t n = 0; n < limits::step_objects; ++n) {
    fill();
    if (popped_ == scanned_) return false;
    look_ahead();
    scan(ring_[scanned_ % limits::ring_items]);
    ++scanned_;
  }
  return true;
}

void compute_tracer::fill() {
  while (popped_ - scanned_ < limits::ring_items) {
    const slot_t s = next_slot();
    if (s == 0) return;
    __builtin_prefetch(&word_at(s));
    ring_[popped_++ % limits::ring_items] = s;
  }
}

// Words are looked at some time before their objects are scanned, and what is remote is fetched, many at once.
void compute_tracer::look_ahead() {
  const std::uint32_t ahead = looked_ - scanned_;
  if (ahead != 0 && limits::looked_items - ahead < limits::together_items) return;
  remote_.clear();
  for (; looked_ != popped_ && looked_ - scanned_ < limits::looked_items; ++looked_) {
    const slot_t s = ring_[looked_ % limits::ring_items];
    const word_t w = word_at(s).load(std::memory_order_relaxed);
    if (word::is_resident(w))
      __builtin_prefetch(word::payload(w) - header::bytes);  // of a frame that may be gone by now: no harm
    else if (word::is_remote(w) && !elsewhere_)
      remote_.push_back(s);
  }
  // Fewer than wanted: memory is short, and the tracer helps with eviction.
  if (!remote_.empty() && cache_.detached().prefetch(remote_.data(), remote_.size()) < remote_.size())
    cache_.eviction().help_or_wake();
}

// ---- from a slot to what it refers to ----

bool compute_tracer::await(slot_t slot) {
  const std::atomic<word_t>& word = word_at(slot);
  const time_point deadline = clock::now() + cache_.options().access_within;
  for (int polls = 0;; ++polls) {
    const std::uint32_t seen = cache_.detached().completions();
    if (!word::is_fetching(word.load(std::memory_order_acquire))) return true;
    if (cache_.detached().poll() != 0) continue;
    if (polls < limits::polls_before_sleep) {
      cpu_relax();
      continue;
    }
    const time_point now = clock::now();
    if (now >= deadline) return false;
    cache_.detached().sleep_until_completed(seen, now + limits::sleep_most);
  }
}

void compute_tracer::scan(slot_t slot) {
  ++traced_;
  const word_t w = word_at(slot).load(std::memory_order_acquire);
  if (word::is_fetching(w) && !elsewhere_) await(slot);
  {
    const section in_section;
    const bool here = cache_.collections().read_references(slot, refs_);
    // Evicted since the scan, so it was written back and acknowledged: its agent has it as it was at the snapshot, or
    // newer.
    if (!here && elsewhere_) return elsewhere_->went_home(slot);
    // If it is not here after all (no memory for its fetch, an old hint), it is resolved as by any other access, which
    // waits for it and throws what is wrong. Its frame stays until the section ends.
    if (!here) read_refs(object_cache::resolve(slot, access::read), refs_);
  }
  for (const slot_t r : refs_) add(r);
}

}  // namespace fm::detail
