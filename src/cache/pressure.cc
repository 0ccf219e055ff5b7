// Waiting for memory: what a thread does that finds no frame. It evicts itself, a step at a time, and sleeps only while others
// have every step in hand; at its deadline it says who holds the memory. All waits are bounded.
#include "evictor.h"
#include "object_cache.h"
#include <fmt/format.h>

namespace fm::detail {

namespace {
constexpr std::uint32_t collections_in_vain_max = 2;  // the first may have begun before
}  // namespace

void object_cache::throw_cache_full(std::uint64_t bytes) {
  if (closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for memory");
  if (const errc why = evictor_->last_error(); why != errc::ok)
    throw error(why, fmt::format("no memory for {} bytes: write-back is refused by the agents", bytes));
  const epochs::section_site site = epochs::oldest_section();
  const arena::counts q = arena_.queue_lengths();
  throw error(
      errc::cache_full,
      fmt::format(
          "no frame of {} bytes: the cache of {} bytes is full of pinned frames, open scopes or unacknowledged writes "
          "(segments: {} free, {} active, {} proactive, {} inactive, {} writing){}",
          bytes, options_.capacity_bytes, q.free, q.active, q.proactive, q.inactive, q.writing,
          site.file
              ? fmt::format("; the longest open scope, for {} epochs, is at {}:{}", site.epochs, site.file, site.line)
              : ""));
}

bool object_cache::ask_for_room() noexcept {
  const errc refused = evictor_->last_error();
  if (!tell_ || (refused != errc::agent_full && refused != errc::quota_exceeded)) return false;
  if (!awaits_collection_.exchange(true, std::memory_order_acq_rel)) tell_(tell_context_);
  return true;
}

// A section that began although the agents take nothing more would use up the reserve, and could then not wait for a collection,
// whose pauses wait for it. So the collection is waited for here.
void object_cache::wait_at_gate(mutator& m, time_point deadline) noexcept {
  if (arena_.available() >= arena_.gate_level()) return;
  const time_point begin = clock::now();
  m.counters.stalls_for_memory += 1;
  const std::uint32_t in_vain = collected_in_vain_.load(std::memory_order_acquire);
  bool gives_up = false;
  while (arena_.available() < arena_.gate_level() && !closed() && !gives_up) {
    const std::uint32_t seen = arena_.release_count();
    if (!evictor_->help()) {
      // Nothing can be evicted; what refused it may be old, but then it takes back what it said with the next copy.
      if (evictor_->last_error() != errc::ok && (this_thread.collects || !ask_for_room())) break;
      evictor_->wake();
      arena_.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
    }
    gives_up = clock::now() >= deadline ||
               collected_in_vain_.load(std::memory_order_acquire) - in_vain >= collections_in_vain_max;
  }
  if (gives_up) arena_.give_up_gate_level();
  stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
}

void object_cache::wait_for_memory(std::uint32_t segments, time_point deadline) {
  const time_point begin = clock::now();
  here().counters.stalls_for_memory += 1;
  while (arena_.available() < segments) {
    ask_for_room();
    if (closed() || clock::now() >= deadline) throw_cache_full(segments * arena_.segment_bytes());
    const std::uint32_t seen = arena_.release_count();
    if (evictor_->help()) continue;
    evictor_->wake();
    arena_.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
  }
  stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
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

char* object_cache::frame_for_miss(mutator& m, slot_t slot, std::uint64_t payload_bytes, section_kind kind) {
  const bool fresh = kind == section_kind::fresh && this_thread.depth == 1;
  if (char* p =
          bump_frame(m.young, false, payload_bytes, fresh ? reserve_segments_.load(std::memory_order_relaxed) : 0))
    return p;
  const time_point deadline = clock::now() + options_.memory_within;
  const auto span = static_cast<std::uint32_t>((frame::total_bytes(payload_bytes) + 8) / arena_.segment_bytes() + 1);
  if (fresh) {
    // The slot may come from a field that is overwritten while nobody is in this section.
    this_thread.waits_for.store(slot, std::memory_order_release);
    epochs::leave();
    const auto enter_again = [] {
      epochs::enter();
      this_thread.waits_for.store(0, std::memory_order_release);
    };
    try {
      wait_for_memory(reserve_segments_ + span, deadline);
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
    const std::uint32_t seen = arena_.release_count();
    if (!evictor_->help()) {
      // Memory that came while this thread did not run is not to be missed: the last attempt is after the deadline.
      if (late || closed()) {
        ask_for_room();  // for whoever tries again: until this section has ended there can be no collection
        throw_cache_full(payload_bytes);
      }
      evictor_->wake();
      arena_.wait_released(seen, std::min(deadline, clock::now() + std::chrono::microseconds(200)));
      late = clock::now() >= deadline;
    }
    if (char* p = bump_frame(m.young, false, payload_bytes, 0)) {
      stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
      return p;
    }
  }
}

}  // namespace fm::detail
