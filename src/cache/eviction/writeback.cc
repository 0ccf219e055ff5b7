// The evictor's write-back half: objects copied into batches, batches handed to the agent sessions, and what
// acknowledgements do. Members of evictor.
//
// Invariant: the bytes of an object stay dirty, whatever happens to its batch, until it is acknowledged as indexed:
// `clean` is set when they are copied, under `writing`, and taken back when the batch fails.
#include "cache/eviction/evictor.h"
#include "cache/tablets/tablet_home.h"
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
  // One that is being handed over has no batches under way then: see handover.h.
  if (waits_for_home(header::slot(h)) || !tablet_home(header::slot(h)).is_open()) {
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
  const std::uint64_t bytes_max = std::min(room, cache_.stored_bytes_max());
  const replica_set set = replica_set::of(header::slot(h));
  batch_record*& open = open_[set.primary()];
  if (open && (open->set != set || !open->fits(bytes_max))) close(set.primary());
  if (!open && !open_batch(set, bytes_max)) return false;
  batch_record& record = *open;
  for (std::uint32_t i = 0; i < record.count; ++i) note_refusal(record.members[i].agent, errc::ok);
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
  remote::batch& first = *record.members[0].batch;
  const word_t home = first.next(bytes).pack();
  // From the frame each time: a member that shares its memory with this process could change what is read from there.
  for (std::uint32_t i = 0; i < record.count; ++i) {
    remote::batch& b = *record.members[i].batch;
    copy_bytes(b.data + b.used, frame::home_copy(payload), bytes);
    b.used += static_cast<std::uint32_t>(bytes);
    ++b.count;
  }
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
  // Not before the word is released: one of its references may be to itself. And from the frame, which stays until the batch
  // is acknowledged: the agent of a batch may change it where it is shared, and the batch of one that is lost has become
  // zeros. An object whose frame is overwritten meanwhile is dirty again, and a reference that only its copy has names garbage.
  growing_ = {h, payload, 0};
  grow_up();
  return true;
}

bool evictor::ask_member(batch_record& r, std::uint32_t agent, bool joins, std::uint64_t bytes_min) noexcept {
  errc why = errc::timed_out;
  remote::batch* const b =
      denied_[agent] == steps_ ? nullptr : cache_.agents()[agent]->begin_batch(bytes_min, clock::now(), why);
  if (!b && joins && why != errc::timed_out) {
    join_missed_.store(true, std::memory_order_release);
    return true;
  }
  if (!b) {
    denied_[agent] = steps_;
    // Not cleared before: a thread that gives up waiting for memory meanwhile has to say why the agent refused.
    note_refusal(agent, why == errc::timed_out ? errc::ok : why);
    return false;
  }
  b->owner = &r;
  b->on_acknowledged = acknowledged;
  r.members[r.count++] = {agent, joins, errc::ok, b};
  return true;
}

bool evictor::has_members_enough(const replica_set& set) const noexcept {
  std::uint32_t live = 1;
  set.for_each_backup([&](std::uint32_t a) { live += !cache_.agents()[a]->lost(); });
  return live >= cache_.options().min_replicas;
}

bool evictor::open_batch(const replica_set& set, std::uint64_t bytes_min) noexcept {
  const std::uint32_t primary = set.primary();
  if (denied_[primary] == steps_) return false;
  if (!has_members_enough(set)) {
    denied_[primary] = steps_;
    note_refusal(primary, errc::under_replicated);
    return false;
  }
  batch_record* const record = take_record();
  bool all = record && ask_member(*record, primary, false, bytes_min);
  set.for_each_backup([&](std::uint32_t a) {
    if (!cache_.agents()[a]->lost()) all = all && ask_member(*record, a, false, bytes_min);
  });
  if (all && set.is_joined() && !record->goes_to(set.joining()) && !cache_.agents()[set.joining()]->lost())
    all = ask_member(*record, set.joining(), true, bytes_min);
  if (!all) {
    if (record) {
      record->give_back_batches(cache_);
      give_back_record(record);
    }
    denied_[primary] = steps_;
    counts.unbatched.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  held_ = 0;
  record->set = set;
  open_[primary] = record;
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

void evictor::close(std::size_t agent) noexcept { closed_.push_back(*std::exchange(open_[agent], nullptr)); }

bool evictor::close_open_batches() noexcept {
  sweeps_since_submit_ = 0;
  for (std::size_t i = 0; i < cache_.agents().size(); ++i)
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
    if (record.objects.empty()) {  // every object for it was touched at the last moment: nobody will acknowledge it
      record.give_back_batches(cache_);
      give_back_record(&record);
      continue;
    }
    batches_unacknowledged_.fetch_add(1, std::memory_order_relaxed);
    record.unanswered.store(record.count, std::memory_order_relaxed);
    // It may be another batch's as soon as the last of them has answered.
    const std::array<member_batch, limits::replicas_max> members = record.members;
    const std::uint32_t n = record.count;
    for (std::uint32_t i = 0; i < n; ++i) cache_.agents()[members[i].agent]->submit(members[i].batch);
  }
}

bool evictor::submit_open_batches() noexcept {
  const bool any = close_open_batches();
  submit_closed();
  return any;
}

bool evictor::await_batches(std::uint64_t number, std::uint32_t agent, time_point deadline, bool gives_way) noexcept {
  const auto is_awaited = [&](const std::unique_ptr<batch_record>& r) {
    return r->number != 0 && r->number <= number && r->goes_to(agent);
  };
  for (;;) {
    const std::uint32_t seen = work_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(records_mutex_);
      if (std::none_of(records_.begin(), records_.end(), is_awaited)) return true;
    }
    if (clock::now() >= deadline || (gives_way && cache_.losses().is_look_due())) return false;
    for (auto& link : cache_.agents()) link->poll();
    os::futex_wait(work_, seen, std::min(deadline, clock::now() + std::chrono::milliseconds(1)));
  }
}

