// Allocating: slots from the thread's run, frames from the thread's segment, one object or several of one shape at a
// time. Members of object_cache.
//
// Invariant: a slot is taken from its run, its word published and its object rooted in one section, so that no snapshot
// lies between. Its frame is bumped in that section, too, or its segment counts it as being fetched until then. An
// object is young and dirty from the moment at which its word is published.
#include "cache/eviction/evictor.h"
#include "cache/memory/access_wait.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

namespace {

// The section that has begun, which ends with this unless it is kept.
class section_until_kept {
 public:
  section_until_kept() noexcept = default;
  ~section_until_kept() {
    if (!kept_) epochs::leave();
  }
  section_until_kept(const section_until_kept&) = delete;
  section_until_kept& operator=(const section_until_kept&) = delete;
  void keep() noexcept { kept_ = true; }

 private:
  bool kept_ = false;
};

// Keeps a frame that has no word yet while its thread is outside of sections: its segment counts it as being fetched,
// and is neither cooled nor swept. It begins in the section that has bumped the frame, and ends in one.
class kept_over_wait {
 public:
  kept_over_wait(arena& memory, const char* payload) noexcept : segment_(memory.of(payload)) { segment_.hold(); }
  ~kept_over_wait() { segment_.end_hold(); }
  kept_over_wait(const kept_over_wait&) = delete;
  kept_over_wait& operator=(const kept_over_wait&) = delete;

 private:
  segment& segment_;
};

}  // namespace

std::uint64_t object_cache::checked_payload_bytes(const type_descriptor& type, std::uint64_t length) {
  if (unusual_.load(std::memory_order_acquire) != 0) {
    if (closed()) throw error(errc::heap_closed, fmt::format("allocating a {}", type.name));
    const access_wait outside(pressure_);  // a snapshot holds the sources while its pause waits for sections
    slots_.leave_lost(here());
  }
  // Checked before the size is computed, which could overflow.
  if (type.kind == type_kind::array && type.bytes != 0 && length > object_bytes_max() / type.bytes)
    throw error(
        errc::too_large,
        fmt::format(
            "{} of {} elements: an object has at most {} bytes (half a region, a quarter of the cache); use fm::vector",
            type.name, length, object_bytes_max()));
  const std::uint64_t payload_bytes = type.payload_bytes(length);
  if (payload_bytes + header::bytes > object_bytes_max())
    throw error(errc::too_large,
                fmt::format("{} of {} bytes: an object has at most {} bytes (half a region, a quarter of the cache)",
                            type.name, payload_bytes, object_bytes_max()));
  return payload_bytes;
}

// A frame and a slot, in the section that has begun. The frame comes first: it is kept over the wait for slots, and of
// slots there are always enough.
char* object_cache::have_room(mutator& m, std::uint64_t payload_bytes, std::uint64_t together) {
  bool left = false;
  char* const payload = pressure_.frame_in_section(m, 0, payload_bytes, left, waits_as::maker);
  if (left) memory().of(payload).end_hold();  // nothing is written here that a walk would read
  if (!m.has_slot() || slots_.outgrew_run(m)) have_slot(m, payload, together);
  return payload;
}

// What takes long is written outside of the section here, too. Slots may be taken back meanwhile.
template <class Write>
char* object_cache::write_with_room(mutator& m, std::uint64_t payload_bytes, const Write& write) {
  char* const payload = have_room(m, payload_bytes, 1);
  if (payload_bytes <= limits::written_in_section || this_thread.depth != 1) {
    write(payload);
    return payload;
  }
  {
    const kept_over_wait kept(memory(), payload);
    const access_wait outside(pressure_);
    write(payload);
  }
  have_slot(m, payload, 1);
  return payload;
}

void object_cache::count_allocated(mutator& m, std::uint64_t objects, std::uint64_t payload_bytes) noexcept {
  m.objects_unreported += objects;
  if ((m.allocated_unreported += objects * (payload_bytes + header::bytes)) >= limits::report_every)
    requests_.report(m);
  m.counters.allocated_objects += objects;
  m.counters.allocated_bytes += objects * payload_bytes;
}

