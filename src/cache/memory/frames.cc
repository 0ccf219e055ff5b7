// Bump allocation, moves and touches of frames; see frames.h.
//
// Invariant: a frame's prefix is complete before anybody can find the frame, and memory of the segment beyond it stays
// retired (frames/retire_frame.h).
#include "cache/memory/frames.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

frame_space::frame_space(object_cache& cache, const cache_options& options)
    : cache_(cache),
      arena_(options.capacity_bytes, options.capacity_bytes_most, options.segment_bytes, options.dumped) {
  if (arena_.capacity_segments() < limits::segments_min)
    throw error(errc::invalid_argument,
                fmt::format("cache of {} bytes: at least {} segments of {} bytes are needed", options.capacity_bytes,
                            limits::segments_min, options.segment_bytes));
  expect_threads(0, 0);
}

// A segment for each of a few threads, whether they fill one now or will in their next section; for more of them that do
// so now, a portion of one.
void frame_space::expect_threads(std::size_t threads, std::size_t filling) noexcept {
  const std::lock_guard lock(reserve_mutex_);
  threads_ = threads;
  filling_ = filling;
  reserve_for_threads();
}

void frame_space::note_capacity() noexcept {
  const std::lock_guard lock(reserve_mutex_);
  reserve_for_threads();
}

// With reserve_mutex_ held.
void frame_space::reserve_for_threads() noexcept {
  const std::uint32_t n = arena_.capacity_segments();
  const std::uint64_t some = std::min<std::uint64_t>(threads_, n / limits::reserve_share_of_few);
  const std::uint64_t more =
      (filling_ - std::min<std::uint64_t>(filling_, some)) * limits::reserve_of_one_of_many / arena_.segment_bytes();
  const std::uint64_t wanted = std::max<std::uint64_t>(std::max(2u, n / 32), threads_ == 0 ? 0 : 2 + some + more);
  for_threads_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(n / 4, wanted));
  set_reserve();
}

void frame_space::expect_large(std::uint64_t payload_bytes) noexcept {
  const std::lock_guard lock(reserve_mutex_);
  const std::uint32_t span = span_of(payload_bytes);
  span_most_.store(std::max(span_most(), span), std::memory_order_relaxed);
  for_large_ = std::max(for_large_, span + 2);
  large_until_.store(arena_.release_count() + arena_.capacity_segments(), std::memory_order_relaxed);
  expects_large_.store(true, std::memory_order_relaxed);
  set_reserve();
  // A level that was given up is worth a wait again: such an object takes much.
  if (arena_.gate_level() < wanted_at_gate()) arena_.rearm_gate_level();
}

void frame_space::note_refusing(bool begins) noexcept {
  const std::lock_guard lock(reserve_mutex_);
  refusing_.fetch_add(begins ? 1u : ~0u, std::memory_order_relaxed);
  set_reserve();
}

// With reserve_mutex_ held.
void frame_space::set_reserve() noexcept {
  const std::uint32_t all = std::max(for_threads_, for_large_);
  reserve_.store(all, std::memory_order_relaxed);
  if (!keeps_for_reads() || all < reserve_before_.load(std::memory_order_relaxed))
    reserve_before_.store(all, std::memory_order_relaxed);
  if (const std::uint32_t wanted = wanted_at_gate(); wanted != std::exchange(at_gate_, wanted))
    arena_.change_gate_level(wanted);
}

char* frame_space::room_for(bump& b, std::uint64_t total, std::uint32_t leave, bool in_turn) {
  in_turn &= b.kind != fill_kind::kept;
  if (expects_large_.load(std::memory_order_relaxed) &&
      static_cast<std::int32_t>(arena_.release_count() - large_until_.load(std::memory_order_relaxed)) >= 0) {
    const std::lock_guard lock(reserve_mutex_);
    expects_large_.store(false, std::memory_order_relaxed);
    for_large_ = 0;
    set_reserve();
  }
  if (total > arena_.segment_bytes() / 2) expect_large(total - sizeof(frame_prefix));
  if (total + 8 <= arena_.segment_bytes()) return cache_.leases().room(b, total, leave, in_turn);
  if (in_turn && cache_.pressure().is_turn_of_another(b, leave)) return nullptr;
  const auto span = static_cast<std::uint32_t>((total + 8 + arena_.segment_bytes() - 1) / arena_.segment_bytes());
  segment* s = arena_.take(span, leave);
  if (!s) return nullptr;
  s->used = 8 + total;
  s->kind = b.kind;
  s->warm = true;
  b.large = s;
  return s->base + 8;
}

namespace {

char* begin_frame(char* at, std::uint64_t total) noexcept {
  reuse_memory(at, total);
  char* payload = at + sizeof(frame_prefix);
  frame_prefix& px = frame::prefix(payload);
  px.home.store(0, std::memory_order_relaxed);
  px.pins.store(0, std::memory_order_relaxed);
  px.shape.store(static_cast<std::uint32_t>(total / frame::unit_bytes), std::memory_order_relaxed);
  px.header.store(0, std::memory_order_relaxed);
  return payload;
}

// The limit is null when nothing is left, or the rest is perhaps somebody else's by now: then the rest is not looked at.
char* take_leased(bump& b, std::uint64_t total) noexcept {
  char* const limit = b.limit.load(limit_order);
  if (limit == nullptr || static_cast<std::uint64_t>(limit - b.own.at) < total) return nullptr;
  return std::exchange(b.own.at, b.own.at + total);
}

}  // namespace

