// The evictor's write-back half: objects copied into batches, batches handed to the agent sessions, and what
// acknowledgements do. Members of evictor.
//
// Invariant: the bytes of an object stay dirty, whatever happens to its batch, until it is acknowledged as indexed:
// `clean` is set when they are copied, under `writing`, and taken back when the batch fails.
#include "evictor.h"
#include "table/young_bits.h"

#include <algorithm>
#include <utility>

#include "cache/frames/frame_contents.h"
#include "cache/frames/retire_frame.h"

namespace fm::detail {

// A frame of a lost agent's tablet stays until the tablet has another agent, clean or not: the home copy is gone. The
// session itself is asked: the cache hears of a loss a moment later.
bool evictor::waits_for_home(slot_t slot) noexcept {
  if (!cache_.losses().stranded(slot)) return false;
  note_refusal(tablet_info_of(slot).agent.load(std::memory_order_relaxed), errc::agent_lost);
  return true;
}

bool evictor::copy_out(char* payload, std::atomic<word_t>& word, word_t seen) {
  frame_prefix& px = frame::prefix(payload);
  const std::uint64_t h = px.header.load(std::memory_order_relaxed);
  const std::size_t agent = tablet_info_of(header::slot(h)).agent.load(std::memory_order_relaxed);
  if (waits_for_home(header::slot(h))) {
    ++dirty_kept_;
    return true;
  }
  // It dies as soon as the sweep comes to it.
  if (const slot_marks* doomed = cache_.collections().doomed.load(std::memory_order_acquire);
      doomed && doomed->dead(header::slot(h))) {
    ++kept_;
    return true;
  }
  // The payload is not looked at before the word is busy: until then a touch may move the object and retire the frame.
  const std::uint64_t room = frame::total_bytes_of(payload) - sizeof(frame_prefix) + header::bytes;
  const std::uint64_t bytes_max = std::min(room, cache_.object_bytes_max());
  if (open_[agent] && !open_[agent]->fits(bytes_max)) close(agent);
  if (!open_[agent] && !open_batch(agent, bytes_max)) return false;
  note_refusal(agent, errc::ok);
  batch_record& record = *static_cast<batch_record*>(open_[agent]->owner);
  if (!record.make_room()) {
    counts.unbatched.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen | word::busy_bit, std::memory_order_acq_rel)) {
    ++kept_;  // touched just now
    return true;
  }
  const std::uint64_t bytes = home_bytes(h, payload, room);
  FM_CHECK(bytes != 0 && bytes <= bytes_max, "a frame's header describes an object");
  remote::batch& b = *open_[agent];
  const word_t home = b.next(bytes).pack();
  std::byte* const copy = b.data + b.used;
  copy_bytes(copy, frame::home_copy(payload), bytes);
  b.used += static_cast<std::uint32_t>(bytes);
  ++b.count;
  record.objects.push_back({header::slot(h), home});
  ++waiting_;
  // A grace period after the object was cooled nobody else changes the shape of a word that is cold and ours.
  px.shape.store(px.shape.load(std::memory_order_relaxed) | frame::writing_bit, std::memory_order_relaxed);
  const bool was_young = end_youth_of(header::slot(h));
  ++copied_;
  counts.written += 1;
  counts.written_bytes += bytes;
  word.store((seen | word::clean_bit) & ~word::busy_bit, std::memory_order_release);
  if (was_young) cache_.young().grew_up(header::slot(h));
  // Not before the word is released: one of its references may be to itself.
  growing_ = {h, reinterpret_cast<const char*>(copy) + header::bytes, 0};
  grow_up();
  return true;
}

bool evictor::open_batch(std::size_t agent, std::uint64_t bytes_min) noexcept {
  if (denied_[agent] == steps_) return false;
  batch_record* const record = take_record();
  errc why = errc::ok;
  remote::batch* const b = record ? cache_.agents()[agent]->begin_batch(bytes_min, clock::now(), why) : nullptr;
  if (!b) {
    if (record) give_back_record(record);
    denied_[agent] = steps_;
    counts.unbatched.fetch_add(1, std::memory_order_relaxed);
    // Not cleared before: a thread that gives up waiting for memory meanwhile has to say why the agent refused.
    note_refusal(agent, why == errc::timed_out ? errc::ok : why);
    return false;
  }
  held_ = 0;
  record->agent = agent;
  record->batch = b;
  b->owner = record;
  b->on_acknowledged = acknowledged;
  open_[agent] = b;
  return true;
}

