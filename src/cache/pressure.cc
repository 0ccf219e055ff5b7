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
  cache_.eviction().wake();
  const std::uint32_t in_vain = cache_.requests().collected_in_vain();
  bool gives_up = false;
  os::nap nap(limits::memory_nap_first, limits::memory_nap_most);
  while (memory.available() < memory.gate_level() && !cache_.closed() && !gives_up) {
    const std::uint32_t seen = memory.release_count();
    if (cache_.eviction().help()) {
      nap.reset();
    } else {
      // Nothing can be evicted; what refused it may be old, but then it takes back what it said with the next copy.
      if (cache_.eviction().last_error() != errc::ok && (this_thread.collects || !ask_for_room())) break;
      memory.wait_released(seen, std::min(deadline, clock::now() + nap.next()));
    }
    const bool late = clock::now() >= deadline;
    if (late) expired.fetch_add(1, std::memory_order_relaxed);
    gives_up = late || cache_.requests().collected_in_vain() - in_vain >= limits::collections_in_vain_max;
  }
  if (gives_up) memory.give_up_gate_level();
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

// While it waits its place in the line is its own, and it holds the line up only as first, when it takes what comes.
char* memory_pressure::await_frame(mutator& m, std::uint64_t payload_bytes, bool urgent) {
  frame_space& frames = cache_.frames();
  arena& memory = frames.memory();
  const time_point begin = clock::now();
  waiting_line::place place(urgent ? urgent_ : others_, m.young);
  m.counters.stalls_for_memory += 1;  // in line already: whoever sees it and comes next is behind
  patience patience(cache_.options().memory_within, begin, moved());
  os::nap nap(limits::memory_nap_first, limits::memory_nap_most);
  cache_.eviction().wake();
  for (bool late = false;;) {
    const std::uint32_t seen = memory.release_count();
    if (place.is_first()) {
      if (char* payload = frames.bump_frame(m.young, false, payload_bytes, urgent ? 0 : frames.reserve())) {
        stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
        return payload;
      }
    }
    // Inside of a section there can be no collection: what is asked for is for whoever tries again.
    if (this_thread.depth == 0 || late || cache_.closed()) ask_for_room();
    // Memory that came while this thread did not run is not to be missed: the last attempt is after the end.
    if (late || cache_.closed()) throw_cache_full(payload_bytes);
    const time_point now = clock::now();
    if ((late = patience.over(now, moved()))) continue;
    if (!place.is_first())
      place.sleep(patience.look_again(now));
    else if (cache_.eviction().help())
      nap.reset();
    else
      memory.wait_released(seen, std::min(patience.look_again(now), now + nap.next()));
  }
}

char* memory_pressure::frame_in_section(mutator& m, slot_t slot, std::uint64_t payload_bytes, bool& left) {
  frame_space& frames = cache_.frames();
  // The reserve is for threads that hold frames: others wait for them.
  const bool holds = !epochs::holds_nothing();
  if (char* p = frames.bump_frame(m.young, false, payload_bytes, holds ? 0 : frames.reserve())) return p;
  if (const access_wait wait(*this, slot); wait.outside()) {
    left = true;
    return await_frame(m, payload_bytes, holds);
  }
  const reading_nothing reads_nothing;
  return await_frame(m, payload_bytes, true);
}

void memory_pressure::note_released() noexcept {
  if (cache_.eviction().last_error() == errc::ok) moved_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace fm::detail