char* frame_space::bump_leased(bump& b, std::uint64_t payload_bytes) noexcept {
  settle(b);
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  char* const at = take_leased(b, total);
  return at ? begin_frame(at, total) : nullptr;
}

char* frame_space::bump_frame(bump& b, std::uint64_t payload_bytes, std::uint32_t leave, bool in_turn) {
  settle(b);
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  char* at = take_leased(b, total);
  if (!at) at = room_for(b, total, leave, in_turn);
  return at ? begin_frame(at, total) : nullptr;
}

void frame_space::unbump(bump& b, char* payload) noexcept {
  const std::uint64_t total = frame::total_bytes_of(payload);
  if (b.large && payload == b.large->base + 8 + sizeof(frame_prefix)) {
    arena_.release(*b.large);
    b.large = nullptr;
  } else if (b.limit.load(limit_order) != nullptr && b.own.at == payload - sizeof(frame_prefix) + total) {
    b.own.at -= total;
    b.own.warm = std::min(b.own.warm, b.own.at);
    retire_memory(b.own.at, total);
  } else {
    retire_frame(payload);  // it stays as a frame without a header, which the sweep passes over
  }
}

void frame_space::settle_large(bump& b) noexcept {
  arena_.retire(*b.large, b.large->used, false);
  b.large = nullptr;
}

void frame_space::move_frame(char* from, char* to) noexcept {
  frame_prefix& old = frame::prefix(from);
  frame_prefix& px = frame::prefix(to);
  const std::uint32_t shape = old.shape.load(std::memory_order_relaxed);
  px.home.store(old.home.load(std::memory_order_relaxed), std::memory_order_relaxed);
  px.header.store(old.header.load(std::memory_order_relaxed), std::memory_order_relaxed);
  std::memcpy(to, from, frame::total_bytes_of(from) - sizeof(frame_prefix));
  px.shape.fetch_or(shape & frame::writing_bit, std::memory_order_relaxed);
  if ((shape & frame::writing_bit) != 0) {
    arena_.of(to).writing.fetch_add(1, std::memory_order_relaxed);
    arena_.of(from).writing.fetch_sub(1, std::memory_order_acq_rel);
  }
}

// A fetch in flight writes headers that may name anything. Other threads' are in other pieces, but the count is the
// segment's.
void frame_space::cool(piece& p) noexcept {
  if (!p.seg || p.warm == p.at) return;
  bool whole = p.seg->inflight.load(std::memory_order_acquire) == 0;
  for (char* at = p.warm; whole && at < p.at;) {
    char* const payload = at + sizeof(frame_prefix);
    at += frame::total_bytes_of(payload);
    const slot_t slot = header::slot(frame::prefix(payload).header.load(std::memory_order_relaxed));
    if (slot == 0 || slot >= hit.slots) continue;
    word_t w = word_at(slot).load(std::memory_order_relaxed);
    if (!word::is_resident(w)) whole = false;  // it is being fetched into this frame, or was put aside
    if (!word::is_resident(w) || word::payload(w) != payload || word::is_cold(w)) continue;
    whole = word_at(slot).compare_exchange_strong(w, w | word::cold_bit, std::memory_order_acq_rel);
  }
  p.seg->warm |= !whole;
  p.warm = p.at;
}

frame_space::relocated frame_space::relocate(std::atomic<word_t>& word, word_t seen, bump& to, std::uint32_t leave) {
  char* const old = word::payload(seen);
  // Nothing of the frame is copied before the word is ours: whoever touches the object until then may change it.
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen | word::busy_bit, std::memory_order_acq_rel))
    return relocated::touched;
  char* const payload = bump_frame(to, frame::total_bytes_of(old) - sizeof(frame_prefix), leave);
  if (!payload) {
    word.store(seen, std::memory_order_release);
    return relocated::no_memory;
  }
  move_frame(old, payload);
  retire_frame(old);
  word.store(word::resident(payload, seen & (word::cold_bit | word::clean_bit)), std::memory_order_release);
  return relocated::moved;
}

void frame_space::touch(mutator& m, std::atomic<word_t>& word, word_t seen) {
  m.counters.touches += 1;
  frame_prefix& px = frame::prefix(word::payload(seen));
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen & ~word::cold_bit, std::memory_order_acq_rel)) return;
  if ((px.shape.load(std::memory_order_relaxed) & frame::elastic_bit) != 0) {
    const word_t home = px.home.load(std::memory_order_relaxed);
    px.shape.fetch_and(~frame::elastic_bit, std::memory_order_relaxed);
    m.counters.elastic_touches += 1;
    if (!word::is_remote(home)) return;  // its agent has been replaced
    const slot_t slot = header::slot(px.header.load(std::memory_order_relaxed));
    cache_.misses()
        .windows(tablet_info_of(slot).agent.load(std::memory_order_relaxed))
        .stretch(home_address::unpack(home));
  }
}

}  // namespace fm::detail
