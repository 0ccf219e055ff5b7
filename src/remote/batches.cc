// Write-back: batches from begin_batch to their acknowledgement. See the state diagram in agent_session_impl.h.
// Here are carving (begin_batch), numbering (submit), the one sender, the meaning of completions, and the deliverer,
// which keeps order.
// Called by the cache's write-back, and by the session's completions.
#include "base/base.h"
#include <algorithm>
#include <bit>

#include "agent_session_impl.h"

namespace fm::remote::internal {

// ---- under construction ----

batch* agent_session_impl::begin_batch(std::uint64_t bytes_min, time_point deadline, errc& why) noexcept {
  why = errc::ok;
  if (bytes_min > region_bytes_ / 2) {
    why = errc::too_large;
    return nullptr;
  }
  const auto need =
      static_cast<std::uint32_t>(detail::round_up(bytes_min, 8) + sizeof(batch_header) + region_book::rest_bytes_min);
  lock_type lock(mutex_);
  bool waits_for_region = false;
  flight* f = nullptr;
  for (;;) {
    if (const ended e = ended_.load(std::memory_order_relaxed); e != ended::no) {
      why = e == ended::lost ? errc::agent_lost : errc::heap_closed;
      break;
    }
    const bool room = taken_ < options_.batches_in_flight;
    carve place;
    bool got = false;
    try {
      got = room && book_.take(need, place);
    } catch (const std::bad_alloc&) {
      why = errc::out_of_memory;
      break;
    }
    if (got) {
      f = reserve_flight() ? new_flight(place) : nullptr;
      if (f) {
        ++taken_;
      } else {
        book_.given_back(place);
        why = errc::out_of_memory;
      }
      if (!opening_region_ && book_.wants_region()) wake_keeper();
      break;
    }
    if (room && !waits_for_region) {
      waits_for_region = true;
      ++waiting_for_region_;
    }
    // Asked for before the deadline is looked at: a caller that does not wait comes again and must find one then.
    if (room && !opening_region_) {
      want_region_ = true;
      wake_keeper();
    }
    if (clock::now() >= deadline) {
      // A region that came back since is asked for again: the refusal is old.
      const bool refused = open_error_ != errc::ok && left_.load(std::memory_order_relaxed) == 0;
      why = room && refused ? open_error_ : errc::timed_out;
      break;
    }
    changed_.wait_until(lock, deadline);
  }
  if (waits_for_region) --waiting_for_region_;
  return f;
}

// A batch that is under construction has its place in flights_ already: nothing that it still has in front of it
// allocates.
bool agent_session_impl::reserve_flight() noexcept try {
  const std::size_t wanted = flights_.size() + (taken_ - in_flight_) + 1;
  if (flights_.capacity() < wanted) flights_.set_capacity(2 * wanted);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

flight* agent_session_impl::new_flight(const carve& place) noexcept {
  if (flights_free_.empty()) try {
      if (flights_free_.capacity() <= flights_owned_.size()) flights_free_.reserve(2 * flights_owned_.size() + 8);
      flights_owned_.push_back(std::make_unique<flight>());
      flights_free_.push_back(flights_owned_.back().get());
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  flight* f = flights_free_.back();
  if (!place.memory && f->staging_bytes < place.bytes && !make_staging(*f, place.bytes)) return nullptr;
  flights_free_.pop_back();
  static_cast<batch&>(*f) = batch{};
  f->data = place.memory ? place.memory : f->staging.get();
  f->capacity = place.bytes - region_book::rest_bytes_min;
  f->region = place.region;
  f->generation = place.generation;
  f->offset = place.offset;
  f->link = this;
  f->place = place;
  f->state = flight_state::building;
  f->in_place = place.memory != nullptr;
  f->abandoned = f->retried = false;
  f->sent_generation = f->breaks = 0;
  f->code = errc::ok;
  return f;
}

// A batch's bytes, lent to the session for as long as they exist. With none of the flight's requests in flight.
bool agent_session_impl::make_staging(flight& f, std::uint32_t bytes) {
  if (f.staging) session().take_back(f.staging.get(), f.staging_bytes, true);
  f.staging.reset(bytes != 0 ? new (std::nothrow) std::byte[bytes] : nullptr);
  f.staging_bytes = f.staging ? bytes : 0;
  if (f.staging) session().lend(f.staging.get(), bytes, std::bit_ceil(bytes));
  return f.staging != nullptr;
}

void agent_session_impl::recycle(flight& f) {
  // A buffer for one large object is not worth keeping.
  if (f.staging_bytes > std::max<std::uint64_t>(options_.batch_bytes, 4_KiB)) make_staging(f, 0);
  flights_free_.push_back(&f);
}

// ---- numbering ----

void agent_session_impl::enqueue(flight& f, flight_state s) {
  f.seq = next_seq_++;
  f.state = s;
  f.message = frame(message_type::index, index_body{.incarnation = options_.incarnation,
                                                    .seq = f.seq,
                                                    .region = f.region,
                                                    .generation = f.generation,
                                                    .offset = f.offset,
                                                    .length = f.used,
                                                    .crc = 0,
                                                    .count = f.count,
                                                    .flags = f.abandoned ? index_abandoned
                                                             : f.imports ? index_import
                                                                         : 0});
  FM_CHECK(!flights_.full(), "a batch has its place before it is numbered");
  flights_.push_back(&f);
}

// Room that nothing will be written to gets a number and an abandoned index of its own.
void agent_session_impl::close_gaps() noexcept {
  while (const auto gap = book_.gap_to_close()) {
    static std::byte nothing{};  // a carve in place needs no buffer, and an abandoned batch writes none
    flight* f = nullptr;
    if (reserve_flight())
      f = new_flight({.region = gap->region,
                      .generation = gap->generation,
                      .offset = gap->offset,
                      .bytes = gap->bytes,
                      .memory = &nothing});
    if (!f) return short_of_memory();
    book_.begin_closing(*gap);
    f->used = gap->bytes;
    f->abandoned = true;
    enqueue(*f, flight_state::queued);
  }
}

void agent_session_impl::submit(batch* b) noexcept {
  flight& f = *static_cast<flight*>(b);
  FM_CHECK(f.state == flight_state::building, "a batch is submitted once");
  FM_CHECK(f.used <= f.capacity && f.used % 8 == 0 && f.used >= sizeof(batch_header),
           "a batch is filled within its bounds");
  if (f.count == 0) {
    {
      const lock_type lock(mutex_);
      book_.given_back(f.place);
      --taken_;
      recycle(f);
      close_gaps();
      changed_.notify_all();
      if (book_.can_seal()) wake_keeper();
    }
    send_queued();
    return;
  }
  {
    const lock_type lock(mutex_);
    book_.submitted(f.place, f.used);
    enqueue(f, flight_state::preparing);
    ++in_flight_;
    close_gaps();
  }
  // The number is part of the checksum, so it comes first; others may be numbered and checksummed meanwhile, and the
  // sender waits for whoever is oldest.
  batch_header h{.magic = batch_magic, .crc = 0, .seq = f.seq, .length = f.used, .count = f.count};
  std::memcpy(f.data, &h, sizeof h);
  h.crc = detail::crc32c(f.data, f.used);
  std::memcpy(f.data, &h, sizeof h);
  f.message.body.crc = h.crc;
  count_.batches.fetch_add(1, std::memory_order_relaxed);
  count_.batch_bytes.fetch_add(f.used, std::memory_order_relaxed);
  count_.objects.fetch_add(f.count, std::memory_order_relaxed);
  {
    const lock_type lock(mutex_);
    f.state = flight_state::queued;
  }
  send_queued();
  if (ended_.load(std::memory_order_acquire) != ended::no) deliver();
}

// ---- sending ----

void agent_session_impl::send_queued() noexcept {
  lock_type lock(mutex_);
  if (sending_) return;  // whoever is sending looks again before it stops
  sending_ = true;
  send_list& out = send_list_;
  out.clear();
  while (collect(out)) {
    lock.unlock();
    session().post(out);
    out.clear();
    lock.lock();
  }
  sending_ = false;
}

// The next batches in sequence, armed; false when there are none to be sent now.
bool agent_session_impl::collect(send_list& out) {
  const std::uint32_t generation = rewinding_ ? 0 : usable_generation();
  if (generation == 0) return false;
  const time_point now = clock::now();
  std::size_t batches = 0;
  for (; send_at_ < flights_.size() && batches < detail::limits::batches_sent_at_once; ++send_at_) {
    flight& f = *flights_[send_at_];
    if (f.state == flight_state::preparing || f.state == flight_state::refused) break;
    if (f.state == flight_state::indexed || f.seq <= applied_) continue;
    const std::uint32_t types_before = types_sent_;
    if (!f.abandoned && !send_types(out, generation)) {
      short_of_memory();
      break;
    }
    arm(f);
    f.index.fence = types_sent_ != types_before;  // the agent knows the types before it looks at the batch
    if (!f.abandoned && !f.in_place) out.push_back(&f.write);
    out.push_back(&f.index);
    if (f.sent_generation != 0) count_.resent.fetch_add(1, std::memory_order_relaxed);
    f.sent_generation = generation;
    f.sent_at = now;
    f.state = flight_state::posted;
    ++posted_;
    ++batches;
  }
  return !out.empty();
}

bool agent_session_impl::send_types(send_list& out, std::uint32_t generation) noexcept try {
  for (errand_list one = types_errand(types_sent_); !one.empty(); one = types_errand(types_sent_)) {
    if (out.capacity() - out.size() <= detail::limits::batches_sent_at_once * 2) out.reserve(2 * out.capacity());
    errand& e = one.front();
    types_sent_ = e.types_to;
    e.session_generation = generation;
    make_message(e.request, fabric::lane::bulk, e.message.data(), e.message.size());
    out.push_back(&e.request);
    errands_.splice(errands_.end(), one);
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;  // those that were made go before whichever batch comes next
}

void agent_session_impl::arm(flight& f) {
  const bool writes = !f.in_place && !f.abandoned;
  f.requests.store(writes ? 2 : 1, std::memory_order_relaxed);
  rearm(f.index);
  make_message(f.index, fabric::lane::bulk, &f.message, sizeof f.message);
  f.index.context = &f;
  f.index.on_done = one_done;
  rearm(f.write);
  if (!writes) return;
  f.write.kind = fabric::op_kind::write;
  f.write.on = fabric::lane::bulk;
  f.write.sg_count = 1;
  f.write.sg[0] = {.data = f.data, .bytes = f.used};
  f.write.where = {.region = f.region, .generation = f.generation, .offset = f.offset};
  f.write.context = &f;
  f.write.on_done = one_done;
}

// ---- completions ----

void agent_session_impl::one_done(fabric::request& r) noexcept {
  flight& f = *static_cast<flight*>(r.context);
  if (f.requests.fetch_sub(1, std::memory_order_acq_rel) == 1) f.link->completed(f);
}

void agent_session_impl::completed(flight& f) noexcept {
  {
    const lock_type lock(mutex_);
    --posted_;
    const errc written = f.write.status;  // ok when there was nothing to write
    answer_view a;
    a.code = f.index.status;
    if (a.code == errc::ok) {
      heard();
      a = parse_answer(f.index.reply, message_type::index);
      index_answer body;
      if (a.code == errc::ok && take(a.body, body) && body.applied_seq >= f.seq && body.applied_seq < next_seq_) {
        f.state = flight_state::indexed;
        applied_ = std::max(applied_, body.applied_seq);
        rewinds_in_vain_ = 0;
      } else if (a.code == errc::ok || a.code == errc::bad_frame) {
        a.code = errc::disconnected;  // not an answer that can be believed
        break_soon(f.index.generation);
        ++rewinds_in_vain_;
      } else if (written == errc::ok ? a.code != errc::out_of_memory : !is_to_be_repeated(written)) {
        f.state = flight_state::refused;
        f.code = written == errc::ok ? a.code : written;
        ++rewinds_in_vain_;
      }
    } else if (!is_to_be_repeated(a.code)) {
      f.state = flight_state::refused;
      f.code = a.code;
    }
    if (f.state == flight_state::posted) {
      f.state = flight_state::queued;
      if (a.code == errc::out_of_memory || written == errc::out_of_memory) short_of_memory();
      if (a.code == errc::disconnected || written == errc::disconnected) {
        saw_break(f.sent_generation);
        if (&f == flights_.front() && ++f.breaks >= detail::limits::breaks_max) {
          f.state = flight_state::refused;
          f.code = errc::disconnected;
        }
      }
      // A connection on which a batch timed out is replaced: only the handshake tells what was applied.
      if (a.code == errc::timed_out || written == errc::timed_out) break_soon(f.index.generation);
    }
    if (f.state != flight_state::indexed) rewinding_ = true;
    if (rewinds_in_vain_ > 64) end_with_ = errc::bad_frame;
    if (rewinding_ && posted_ == 0) finish_rewind();
    if (end_with_ != errc::ok) wake_keeper();
  }
  deliver();
}

// Sending starts again at the oldest batch, once everything that is posted has come back.
void agent_session_impl::rewind() {
  rewinding_ = true;
  if (posted_ == 0) finish_rewind();
}

void agent_session_impl::finish_rewind() {
  rewinding_ = false;
  send_at_ = 0;
  // What the agent refused because something before it was missing is sent again after that.
  for (std::size_t i = 1; i < flights_.size(); ++i)
    if (flights_[i]->state == flight_state::refused && flights_[i]->code == errc::stale)
      flights_[i]->state = flight_state::queued;
  wake_keeper();
}

// ---- acknowledgements ----

std::size_t agent_session_impl::deliver() noexcept {
  lock_type lock(mutex_);
  if (delivering_) return 0;  // whoever is delivering looks again before it stops
  delivering_ = true;
  const std::uint64_t before = acknowledgements_;
  while (!flights_.empty() && deliver_front(lock)) {
  }
  delivering_ = false;
  if (book_.can_seal()) wake_keeper();
  return acknowledgements_ - before;
}

bool agent_session_impl::deliver_front(lock_type& lock) {
  flight& f = *flights_.front();
  if (f.state == flight_state::preparing || f.state == flight_state::posted) return false;
  const ended over = ended_.load(std::memory_order_relaxed);
  const bool applied = f.seq <= applied_;
  if (applied || over != ended::no) {
    errc code = over == ended::lost ? errc::agent_lost : errc::cancelled;
    if (applied) code = f.state == flight_state::refused ? f.code : errc::ok;
    flights_.pop_front();
    if (send_at_ > 0) --send_at_;
    if (applied) book_.acknowledged(f.region, f.generation, f.offset, f.message.body.length);
    tell(lock, f, code);
    recycle(f);
    return true;
  }
  if (f.state != flight_state::refused || rewinding_) return false;
  if (f.code == errc::stale && !f.retried) {
    f.retried = true;
    f.state = flight_state::queued;
    rewind();
    return false;
  }
  if (f.abandoned) {
    // The agent does not even skip it: the numbering cannot go on.
    end_with_ = f.code;
    wake_keeper();
    return false;
  }
  // Told first; then the number is sent again as abandoned. Until then the sender stops at a refused batch.
  tell(lock, f, types_refused_ != errc::ok ? types_refused_ : f.code);
  f.abandoned = true;
  f.retried = false;
  f.breaks = 0;
  f.message.body.flags = index_abandoned;
  f.message.body.count = 0;
  f.message.body.crc = 0;
  f.state = flight_state::queued;
  rewind();
  return true;
}

// Calls the owner, without the lock, unless nobody owns the batch any more.
void agent_session_impl::tell(lock_type& lock, flight& f, errc code) {
  if (!f.abandoned) {
    lock.unlock();
    if (f.on_acknowledged) f.on_acknowledged(f, code);
    lock.lock();
    --taken_;
    --in_flight_;
    ++acknowledgements_;
  }
  told_ = std::max(told_, f.seq);
  changed_.notify_all();
}

std::size_t agent_session_impl::poll() noexcept {
  session().poll();
  return deliver();
}

errc agent_session_impl::flush(time_point deadline) noexcept {
  session().poll();
  deliver();
  lock_type lock(mutex_);
  const std::uint64_t last = next_seq_ - 1;
  changed_.wait_until(lock, deadline, [&] { return told_ >= last; });
  if (told_ < last) return errc::timed_out;
  return ended_.load(std::memory_order_relaxed) == ended::lost ? errc::agent_lost : errc::ok;
}

}  // namespace fm::remote::internal
