// Bump allocation, moves and touches of frames; see frames.h.
//
// Invariant: a frame's prefix is complete before anybody can find the frame, and memory of the segment beyond it stays
// retired (frames/retire_frame.h).
#include "frames.h"
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cache/frames/retire_frame.h"

namespace fm::detail {

frame_space::frame_space(object_cache& cache, const cache_options& options)
    : cache_(cache), queues_(options.queues), arena_(options.capacity_bytes, options.segment_bytes) {
  if (arena_.capacity_segments() < limits::segments_min)
    throw error(errc::invalid_argument,
                fmt::format("cache of {} bytes: at least {} segments of {} bytes are needed", options.capacity_bytes,
                            limits::segments_min, options.segment_bytes));
  arena_.set_policy(options.queues);
  reserve_ = std::max(2u, arena_.capacity_segments() / 32);
  share_of_reads_ = std::max(limits::read_segments_min, arena_.capacity_segments() / limits::read_share);
  arena_.set_gate_level(reserve_);
}

void frame_space::expect_threads(std::size_t threads) noexcept {
  reserve_.store(std::min(arena_.capacity_segments() / 4,
                          std::max<std::uint32_t>(reserve_, 2 + static_cast<std::uint32_t>(threads))));
  arena_.set_gate_level(reserve_);
}

void frame_space::expect_large(std::uint64_t payload_bytes) noexcept {
  const std::uint32_t span = span_of(payload_bytes);
  for (std::uint32_t most = span_most(); span > most && !span_most_.compare_exchange_weak(most, span);) {
  }
  std::uint32_t seen = reserve_.load(std::memory_order_relaxed);
  while (span + 2 > seen && !reserve_.compare_exchange_weak(seen, span + 2)) {
  }
  if (reserve_.load() > arena_.gate_level()) arena_.set_gate_level(reserve_.load());
}

// A filled segment is now and then treated as hot at once (dcm's epsilon): of a scan that is longer than the cache, a
// part stays until the scan comes round again, where queues alone would evict every object just before it is wanted.
bool frame_space::promotes(mutator& m) const noexcept { return queues_.promotes(next_random(m.random)); }

char* frame_space::bump_frame(bump& b, bool proactive, std::uint64_t payload_bytes, std::uint32_t leave, bool in_turn) {
  settle(b);
  in_turn &= !proactive;
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  char* at = nullptr;
  if (total + 8 > arena_.segment_bytes()) {
    if (in_turn && cache_.pressure().is_turn_of_another(b, leave)) return nullptr;
    const auto span = static_cast<std::uint32_t>((total + 8 + arena_.segment_bytes() - 1) / arena_.segment_bytes());
    segment* s = arena_.take(span, leave);
    if (!s) return nullptr;
    s->used = 8 + total;
    b.large = s;
    at = s->base + 8;
  } else {
    if (!b.seg || total > static_cast<std::uint64_t>(b.end - b.at)) {
      if (in_turn && cache_.pressure().is_turn_of_another(b, leave)) return nullptr;
      segment* s = arena_.take(1, leave);
      if (!s) return nullptr;
      if (b.seg)
        arena_.retire(*b.seg, static_cast<std::uint64_t>(b.at - b.seg->base), proactive || promotes(cache_.here()));
      b.seg = s;
      b.at = s->base + 8;
      b.end = s->base + arena_.segment_bytes();
      if (arena_.available() < arena_.capacity_segments() / 8) cache_.eviction().wake();
    }
    at = b.at;
    b.at += total;
  }
  reuse_memory(at, total);
  char* payload = at + sizeof(frame_prefix);
  frame_prefix& px = frame::prefix(payload);
  px.home.store(0, std::memory_order_relaxed);
  px.pins.store(0, std::memory_order_relaxed);
  px.shape.store(static_cast<std::uint32_t>(total / frame::unit_bytes), std::memory_order_relaxed);
  px.header.store(0, std::memory_order_relaxed);
  return payload;
}

void frame_space::unbump(bump& b, char* payload) noexcept {
  const std::uint64_t total = frame::total_bytes_of(payload);
  if (b.large && payload == b.large->base + 8 + sizeof(frame_prefix)) {
    arena_.release(*b.large);
    b.large = nullptr;
  } else if (b.at == payload - sizeof(frame_prefix) + total) {
    b.at -= total;
    retire_memory(b.at, total);
  } else {
    retire_frame(payload);  // it stays as a frame without a header, which the sweep passes over
  }
}

void frame_space::settle(bump& b) noexcept {
  if (!b.large) return;
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
  px.shape.fetch_or(shape & (frame::writing_bit | frame::young_bit), std::memory_order_relaxed);
  if ((shape & frame::writing_bit) != 0) {
    arena_.of(to).writing.fetch_add(1, std::memory_order_relaxed);
    arena_.of(from).writing.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool frame_space::relocate(std::atomic<word_t>& word, word_t seen, bump& to, std::uint32_t leave) {
  char* old = word::payload(seen);
  // Nothing of the frame is looked at before the word is ours: it may be evicted until then, and its segment reused.
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen | word::busy_bit, std::memory_order_acq_rel)) return true;
  char* payload = nullptr;
  // A large object is its segment: moving it would gain nothing.
  if (arena_.of(old).span == 1 && frame::prefix(old).pins.load(std::memory_order_acquire) == 0)
    payload = bump_frame(to, true, frame::total_bytes_of(old) - sizeof(frame_prefix), leave);
  if (payload) {
    move_frame(old, payload);
    retire_frame(old);
    word.store(word::resident(payload, seen & word::clean_bit), std::memory_order_release);
    return true;
  }
  word.store(seen, std::memory_order_release);
  return false;
}

void frame_space::retire_segments(mutator& m) noexcept {
  for (bump* b : {&m.young, &m.kept}) {
    settle(*b);
    if (b->seg) arena_.retire(*b->seg, static_cast<std::uint64_t>(b->at - b->seg->base), b == &m.kept);
    *b = {};
  }
}

void frame_space::touch(mutator& m, std::atomic<word_t>& word, word_t seen) {
  m.counters.touches += 1;
  char* payload = word::payload(seen);
  frame_prefix& px = frame::prefix(payload);
  const std::uint64_t stamp = arena_.of(payload).cold_stamp.load(std::memory_order_acquire);
  const bool moved = stamp != 0 && epochs::passed(stamp) && relocate(word, seen, m.kept, 1);
  if (moved) {
    m.counters.relocations += 1;
    return;
  }
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen & ~word::cold_bit, std::memory_order_acq_rel)) return;
  if ((px.shape.load(std::memory_order_relaxed) & frame::elastic_bit) != 0) {
    px.shape.fetch_and(~frame::elastic_bit, std::memory_order_relaxed);
    m.counters.elastic_touches += 1;
    const slot_t slot = header::slot(px.header.load(std::memory_order_relaxed));
    cache_.misses()
        .windows(tablet_info_of(slot).agent.load(std::memory_order_relaxed))
        .stretch(home_address::unpack(px.home.load(std::memory_order_relaxed)));
  }
}

}  // namespace fm::detail