void object_cache::have_slot(mutator& m, char* payload, std::uint64_t together) {
  bool leaves = slots_.outgrew_run(m);
  while (leaves || !slots_.next_run(m)) {
    try {
      const kept_over_wait kept(memory(), payload);
      const access_wait outside(pressure_);
      if (std::exchange(leaves, false)) slots_.leave_run(m);
      slots_.refill(m, together);
    } catch (...) {
      frames_.unbump(m.made, payload);
      throw;
    }
  }
}

namespace {

void write_contents(char* payload, std::uint64_t payload_bytes, const std::uint64_t* length, const void* init,
                    std::uint64_t init_bytes) noexcept {
  char* body = payload;
  std::uint64_t room = payload_bytes;
  if (length) {
    std::memcpy(body, length, 8);
    body += 8;
    room -= 8;
  }
  if (init_bytes != 0) std::memcpy(body, init, init_bytes);
  if (room > init_bytes) std::memset(body + init_bytes, 0, room - init_bytes);
}

}  // namespace

new_object object_cache::allocate(const type_descriptor& type, std::uint64_t length, const void* init,
                                  std::uint64_t init_bytes) {
  const std::uint64_t payload_bytes = checked_payload_bytes(type, length);
  mutator& m = here();
  const auto write = [&](char* payload) {
    write_contents(payload, payload_bytes, type.kind == type_kind::array ? &length : nullptr, init, init_bytes);
  };
  // A pause waits neither for the writing nor for the page faults of memory that is used for the first time.
  m.begin_new();
  char* payload = frames_.bump_leased(m.made, payload_bytes);
  if (payload) [[likely]]
    write(payload);
  // The section stays open until the new_object dies: taken, published and rooted with no snapshot in between.
  epochs::enter();
  m.end_new();
  if (!payload || !m.has_slot()) [[unlikely]] {
    section_until_kept in_section;
    if (payload)
      have_slot(m, payload, 1);
    else
      payload = write_with_room(m, payload_bytes, write);
    in_section.keep();
  }
  count_allocated(m, 1, payload_bytes);
  const slot_t slot = m.next_slot++;
  pages_.open(slot);
  frame::prefix(payload).header.store(header::pack(type.id, slot), std::memory_order_relaxed);
  word_at(slot).store(word::resident(payload, 0), std::memory_order_release);
  note_dirty(slot);
  frames_.settle(m.made);
  return new_object(slot);
}

// The frames of one segment lie back to back, and a thread's run of slots is consecutive: what both have room for goes
// together.
taken_slots object_cache::begin_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count) {
  const std::uint64_t payload_bytes = checked_payload_bytes(type, length);
  mutator& m = here();
  epochs::enter();
  section_until_kept in_section;
  char* const payload = have_room(m, payload_bytes, count);
  in_section.keep();
  bump& b = m.made;
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  std::uint64_t n = 1;
  // The section may have been left since the frame was bumped: then the piece is perhaps somebody else's.
  if (!b.large && b.limit.load(limit_order) != nullptr && b.own.at == payload - sizeof(frame_prefix) + total)
    n += std::min({count - 1, b.own.room() / total, m.end_slot.load(std::memory_order_relaxed) - m.next_slot - 1});
  if (n > 1) reuse_memory(b.own.at, (n - 1) * total);
  for (std::uint64_t i = 1; i < n; ++i, b.own.at += total) {
    frame_prefix& px = *reinterpret_cast<frame_prefix*>(b.own.at);
    px.home.store(0, std::memory_order_relaxed);
    px.pins.store(0, std::memory_order_relaxed);
    px.shape.store(static_cast<std::uint32_t>(total / frame::unit_bytes), std::memory_order_relaxed);
    px.header.store(0, std::memory_order_relaxed);
  }
  count_allocated(m, n, payload_bytes);
  const slot_t first = m.next_slot;
  m.next_slot += n;
  return {first, n, payload, total};
}

void object_cache::publish_together(const taken_slots& t, const type_descriptor& type) {
  char* payload = t.payload;
  for (slot_t slot = t.first; slot < t.first + t.count;) {
    const slot_t of_page = slot, end = std::min(t.first + t.count, (slot / page_slots + 1) * page_slots);
    pages_.open(of_page);
    for (; slot < end; ++slot, payload += t.stride) {
      frame::prefix(payload).header.store(header::pack(type.id, slot), std::memory_order_relaxed);
      word_at(slot).store(word::resident(payload, 0), std::memory_order_release);
    }
    note_dirty(of_page);
  }
  frames_.settle(here().made);
}

}  // namespace fm::detail
