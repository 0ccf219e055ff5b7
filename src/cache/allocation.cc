// Allocating: slots from the agents' tablets, frames from the thread's segment, one object or several of one shape at a time.
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "retire_frame.h"

namespace fm::detail {

namespace {

// That a thread takes at a time: some HIT pages. A simulated program is too short to come to the end of many.
constexpr std::uint64_t slots_per_run = simulated ? 1024 : 2048;
constexpr std::uint32_t tablets_per_grant = simulated ? 1 : 4;
constexpr std::uint64_t report_every = 256 << 10;  // bytes that a thread allocates before the heap hears of them

// Before the frame is published.
void make_young(char* payload) noexcept {
  std::atomic<std::uint32_t>& shape = frame::prefix(payload).shape;
  shape.store(shape.load(std::memory_order_relaxed) | frame::young_bit, std::memory_order_relaxed);
}

}  // namespace

// Slots of dead objects come first: a page of them at a time. Then a run of a tablet that was never used.
void object_cache::refill_slots(mutator& m) {
  if (next_run(m)) return;
  for (std::size_t attempt = 0;; ++attempt) {
    const auto agent = static_cast<std::uint32_t>(m.next_agent++ % links_.size());
    slot_source& source = *slot_sources_[agent];
    const std::lock_guard lock(source.mutex);
    if (source.next == source.end && source.free_pages.empty()) {
      if (links_[agent]->lost()) {
        if (attempt < links_.size()) continue;  // another agent can still grant
        throw error(errc::agent_lost, links_[agent]->url());
      }
      const std::uint32_t first = take_tablets(this, agent, tablets_per_grant);
      if (const errc e = links_[agent]->grant_tablets(first, tablets_per_grant); e != errc::ok) {
        // Who was not heard of may have granted them: they are nobody's then, for good. With another agent they could be the same
        // slots twice, and each would take references to the other's for its own.
        if (e == errc::quota_exceeded || e == errc::agent_full) give_back_tablets(first, tablets_per_grant);
        if (attempt < links_.size()) continue;
        throw error(e, fmt::format("{} grants no tablets", links_[agent]->url()));
      }
      const std::lock_guard tablets_lock(tablets_mutex_);
      for (std::uint32_t t = first; t < first + tablets_per_grant; ++t) tablets_.push_back(t);
      source.next = first * tablet_slots;
      source.end = source.next + tablets_per_grant * tablet_slots;
    }
    if (m.filling_slots != 0) pages_.end_filling(m.filling, m.filling_slots);
    if (!source.free_pages.empty()) {
      m.rest = source.free_pages.back();
      source.free_pages.pop_back();
      m.filling = m.rest.first;
      m.filling_slots = page_slots;
    } else {
      m.filling = source.next;
      m.filling_slots = slots_per_run;
    }
    pages_.begin_filling(m.filling, m.filling_slots);
    if (m.filling_slots == page_slots) {
      next_run(m);
    } else {
      m.next_slot = source.next;
      m.end_slot = source.next += slots_per_run;
    }
    if (pages_.over()) evictor_->wake();
    return;
  }
}

void object_cache::expect_large(std::uint64_t payload_bytes) noexcept {
  const auto span = static_cast<std::uint32_t>((frame::total_bytes(payload_bytes) + 8) / arena_.segment_bytes() + 1);
  std::uint32_t seen = reserve_segments_.load(std::memory_order_relaxed);
  while (span + 2 > seen && !reserve_segments_.compare_exchange_weak(seen, span + 2)) {
  }
  if (reserve_segments_.load() > arena_.gate_level()) arena_.set_gate_level(reserve_segments_.load());
}

std::uint64_t object_cache::checked_payload_bytes(const type_descriptor& type, std::uint64_t length) const {
  if (closed()) throw error(errc::heap_closed, fmt::format("allocating a {}", type.name));
  // Checked before the size is computed, which could overflow.
  if (type.kind == type_kind::array && type.bytes != 0 && length > object_bytes_max_ / type.bytes)
    throw error(errc::too_large,
                fmt::format("{} of {} elements: an object has at most {} bytes (half a region); use fm::vector",
                            type.name, length, object_bytes_max_));
  const std::uint64_t payload_bytes = type.payload_bytes(length);
  if (payload_bytes + header::bytes > object_bytes_max_)
    throw error(errc::too_large, fmt::format("{} of {} bytes: an object has at most {} bytes (half a region)",
                                             type.name, payload_bytes, object_bytes_max_));
  return payload_bytes;
}

char* object_cache::frame_for_new(mutator& m, std::uint64_t payload_bytes) {
  if (payload_bytes + header::bytes > arena_.segment_bytes() / 2) expect_large(payload_bytes);
  char* payload = nullptr;
  const bool may_leave = this_thread.depth == 0;
  time_point deadline{};
  bool late = false;  // the deadline was over before the last attempt
  while (!(payload = bump_frame(m.young, false, payload_bytes,
                                may_leave ? reserve_segments_.load(std::memory_order_relaxed) : 0))) {
    if (!may_leave) return frame_for_miss(m, 0, payload_bytes, section_kind::used);
    if (late) throw_cache_full(payload_bytes);
    if (deadline == time_point{}) deadline = clock::now() + options_.memory_within;
    const auto span = static_cast<std::uint32_t>((frame::total_bytes(payload_bytes) + 8) / arena_.segment_bytes() + 1);
    wait_for_memory(reserve_segments_ + span, deadline);
    // Enough segments, but perhaps no run of them: eviction goes on, and the wait has an end.
    evictor_->help();
    late = clock::now() >= deadline;
  }
  return payload;
}

void object_cache::count_allocated(mutator& m, std::uint64_t objects, std::uint64_t payload_bytes) noexcept {
  m.objects_unreported += objects;
  if ((m.allocated_unreported += objects * (payload_bytes + header::bytes)) >= report_every) report_allocated(m);
  m.counters.allocated_objects += objects;
  m.counters.allocated_bytes += objects * payload_bytes;
}

new_object object_cache::allocate(const type_descriptor& type, std::uint64_t length, const void* init,
                                  std::uint64_t init_bytes) {
  const std::uint64_t payload_bytes = checked_payload_bytes(type, length);
  mutator& m = here();
  if (m.next_slot == m.end_slot) refill_slots(m);
  char* payload = frame_for_new(m, payload_bytes);
  make_young(payload);
  char* body = payload;
  std::uint64_t room = payload_bytes;
  if (type.kind == type_kind::array) {
    std::memcpy(body, &length, 8);
    body += 8;
    room -= 8;
  }
  if (init_bytes != 0) std::memcpy(body, init, init_bytes);
  if (room > init_bytes) std::memset(body + init_bytes, 0, room - init_bytes);
  count_allocated(m, 1, payload_bytes);
  epochs::enter();  // until the new_object dies: taken, published and rooted with no snapshot in between
  const slot_t slot = m.next_slot++;
  pages_.open(slot);
  frame::prefix(payload).header.store(header::pack(type.id, slot), std::memory_order_relaxed);
  word_at(slot).store(word::resident(payload, 0), std::memory_order_release);
  note_news(slot);
  settle(m.young);
  return new_object(slot);
}

// The frames of one segment lie back to back, and a thread's run of slots is consecutive: what both have room for goes together.
object_cache::taken object_cache::begin_together(const type_descriptor& type, std::uint64_t length,
                                                 std::uint64_t count) {
  const std::uint64_t payload_bytes = checked_payload_bytes(type, length);
  mutator& m = here();
  if (m.next_slot == m.end_slot) refill_slots(m);
  char* const payload = frame_for_new(m, payload_bytes);
  make_young(payload);
  bump& b = m.young;
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  std::uint64_t n = 1;
  if (!b.large && b.at == payload - sizeof(frame_prefix) + total)
    n += std::min({count - 1, static_cast<std::uint64_t>(b.end - b.at) / total, m.end_slot - m.next_slot - 1});
  unearth(b.at, (n - 1) * total);
  for (std::uint64_t i = 1; i < n; ++i, b.at += total) {
    frame_prefix& px = *reinterpret_cast<frame_prefix*>(b.at);
    px.home.store(0, std::memory_order_relaxed);
    px.pins.store(0, std::memory_order_relaxed);
    px.shape.store(static_cast<std::uint32_t>(total / frame::unit_bytes) | frame::young_bit, std::memory_order_relaxed);
    px.header.store(0, std::memory_order_relaxed);
  }
  count_allocated(m, n, payload_bytes);
  epochs::enter();  // as in allocate
  const slot_t first = m.next_slot;
  m.next_slot += n;
  return {first, n, payload, total};
}

void object_cache::publish_together(const taken& t, const type_descriptor& type) {
  for (std::uint64_t i = 0; i < t.count; ++i) {
    const slot_t slot = t.first + i;
    char* const payload = t.payload + i * t.stride;
    pages_.open(slot);
    frame::prefix(payload).header.store(header::pack(type.id, slot), std::memory_order_relaxed);
    word_at(slot).store(word::resident(payload, 0), std::memory_order_release);
    note_news(slot);
  }
  settle(here().young);
}

void object_cache::report_allocated(mutator& m) noexcept {
  objects_reported_.fetch_add(std::exchange(m.objects_unreported, 0), std::memory_order_relaxed);
  const std::uint64_t total =
      allocated_reported_.fetch_add(m.allocated_unreported, std::memory_order_relaxed) + m.allocated_unreported;
  m.allocated_unreported = 0;
  if (total >= tell_at_.load(std::memory_order_acquire)) ask_for_collection();
}

void object_cache::ask_for_collection() noexcept {
  if (tell_at_.exchange(~std::uint64_t{0}, std::memory_order_acq_rel) != ~std::uint64_t{0}) tell_(tell_context_);
}

void object_cache::collect_with(void (*f)(void*) noexcept, void* context, void (*log)(slot_t) noexcept) noexcept {
  log_ = log;
  tell_ = f;
  tell_context_ = context;
}

void object_cache::when_allocated(std::uint64_t bytes) noexcept {
  tell_at_.store(allocated_reported_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
}

}  // namespace fm::detail
