// The waits for memory, and the error that ends them; see pressure.h.
//
// Invariant: whoever sleeps has read the arena's release count before it looked for memory, so that a release in
// between ends the sleep.
#include "pressure.h"
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

namespace fm::detail {

void memory_pressure::throw_cache_full(std::uint64_t bytes) {
  if (cache_.closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for memory");
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
    gives_up =
        clock::now() >= deadline || cache_.requests().collected_in_vain() - in_vain >= limits::collections_in_vain_max;
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

void memory_pressure::await_gate_waiters() noexcept {
  for (std::uint32_t n; (n = gate_waiters.load(std::memory_order_acquire)) != 0;)
    os::futex_wait(gate_waiters, n, clock::now() + std::chrono::milliseconds(1));
}

void memory_pressure::sleep_until_released(std::uint32_t seen, time_point deadline) noexcept {
  cache_.eviction().wake();
  cache_.memory().wait_released(seen, deadline);
}

namespace {

// Waiting inside of a section that has handed out pointers: frames stay, but nothing at home is read.
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

char* memory_pressure::frame_for_miss(mutator& m, slot_t slot, std::uint64_t payload_bytes, section_kind kind) {
  frame_space& frames = cache_.frames();
  arena& memory = frames.memory();
  const bool fresh = kind == section_kind::fresh && this_thread.depth == 1;
  if (char* p = frames.bump_frame(m.young, false, payload_bytes, fresh ? frames.reserve() : 0)) return p;
  const time_point deadline = clock::now() + cache_.options().memory_within;
  const std::uint32_t span = frames.span_of(payload_bytes);
  if (fresh) {
    // The slot may come from a field that is overwritten while nobody is in this section.
    this_thread.waits_for.store(slot, std::memory_order_release);
    epochs::leave();
    const auto enter_again = [] {
      epochs::enter();
      this_thread.waits_for.store(0, std::memory_order_release);
    };
    try {
      wait_for_memory(frames.reserve() + span, deadline);
    } catch (...) {
      enter_again();
      throw;
    }
    enter_again();
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