// A piece of what the last copy refers to. All of it before its batch can be acknowledged: as long as it is not,
// whoever looks for roots of young objects looks at its frame.
bool evictor::grow_up() noexcept {
  if (!growing_.payload) return false;
  growing_.next =
      cache_.young().end_youth(growing_.header, growing_.payload, growing_.next, limits::references_per_step);
  if (growing_.next == 0) growing_.payload = nullptr;
  return growing_.payload != nullptr;
}

void evictor::close(std::size_t agent) noexcept {
  closed_.push_back(*static_cast<batch_record*>(open_[agent]->owner));
  open_[agent] = nullptr;
}

bool evictor::close_open_batches() noexcept {
  sweeps_since_submit_ = 0;
  for (std::size_t i = 0; i < open_.size(); ++i)
    if (open_[i]) close(i);
  return !closed_.empty();
}

void evictor::submit_closed() noexcept {
  if (closed_.empty()) return;
  {
    const section in_section;
    while (grow_up()) {
    }
  }
  while (!closed_.empty()) {
    batch_record& record = closed_.front();
    closed_.pop_front();
    const std::size_t agent = record.agent;
    remote::batch* const b = record.batch;
    if (b->count == 0)  // every object for it was touched at the last moment: nobody will acknowledge it
      give_back_record(&record);
    else
      batches_unacknowledged_.fetch_add(1, std::memory_order_relaxed);
    cache_.agents()[agent]->submit(b);
  }
}

bool evictor::submit_open_batches() noexcept {
  const bool any = close_open_batches();
  submit_closed();
  return any;
}

bool evictor::end_batches(std::uint32_t agent, time_point deadline) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (open_[agent]) close(agent);
    submit_closed();
  }
  // Nobody gets another one: begin_batch has nothing to give for an agent that is lost.
  return cache_.agents()[agent]->flush(deadline) != errc::timed_out;
}

errc evictor::last_error() const noexcept {
  errc some = errc::ok;
  if (!cache_.frames().keeps_for_reads()) return some;
  for (std::size_t i = 0; i < refusals_.size() && !is_full(some); ++i)
    if (const errc e = refusal(i); e != errc::ok) some = e;
  return some;
}

// By the evictor, by whoever acknowledges, and by re-homing: the exchange tells each change to one of them. What an
// agent that is lost leaves behind soon has another agent.
void evictor::note_refusal(std::size_t agent, errc why) noexcept {
  if (why == errc::agent_lost && cache_.losses().survivors()) why = errc::ok;
  if (refusal(agent) == why) return;
  const std::uint16_t before = refusals_[agent].exchange(static_cast<std::uint16_t>(why), std::memory_order_relaxed);
  if ((before == 0) != (why == errc::ok)) cache_.frames().note_refusing(why != errc::ok);
}

// A session that opens no region has no room left. So one that has some is not full any more, whether or not anything is
// left that could be written back to it.
void evictor::forget_old_refusals() noexcept {
  if (!cache_.frames().keeps_for_reads()) return;
  for (std::size_t i = 0; i < refusals_.size(); ++i)
    if (is_full(refusal(i)) && cache_.agents()[i]->left_bytes() != 0) note_refusal(i, errc::ok);
}

void evictor::acknowledged(remote::batch& b, errc code) noexcept {
  auto* r = static_cast<batch_record*>(b.owner);
  r->owner->acknowledge(*r, code);
}

