// Waiting for memory: what a thread does that finds no frame. The first of a line evicts, a step at a time, and sleeps
// only while others have every step in hand. Those behind it sleep. A wait that fails says who holds the memory.
//
// Invariants owned here
//   - Frames are given in the order of arrival, and nobody overtakes a thread that waits (waiting_line.h).
//   - An object larger than a segment waits in a line of its own, because several segments come together slowly. Half
//     of the segments that are released while it is first are kept for it (kept_for_large), up to what it takes. So it
//     holds nobody up, and waits at most twice as long as if it did.
//   - A wait fails when nothing has moved for memory_within, or after waits_at_most times that; the last attempt is made
//     after its end. Beside full agents a wait outside of sections goes on until a collection has ended that began
//     after it. These count as movement (moved()): an object that an agent acknowledged as stored; and, as long as
//     no agent refuses what is written back, a segment that was released and a read that came home. All of them bring
//     memory nearer: a stored object can be dropped, a released segment be taken, and a read ends a section that
//     eviction waits for. While agents refuse, segments that readers hand round and their reads bring it no nearer to
//     makers, who leave a share. Readers and holders of frames take these segments: for them both count always.
//   - A thread waits outside of sections (access_wait.h). If they cannot be left, it says meanwhile that it reads
//     nothing at home (thread_state::reads_nothing).
//
// Allocation, misses and the memory gate of user sections call it.
#pragma once

#include "base/patience.h"
#include "cache/memory/waiting_line.h"
#include "cache/mutator.h"
#include <atomic>
#include <farmem/base/histogram.h>
#include <farmem/detail/barriers/word.h>
#include <string>

namespace fm::detail {

/// Who waits for memory: a thread that holds frames, or that does not leave its section; one that reads; one that makes.
enum class waits_as : std::uint8_t { holder, reader, maker };

class memory_pressure {
 public:
  explicit memory_pressure(object_cache& cache) noexcept : cache_(cache) {}

  /// Waits until the heap is no longer short of memory, evicting meanwhile, and for collections when the agents are
  /// full; returns at the deadline too, and when collections are in vain. `m`: the calling thread's. Outside of
  /// sections.
  void wait_at_gate(mutator& m, time_point deadline) noexcept;
  /// Threads that are, or are about to be, in wait_at_gate, and those that have left their sections to wait in this
  /// cache: closing the heap waits until they have gone on.
  std::atomic<std::uint32_t> waiters{0};
  void await_waiters() noexcept;

  /// Whether somebody is to have memory before the thread whose bump this is: who takes a segment, but for `leave` of
  /// them, asks first. Wait-free.
  [[nodiscard]] bool is_turn_of_another(const bump& b, std::uint32_t leave) const noexcept;
  /// Before a clean frame becomes dirty of which the agent refuses what is written back: waits until the readers' share
  /// is free, which the frame then is no part of. False when there was nothing to wait for; otherwise the caller looks
  /// at the word again. In a section. Throws why the agent refuses.
  bool await_share(mutator& m, slot_t slot);
  /// Whether somebody waits, here or for something else outside of sections, and may need memory. Wait-free.
  [[nodiscard]] bool has_waiters() const noexcept {
    return !urgent_.empty() || !others_.empty() || !large_.empty() || !makers_.empty() ||
           waiters.load(std::memory_order_relaxed) != 0;
  }
  /// What has moved so far, for a wait for memory.
  [[nodiscard]] std::uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }
  /// The same for one of these.
  [[nodiscard]] std::uint64_t moved_for(waits_as who) const noexcept {
    return moved() + (who == waits_as::maker ? 0 : released_.load(std::memory_order_relaxed));
  }
  /// Objects were stored; a segment was released.
  void note_stored() noexcept { moved_.fetch_add(1, std::memory_order_relaxed); }
  void note_released() noexcept;
  /// A read came home. Counted while somebody waits: the line is shared by all threads.
  void note_read() noexcept {
    if (!urgent_.empty() || !large_.empty() || !others_.empty()) note_released();
  }

  /// A frame, in a section. `slot`: what the caller is about to reach; 0: nothing. `left`: the section was left to wait
  /// for memory, so the caller looks at everything again before it uses the frame, or gives it back (unbump). It keeps
  /// the frame if it can: whoever gives back what it waited for waits again, behind all others. The frame may be in
  /// nobody's piece then: its segment counts it as being fetched until the caller has written into it (segment::end_hold).
  /// `who` counts unless the thread holds frames.
  char* frame_in_section(mutator& m, slot_t slot, std::uint64_t payload_bytes, bool& left,
                         waits_as who = waits_as::reader);
  /// Sleeps until memory was released after `seen` (arena::release_count), or until `deadline`; wakes the evictor
  /// first.
  void sleep_until_released(std::uint32_t seen, time_point deadline) noexcept;

  /// Wants a collection if the agents are full: garbage can make room. Once until it has ended. False: none would help,
  /// or comes by itself.
  bool ask_for_room() noexcept;
  /// `bytes`: what was asked for. The text says who holds the memory (holders.h).
  [[noreturn]] void throw_cache_full(std::uint64_t bytes);
  /// What could not be done, because agents refuse what is written back.
  [[noreturn]] void throw_refused(errc why, const std::string& what);

  histogram stall_ns;
  /// Waits for memory, at the gate or for a fetch that their deadline ended.
  std::atomic<std::uint64_t> expired{0};

 private:
  [[nodiscard]] std::string text_of_agents();
  [[nodiscard]] bool is_share_free() const noexcept;
  class awaited_collection;
  /// Segments that the first of large_ has waited for, which others leave to it.
  [[nodiscard]] std::uint32_t kept_for_large() const noexcept;
  class large_turn;
  /// Segments that it leaves to others.
  [[nodiscard]] std::uint32_t left_by(waits_as who, std::uint64_t payload_bytes) const noexcept;
  /// A frame for a thread that has found no memory for one, as soon as its turn comes. A holder is served from the
  /// reserve. Outside of sections the segment counts the frame as being fetched (segment::inflight). Throws cache_full,
  /// or why the agents refuse what is written back.
  char* await_frame(mutator& m, bump& b, std::uint64_t payload_bytes, waits_as who);

  object_cache& cache_;
  waiting_line urgent_;  ///< threads that hold frames, which hold up whoever evicts
  waiting_line large_;   ///< threads that want several segments at once; not beside a full agent
  waiting_line others_;
  waiting_line makers_;  ///< threads that make objects while an agent is full: readers need not wait for them
  std::atomic<std::uint32_t> large_span_{0};   ///< segments that the first of large_ takes; 0: there is none
  std::atomic<std::uint32_t> large_since_{0};  ///< arena::release_count when it became the first
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<std::uint64_t> released_{0};  ///< segments, and reads that came home, whatever agents refuse
};

}  // namespace fm::detail
