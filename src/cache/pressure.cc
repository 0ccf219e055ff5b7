// The waits for memory, and the error that ends them; see pressure.h.
//
// Invariant: whoever sleeps has read the arena's release count before it looked for memory, so that a release in
// between ends the sleep.
#include "pressure.h"
#include "access_wait.h"
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

namespace fm::detail {

void memory_pressure::throw_cache_full(std::uint64_t bytes) {
  if (cache_.closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for memory");
  expired.fetch_add(1, std::memory_order_relaxed);
  if (const errc why = cache_.eviction().last_error(); why != errc::ok)
    throw error(why, fmt::format("no memory for {} bytes: write-back is refused by the agents", bytes));
  const epochs::section_site site = epochs::oldest_section();
  const arena::counts q = cache_.memory().queue_lengths();
  throw error(
      errc::cache_full,
      fmt::format(
          "no frame of {} bytes: the cache of {} bytes is full of pinned frames, open scopes or unacknowledged writes "
          "(segments: {} free, {} active, {} proactive, {} inactive, {} writing){}",
          bytes, cache_.options().capacity_bytes, q.free, q.active, q.proactive, q.inactive, q.writing,
          site.file
              ? fmt::format("; the longest open scope, for {} epochs, is at {}:{}", site.epochs, site.file, site.line)
              : ""));
}

bool memory_pressure::ask_for_room() noexcept {
  const errc refused = cache_.eviction().last_error();
  if (refused != errc::agent_full && refused != errc::quota_exceeded) return false;
  return cache_.requests().ask_for_room();
}

// A section that began although the agents take nothing more would use up the reserve, and could then not wait for a
// collection, whose pauses wait for it. So the collection is waited for here.
void memory_pressure::wait_at_gate(mutator& m, time_point deadline) noexcept {
  arena& memory = cache_.memory();
  if (memory.available() >= memory.gate_level()) return;
  const time_point begin = clock::now();
  m.counters.stalls_for_memory += 1;
  const std::uint32_t in_vain = cache_.requests().collected_in_vain();
  bool gives_up = false;
  while (memory.available() < memory.gate_level() && !cache_.closed() && !gives_up) {
    const std::uint32_t seen = memory.release_count();
    if (!cache_.eviction().help()) {
      // Nothing can be evicted; what refused it may be old, but then it takes back what it said with the next copy.
      if (cache_.eviction().last_error() != errc::ok && (this_thread.collects || !ask_for_room())) break;
      cache_.eviction().wake();
      memory.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
    }
    const bool late = clock::now() >= deadline;
    if (late) expired.fetch_add(1, std::memory_order_relaxed);
    gives_up = late || cache_.requests().collected_in_vain() - in_vain >= limits::collections_in_vain_max;
  }
  if (gives_up) memory.give_up_gate_level();
  stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
}

void memory_pressure::wait_for_memory(std::uint32_t segments, time_point deadline) {
  arena& memory = cache_.memory();
  const time_point begin = clock::now();
  cache_.here().counters.stalls_for_memory += 1;
  while (memory.available() < segments) {
    ask_for_room();
    if (cache_.closed() || clock::now() >= deadline) throw_cache_full(segments * memory.segment_bytes());
    const std::uint32_t seen = memory.release_count();
    if (cache_.eviction().help()) continue;
    cache_.eviction().wake();
    memory.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
  }
  stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
}

void memory_pressure::await_waiters() noexcept {
  for (std::uint32_t n; (n = waiters.load(std::memory_order_acquire)) != 0;)
    os::futex_wait(waiters, n, clock::now() + std::chrono::milliseconds(1));
}

void memory_pressure::sleep_until_released(std::uint32_t seen, time_point deadline) noexcept {
  cache_.eviction().wake();
  cache_.memory().wait_released(seen, deadline);
}

namespace {

// Waiting inside of a section that cannot be left: frames stay, but nothing at home is read.
class reading_nothing {
 public:
  reading_nothing() noexcept { this_thread.reads_nothing.store(1, std::memory_order_release); }
  ~reading_nothing() {
#if FM_TSAN
    this_thread.reads_nothing.exchange(0, std::memory_order_seq_cst);
#else
    this_thread.reads_nothing.store(0, std::memory_order_relaxed);
#endif
    os::light_fence();
  }
  reading_nothing(const reading_nothing&) = delete;
  reading_nothing& operator=(const reading_nothing&) = delete;
};

}  // namespace

char* memory_pressure::frame_in_section(mutator& m, slot_t slot, std::uint64_t payload_bytes) {
  frame_space& frames = cache_.frames();
  arena& memory = frames.memory();
  // The reserve is for threads that hold frames: others wait for them.
  const std::uint32_t leave = epochs::holds_nothing() ? frames.reserve() : 0;
  if (char* p = frames.bump_frame(m.young, false, payload_bytes, leave)) return p;
  const time_point deadline = clock::now() + cache_.options().memory_within;
  if (const access_wait wait(*this, slot); wait.outside()) {
    wait_for_memory(leave + frames.span_of(payload_bytes), deadline);
    cache_.eviction().help();  // enough segments, but perhaps no run of them
    return nullptr;
  }
  const time_point begin = clock::now();
  const reading_nothing reads_nothing;
  for (bool late = false;;) {
    const std::uint32_t seen = memory.release_count();
    if (!cache_.eviction().help()) {
      // Memory that came while this thread did not run is not to be missed: the last attempt is after the deadline.
      if (late || cache_.closed()) {
        ask_for_room();  // for whoever tries again: until this section has ended there can be no collection
        throw_cache_full(payload_bytes);
      }
      cache_.eviction().wake();
      memory.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
      late = clock::now() >= deadline;
    }
    if (char* p = frames.bump_frame(m.young, false, payload_bytes, 0)) {
      stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
      return p;
    }
  }
}

}  // namespace fm::detail