bool evictor::end_batches(std::uint32_t agent, time_point deadline) noexcept {
  const std::uint64_t number = change_sets([] {});
  // Nobody gets another one: begin_batch has nothing to give for an agent that is lost.
  return await_batches(number, agent, deadline);
}

errc evictor::last_error() const noexcept {
  errc some = errc::ok;
  if (!cache_.frames().keeps_for_reads()) return some;
  for (std::size_t i = 0; i < cache_.agents().size() && !is_full(some); ++i)
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
  for (std::size_t i = 0; i < cache_.agents().size(); ++i)
    if (is_full(refusal(i)) && cache_.agents()[i]->left_bytes() != 0) note_refusal(i, errc::ok);
}

void evictor::acknowledged(remote::batch& b, errc code) noexcept {
  auto* r = static_cast<batch_record*>(b.owner);
  for (std::uint32_t i = 0; i < r->count; ++i)
    if (r->members[i].batch == &b) r->members[i].outcome = code;
  const std::uint32_t left = r->unanswered.fetch_sub(1, std::memory_order_acq_rel) - 1;
  if (mutated(mutation::acknowledge_before_all) && left + 1 == r->count) r->owner->settle(*r);
  if (left == 0) r->owner->acknowledge(*r);
}

errc evictor::outcome_of(const batch_record& r, std::uint32_t& refused_by) const noexcept {
  refused_by = r.members[0].agent;
  std::uint32_t stored = 0;
  errc refused = errc::ok;
  for (std::uint32_t i = 0; i < r.count; ++i) {
    const member_batch& m = r.members[i];
    if (cache_.agents()[m.agent]->lost() || m.joins) continue;
    stored += m.outcome == errc::ok;
    if (m.outcome == errc::ok || refused != errc::ok) continue;
    refused = m.outcome;
    refused_by = m.agent;
  }
  if (refused != errc::ok) return refused;
  if (stored >= cache_.options().min_replicas) return errc::ok;
  return stored == 0 ? errc::agent_lost : errc::under_replicated;  // members died meanwhile
}

void evictor::acknowledge(batch_record& r) noexcept {
  settle(r);
  give_back_record(&r);
  batches_unacknowledged_.fetch_sub(1, std::memory_order_release);
  wake();
}

// An address of the primary is of no use, and of another agent tomorrow, once that is lost: who wants the object then asks
// by slot. Before another agent is the primary every batch of this one has been settled (rehoming.h).
void evictor::settle(batch_record& r) noexcept {
  for (std::uint32_t i = 0; i < r.count; ++i)
    if (r.members[i].joins && r.members[i].outcome != errc::ok) join_missed_.store(true, std::memory_order_release);
  std::uint32_t refused_by = 0;
  const errc code = outcome_of(r, refused_by);
  {
    const section in_section;
    const std::size_t n = r.objects.size();
    // In the section: whoever replaces the primary waits for its end.
    const bool at_primary = !cache_.agents()[r.set.primary()]->lost();
    // Objects that were copied out together come from one segment: it is told of them together.
    segment* from = nullptr;
    std::uint32_t of_segment = 0, dropped = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const word_t home = at_primary ? r.objects[i].home : word::unknown;
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
      if (code == errc::ok) px.home.store(home, std::memory_order_relaxed);
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
        word.store(home, std::memory_order_release);
        ++dropped;
        note_left(r.objects[i].slot, s, shape, home);
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
  if (code != errc::ok) note_refusal(refused_by, code);
  r.objects.clear();
}

bool evictor::batch_record::make_room() noexcept try {
  if (objects.size() == objects.capacity()) objects.reserve(std::max(limits::batch_objects_first, 2 * objects.size()));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void evictor::batch_record::give_back_batches(object_cache& cache) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) cache.agents()[members[i].agent]->submit(members[i].batch);
  count = 0;
}

evictor::batch_record* evictor::take_record() noexcept try {
  const std::lock_guard lock(records_mutex_);
  if (free_records_.empty()) {
    records_.push_back(std::make_unique<batch_record>());
    records_.back()->owner = this;
    free_records_.push_front(*records_.back());
  }
  batch_record& r = free_records_.front();
  free_records_.pop_front();
  r.number = ++batches_begun_;
  r.count = 0;
  return &r;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void evictor::give_back_record(batch_record* r) noexcept {
  const std::lock_guard lock(records_mutex_);
  r->number = 0;
  free_records_.push_front(*r);
}

errc evictor::drain(time_point deadline) {
  FM_CHECK(this_thread.depth == 0, "drain inside a scope would wait for itself");
  for (std::size_t i = 0; i < cache_.agents().size(); ++i)  // what was before does not end this; a loss is for good
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
      cache_.detached().poll();  // for what was fetched ahead nobody else may be looking
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
