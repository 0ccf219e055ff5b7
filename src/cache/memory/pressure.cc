// The waits for memory, and the error that ends them; see pressure.h.
//
// Invariant: whoever sleeps has read the arena's release count before it looked for memory, so that a release in
// between ends the sleep.
#include "cache/memory/pressure.h"
#include "cache/eviction/evictor.h"
#include "cache/memory/access_wait.h"
#include "cache/memory/holders.h"
#include "cache/object_cache.h"
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace fm::detail {

void memory_pressure::throw_cache_full(std::uint64_t bytes) {
  if (cache_.closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for memory");
  expired.fetch_add(1, std::memory_order_relaxed);
  if (const errc why = cache_.eviction().last_error(); why != errc::ok)
    throw_refused(why, fmt::format("no memory for {} bytes", bytes));
  throw error(errc::cache_full, fmt::format("no frame for {} bytes: the cache of {} bytes is full; {}", bytes,
                                            cache_.capacity_bytes(), describe_holders(cache_)));
}

void memory_pressure::throw_refused(errc why, const std::string& what) {
  const char* const help = why == errc::agent_lost
                               ? "dirty objects of an agent that is lost stay in the cache"
                               : "collections freed too little: drop references, or give the heap more agents, agents "
                                 "more memory, or the heap a larger quota";
  throw error(why, fmt::format("{}: agents refuse what is written back ({}); {}", what, text_of_agents(), help));
}

std::string memory_pressure::text_of_agents() {
  std::string s;
  for (std::size_t i = 0; i < cache_.agents().size(); ++i) {
    remote::agent_session& a = *cache_.agents()[i];
    if (a.left()) continue;
    const errc why = cache_.eviction().refusal(i);
    s += fmt::format(
        "{}{} holds {} bytes of the {} that it gives this heap, and {}", s.empty() ? "" : "; ", a.url(),
        a.stats().regions * a.region_bytes(), a.quota_bytes(),
        why != errc::ok ? fmt::format("refuses: {}", to_string(why)) : fmt::format("has room for {}", a.left_bytes()));
  }
  return s;
}

bool memory_pressure::ask_for_room() noexcept {
  return cache_.eviction().some_agent_is_full() && cache_.requests().ask_for_room();
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

// The collection that a wait goes on for past its deadline: the first that begins after it.
class memory_pressure::awaited_collection {
 public:
  explicit awaited_collection(object_cache& cache) noexcept : of_(cache), begun_(cache.requests().cycles_begun()) {}
  /// At the end of the wait's deadline: whether it is still to come, or has just ended.
  bool comes(patience& p, time_point now) noexcept;

 private:
  object_cache& of_;
  std::uint32_t begun_;
  bool ended_ = false;
};

// Who leaves the readers' share alone comes after all who do not. A collector that stood in line would wait for those
// who wait for a collection.
bool memory_pressure::is_turn_of_another(const bump& b, std::uint32_t leave) const noexcept {
  if (this_thread.collects) return false;
  if (leave == 0) return urgent_.is_before(b);
  // Beside one that wants several segments the others go on in turn, and leave it what is kept for it.
  if (others_.is_next(b) || large_.is_next(b)) return false;
  return large_.is_before(b) || others_.is_before(b) || (leave > cache_.frames().reserve() && makers_.is_before(b));
}

// Collections that were in vain are followed by a rest, which may be longer than a thread waits. Its wait is in vain only
// after one that saw all that was garbage when it began, and after the time that it takes to use what that one freed.
bool memory_pressure::awaited_collection::comes(patience& p, time_point now) noexcept {
  if (this_thread.depth != 0 || this_thread.collects || of_.closed()) return false;
  const bool ended = of_.requests().has_collected_since(begun_);
  if (ended ? std::exchange(ended_, true) : !of_.pressure().ask_for_room()) return false;
  return p.goes_on(now);
}

std::uint32_t memory_pressure::kept_for_large() const noexcept {
  const std::uint32_t span = large_span_.load(std::memory_order_relaxed);
  const std::uint32_t released = cache_.memory().release_count() - large_since_.load(std::memory_order_relaxed);
  return std::min(span, released / 2);
}

// While the first of large_ waits.
class memory_pressure::large_turn {
 public:
  explicit large_turn(memory_pressure& of) noexcept : of_(of) {}
  ~large_turn() { end(); }
  large_turn(const large_turn&) = delete;
  large_turn& operator=(const large_turn&) = delete;
  void begin(std::uint32_t span) noexcept {
    if (std::exchange(begun_, true)) return;
    of_.large_since_.store(of_.cache_.memory().release_count(), std::memory_order_relaxed);
    of_.large_span_.store(span, std::memory_order_relaxed);
  }
  void end() noexcept {
    if (std::exchange(begun_, false)) of_.large_span_.store(0, std::memory_order_relaxed);
  }

 private:
  memory_pressure& of_;
  bool begun_ = false;
};

// A large object could not be had from a small cache if it left the readers' share, too.
std::uint32_t memory_pressure::left_by(waits_as who, std::uint64_t payload_bytes) const noexcept {
  const frame_space& frames = cache_.frames();
  if (who == waits_as::holder) return 0;
  if (who == waits_as::reader) return frames.reserve_of_reads();
  return frames.span_of(payload_bytes) > 1 && !frames.keeps_for_reads() ? frames.reserve() : frames.reserve_of_new();
}

// While it waits its place in the line is its own, and it holds the line up only as first, when it takes what comes.
// Makers stand in a line of their own as long as an agent is full: readers have a share that is none of theirs.
// A thread that has left its sections bumps in one of its own (leases.h). From there until it has entered the others
// again nothing but the count in the segment keeps the frame.
char* memory_pressure::await_frame(mutator& m, bump& b, std::uint64_t payload_bytes, waits_as who) {
  frame_space& frames = cache_.frames();
  arena& memory = frames.memory();
  const time_point begin = clock::now();
  const std::uint32_t span = frames.span_of(payload_bytes);
  const auto line_now = [&]() -> waiting_line& {
    if (who == waits_as::holder) return urgent_;
    return who == waits_as::maker && frames.keeps_for_reads() ? makers_ : span > 1 ? large_ : others_;
  };
  waiting_line::place place(line_now(), b);
  large_turn turn(*this);             // ends before the place is left: the next one's begins then
  m.counters.stalls_for_memory += 1;  // in line already: whoever sees it and comes next is behind
  patience patience(cache_.options().memory_within, begin, moved_for(who));
  awaited_collection collection(cache_);
  os::nap nap(limits::memory_nap_first, limits::memory_nap_most);
  cache_.eviction().wake();
  for (bool late = false;;) {
    std::uint32_t leave = left_by(who, payload_bytes);
    waiting_line& line = line_now();
    if (&line != &large_) turn.end();
    place.stand_in(line);
    const std::uint32_t seen = memory.release_count();
    if (place.is_first()) {
      if (&line == &large_)
        turn.begin(span);
      else if (who != waits_as::holder)
        leave += kept_for_large();
      const bool outside = this_thread.depth == 0;
      const section in_section;
      if (char* payload = frames.bump_frame(b, payload_bytes, leave)) {
        if (outside) memory.of(payload).hold();
        stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
        return payload;
      }
    }
    // Inside of a section there can be no collection: what is asked for is for whoever tries again.
    if (this_thread.depth == 0 || late || cache_.closed()) ask_for_room();
    // Memory that came while this thread did not run is not to be missed: the last attempt is after the end.
    if (late || cache_.closed()) throw_cache_full(payload_bytes);
    const time_point now = clock::now();
    if ((late = patience.over(now, moved_for(who)) && !collection.comes(patience, now))) continue;
    if (!place.is_first())
      place.wait_until(patience.look_again(now));
    else if (cache_.eviction().help())
      nap.reset();
    else
      memory.wait_released(seen, std::min(patience.look_again(now), now + nap.next()));
  }
}

char* memory_pressure::frame_in_section(mutator& m, slot_t slot, std::uint64_t payload_bytes, bool& left,
                                        waits_as who) {
  frame_space& frames = cache_.frames();
  bump& b = who == waits_as::maker ? m.made : m.fetched;
  // The reserve is for threads that hold frames: others wait for them.
  if (!epochs::holds_nothing()) who = waits_as::holder;
  if (char* p = frames.bump_frame(b, payload_bytes, left_by(who, payload_bytes))) return p;
  char* payload = nullptr;
  if (const access_wait wait(*this, slot); wait.outside()) payload = await_frame(m, b, payload_bytes, who);
  if (payload) {
    left = true;
    return payload;
  }
  const reading_nothing reads_nothing;
  return await_frame(m, b, payload_bytes, waits_as::holder);
}

bool memory_pressure::is_share_free() const noexcept {
  return cache_.memory().available() >= cache_.frames().reserve_of_new();
}

// Segments that are free hold no dirty frames. So as long as frames become dirty only while the share is free, dirty
// frames are outside of it; but for the frame of each thread between this look and its change of the word.
bool memory_pressure::await_share(mutator& m, slot_t slot) {
  const std::uint32_t agent = object_cache::agent_of(slot);
  evictor& eviction = cache_.eviction();
  const auto may_go_on = [&] { return eviction.refusal_of(slot) == errc::ok || is_share_free(); };
  if (this_thread.collects) return false;
  if (eviction.refusal(agent) == errc::agent_lost) {
    if (!cache_.losses().may_change(slot))
      throw_refused(errc::agent_lost, fmt::format("slot {:#x} cannot be changed", slot));
    return false;
  }
  if (may_go_on()) return false;
  m.counters.stalls_for_memory += 1;
  const time_point begin = clock::now();
  const access_wait wait(*this, slot);
  std::optional<reading_nothing> reads_nothing;
  if (!wait.outside()) reads_nothing.emplace();
  patience patience(cache_.options().memory_within, begin, moved());
  awaited_collection collection(cache_);
  os::nap nap(limits::memory_nap_first, limits::memory_nap_most);
  eviction.wake();
  for (bool late = false;;) {
    const std::uint32_t seen = cache_.memory().release_count();
    const errc why = eviction.refusal_of(slot);
    if (may_go_on()) break;
    if (wait.outside() || late) ask_for_room();
    if (cache_.closed()) throw error(errc::heap_closed, "the heap was closed while a thread waited for memory");
    if (late) {
      expired.fetch_add(1, std::memory_order_relaxed);
      throw_refused(why, fmt::format("slot {:#x} cannot be changed", slot));
    }
    const time_point now = clock::now();
    if ((late = patience.over(now, moved()) && !collection.comes(patience, now))) continue;
    if (eviction.help())
      nap.reset();
    else
      cache_.memory().wait_released(seen, std::min(patience.look_again(now), now + nap.next()));
  }
  stall_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
  return true;
}

void memory_pressure::note_released() noexcept {
  released_.fetch_add(1, std::memory_order_relaxed);
  if (cache_.eviction().last_error() == errc::ok) moved_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace fm::detail