void evictor::acknowledge(batch_record& r, errc code) noexcept {
  {
    const section in_section;
    const std::size_t n = r.objects.size();
    // Objects that were copied out together come from one segment: it is told of them together.
    segment* from = nullptr;
    std::uint32_t of_segment = 0, dropped = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i + limits::acknowledged_ahead < n)
        __builtin_prefetch(&word_at(r.objects[i + limits::acknowledged_ahead].slot), 1);
      std::atomic<word_t>& word = word_at(r.objects[i].slot);
      word_t w = word.load(std::memory_order_acquire);
      for (;;) {
        if (w ==
            word::unknown) {  // its page was given back, perhaps just now; once open it stays until this section ends
          cache_.pages().open(r.objects[i].slot);
          w = word.load(std::memory_order_acquire);
        }
        FM_ASSERT(word::is_resident(w), "an object that is being written stays resident");
        if (word::is_busy(w)) {
          cpu_relax();
          w = word.load(std::memory_order_acquire);
          continue;
        }
        if (word.compare_exchange_weak(w, w | word::busy_bit, std::memory_order_acq_rel)) break;
      }
      char* payload = word::payload(w);
      frame_prefix& px = frame::prefix(payload);
      segment& s = arena_.of(payload);
      FM_ASSERT((px.shape.load() & frame::writing_bit) != 0, "an acknowledged object was being written");
      if (code == errc::ok) px.home.store(r.objects[i].home, std::memory_order_relaxed);
      // Dirty again first: a frame that is neither dirty nor being written is one whose home copy is as new
      // (scan_frames).
      if (code != errc::ok && !mutated(mutation::clean_when_copied)) {
        word.fetch_and(~word::clean_bit, std::memory_order_acq_rel);
        note_dirty(r.objects[i].slot);
      }
      const std::uint32_t shape = px.shape.fetch_and(~frame::writing_bit, std::memory_order_acq_rel);
      const std::uint64_t stamp = s.cold_stamp.load(std::memory_order_acquire);
      if (code != errc::ok) {
        word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
        counts.write_failures.fetch_add(1, std::memory_order_relaxed);
      } else if (word::is_cold(w) && word::is_clean(w) && (shape & frame::used_bit) == 0 && stamp != 0 &&
                 epochs::passed(stamp) && px.pins.load(std::memory_order_acquire) == 0) {
        // Cold words under busy are ours alone.
        retire_frame(payload);
        word.store(r.objects[i].home, std::memory_order_release);
        ++dropped;
        note_left(r.objects[i].slot, s, shape, r.objects[i].home);
      } else {
        word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
        counts.cancelled.fetch_add(1, std::memory_order_relaxed);
      }
      if (from != &s && of_segment != 0)
        from->writing.fetch_sub(std::exchange(of_segment, 0), std::memory_order_acq_rel);
      from = &s;
      ++of_segment;
    }
    if (of_segment != 0) from->writing.fetch_sub(of_segment, std::memory_order_acq_rel);
    counts.dropped.fetch_add(dropped, std::memory_order_relaxed);
    counts.acknowledged.fetch_add(n, std::memory_order_relaxed);
    if (code == errc::ok) cache_.pressure().note_stored();
  }
  if (code != errc::ok) note_refusal(r.agent, code);
  give_back_record(&r);
  batches_unacknowledged_.fetch_sub(1, std::memory_order_release);
  wake();
}

bool evictor::batch_record::make_room() noexcept try {
  if (objects.size() == objects.capacity()) objects.reserve(std::max(limits::batch_objects_first, 2 * objects.size()));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

evictor::batch_record* evictor::take_record() noexcept try {
  const std::lock_guard lock(records_mutex_);
  if (!free_records_.empty()) {
    batch_record& r = free_records_.front();
    free_records_.pop_front();
    return &r;
  }
  records_.push_back(std::make_unique<batch_record>());
  records_.back()->owner = this;
  return records_.back().get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void evictor::give_back_record(batch_record* r) noexcept {
  r->objects.clear();
  const std::lock_guard lock(records_mutex_);
  free_records_.push_front(*r);
}

errc evictor::drain(time_point deadline) {
  FM_CHECK(this_thread.depth == 0, "drain inside a scope would wait for itself");
  for (std::size_t i = 0; i < refusals_.size(); ++i)  // what was before does not end this; a loss is for good
    if (refusal(i) != errc::agent_lost) note_refusal(i, errc::ok);
  for (;;) {
    bool moved = false, empty = false;
    {
      const std::lock_guard lock(mutex_);
      draining_ = true;
      give_back_piece();  // what was moved leaves with the rest
      cache_.leases().close_segments();
      moved = step();
      const arena::counts q = arena_.queue_lengths();
      empty = job_ == job::none && q.filled + q.trial + q.active + q.writing == 0;
      draining_ = false;
    }
    if (empty && batches_unacknowledged_.load(std::memory_order_acquire) == 0) return errc::ok;
    if (last_error() != errc::ok) return last_error();
    if (clock::now() >= deadline) return errc::timed_out;
    if (!moved) {
      const std::uint32_t seen = work_.load(std::memory_order_acquire);
      os::futex_wait(work_, seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
    }
  }
}

void evictor::send() noexcept {
  const std::lock_guard lock(mutex_);
  submit_open_batches();
}

void evictor::await_acknowledged(time_point deadline) noexcept {
  send();
  for (;;) {
    const std::uint32_t seen = work_.load(std::memory_order_acquire);
    if (batches_unacknowledged_.load(std::memory_order_acquire) == 0 || clock::now() >= deadline) return;
    for (auto& link : cache_.agents()) link->poll();
    os::futex_wait(work_, seen, std::min(deadline, clock::now() + std::chrono::milliseconds(1)));
  }
}

}  // namespace fm::detail
