// Leaving the sections of a thread while it blocks: others wait for open sections, and perhaps hold what it waits for.
//
// A section is left as follows. The payloads that it has handed out are pinned; pins are roots, so nothing that they
// reach dies. The slot that the thread is about to reach becomes a root (thread_state::waits_for), because the field
// that it was read from may be overwritten. Only then is the epoch taken back. To enter again, the thread announces an
// epoch, makes the words of what it had pinned warm, and gives the pins back. A pinned frame does not move, so every
// raw pointer is good all the while.
//
// Why the words are made warm before the pins are given back: while the thread was outside, they may have been cooled
// and a grace period may have passed. Nothing but the pin keeps such a frame. Once a word is warm, it is left only
// after it was cooled anew, and after a grace period that waits for the section that is open now. Pinned frames are not
// copied out, so what was dirty is dirty still, and what was got for writing may be written.
//
// Invariants owned here
//   - Whoever may block for longer than a bounded computation does so under a section_break, or outside of sections.
//   - What the barriers have handed out before a break is noted again after it: sections may be left any number of times.
//   - A section that has handed out more than is noted (handed_out_max) is not left. Others wait for it, as for any
//     section, and no longer than its thread waits for what it blocks on. Each time is counted.
//
// Locks of containers, misses, waits for memory, channels and collections use it.
#pragma once

#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

class object_cache;

class section_break {
 public:
  /// Leaves all sections of the thread, if there are any. `reaches`: the slot that it is about to reach; 0: none.
  explicit section_break(slot_t reaches = 0) noexcept {
    if (this_thread.depth != 0) leave(reaches);
  }
  /// Enters them again.
  ~section_break() {
    if (depth_ != 0) enter();
  }
  section_break(const section_break&) = delete;
  section_break& operator=(const section_break&) = delete;

  /// How often a thread of the process blocked in sections that could not be left. Wait-free.
  [[nodiscard]] static std::uint64_t not_left() noexcept;

  /// For what cannot be done in a section. Throws scope_misuse if one is open, because it has handed out more than is
  /// noted.
  static void require_left(const char* what);

 private:
  void leave(slot_t reaches) noexcept;
  void enter() noexcept;

  std::uint32_t depth_ = 0;  ///< of what was left; 0: nothing was
  std::uint32_t count_ = 0;
  struct {
    char* payload;  ///< null: a place without one
    slot_t slot;
    object_cache* heap;
  } pinned_[handed_out_max];
};

}  // namespace fm::detail
