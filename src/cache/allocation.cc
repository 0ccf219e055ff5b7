// Allocating: slots from the thread's run, frames from the thread's segment, one object or several of one shape at a
// time. Members of object_cache.
//
// Invariant: a slot is taken from its run, its word published and its object rooted in one section, so that no snapshot
// lies between. A frame is young and dirty from the moment at which its word is published.
#include "access_wait.h"
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

namespace {

// Before the frame is published.
void make_young(char* payload) noexcept {
  std::atomic<std::uint32_t>& shape = frame::prefix(payload).shape;
  shape.store(shape.load(std::memory_order_relaxed) | frame::young_bit, std::memory_order_relaxed);
}

}  // namespace

std::uint64_t object_cache::checked_payload_bytes(const type_descriptor& type, std::uint64_t length) {
  if (unusual_.load(std::memory_order_acquire) != 0) {
    if (closed()) throw error(errc::heap_closed, fmt::format("allocating a {}", type.name));
    const access_wait outside(pressure_);  // a snapshot holds the sources while its pause waits for sections
    slots_.leave_lost(here());
  }
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
  if (payload_bytes + header::bytes > memory().segment_bytes() / 2) frames_.expect_large(payload_bytes);
  // A thread that holds frames uses the reserve: others wait for them.
  const bool holds = this_thread.depth != 0 && !epochs::holds_nothing();
  if (char* p = frames_.bump_frame(m.young, false, payload_bytes, holds ? 0 : frames_.reserve_of_new())) return p;
  const access_wait wait(pressure_);
  bool left = false;
  return wait.outside() ? pressure_.await_frame(m, payload_bytes, holds ? waits_as::holder : waits_as::maker)
                        : pressure_.frame_in_section(m, 0, payload_bytes, left);
}

void object_cache::refill_slots(mutator& m) {
  const access_wait outside(pressure_);
  slots_.refill(m);
}

void object_cache::count_allocated(mutator& m, std::uint64_t objects, std::uint64_t payload_bytes) noexcept {
  m.objects_unreported += objects;
  if ((m.allocated_unreported += objects * (payload_bytes + header::bytes)) >= limits::report_every)
    requests_.report(m);
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
  note_dirty(slot);
  frames_.settle(m.young);
  return new_object(slot);
}

// The frames of one segment lie back to back, and a thread's run of slots is consecutive: what both have room for goes
// together.
taken_slots object_cache::begin_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count) {
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
  reuse_memory(b.at, (n - 1) * total);
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

void object_cache::publish_together(const taken_slots& t, const type_descriptor& type) {
  for (std::uint64_t i = 0; i < t.count; ++i) {
    const slot_t slot = t.first + i;
    char* const payload = t.payload + i * t.stride;
    pages_.open(slot);
    frame::prefix(payload).header.store(header::pack(type.id, slot), std::memory_order_relaxed);
    word_at(slot).store(word::resident(payload, 0), std::memory_order_release);
    note_dirty(slot);
  }
  frames_.settle(here().young);
}

}  // namespace fm::detail
