// The cache as a collection sees it: which frames are dirty or pinned, what objects refer to, and how dead objects go.
// The snapshot of what is allocated is in slots.h.
//
// Invariants owned here
//   - A slot is freed only while its word cannot be on its way anywhere: not fetching, not pinned, and without an
//     unacknowledged write-back. Then no message that will still be applied names it, and the slot may be used again.
//   - A page whose card is clean (page_info::dirty_card) has no dirty word in a pause. A scan cleans the card before it
//     looks at the words, and makes it dirty again when it found one or was given up. This is condition 2 of the proof
//     in collector/young_collection.h. The same holds of pin_card and young objects that are pinned.
//
// Called by the collector of the heap, one collection at a time; the marks are read by sections of any thread.
#pragma once

#include "cache/tablets/slot_marks.h"
#include <atomic>
#include <span>
#include <vector>

namespace fm::detail {

class object_cache;

/// Is shown what scan_frames finds.
class frame_visitor {
 public:
  virtual ~frame_visitor() = default;
  /// A frame: `dirty`, or it may be; `young`, and then dirty, too. Gives whether references() is wanted.
  virtual bool frame(slot_t slot, bool dirty, bool young) = 0;
  /// By scan_cards, in place of frame(): which of the 64 slots from `first` on are young objects.
  virtual void young(slot_t /*first*/, std::uint64_t /*slots*/) {}
  /// The slots that the frame refers to, null ones left out. Not called for types without references.
  virtual void references(slot_t slot, std::span<const slot_t> refs) = 0;
  /// The object is pinned.
  virtual void pinned(slot_t slot) = 0;
  /// Called now and then outside of sections: the only place to wait in.
  virtual void between_pages() = 0;
};

class collector_view {
 public:
  explicit collector_view(object_cache& cache) noexcept : cache_(cache) {}

  /// Shows every frame of these tablets that is pinned or dirty. Concurrent with everything; a frame that becomes dirty
  /// meanwhile may or may not be shown. Pages must be held. O(slots), in sections of a page each.
  void scan_frames(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor);
  /// As scan_frames, for collections of young objects: pages whose card is clean are left out, and frames of young
  /// objects are not looked at unless some are pinned. By one thread.
  void scan_cards(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor);
  /// Whether scan_cards would look at any page of the tablet.
  [[nodiscard]] static bool has_dirty_card(std::uint32_t tablet) noexcept;
  /// What a resident object refers to, null left out, without touching it; false when it is not resident. In a section.
  bool read_references(slot_t slot, std::vector<slot_t>& out);
  /// Keeps pages of the HIT from being given back, or lets them go again. Holds add up.
  void hold_pages(bool hold);

  /// Makes the words of dead slots free and drops their frames, dirty or not; appends to `freed` which could be: the
  /// others are in use by a write-back or a fetch, and stay as they are. Nobody may be able to reach the dead. `dead`:
  /// the tablet's 1024 words, of which those in [from, to) count; whole pages. With `young` only what is young still;
  /// returns the bytes that their home copies would have had, and 0 without it.
  std::uint64_t free_dead(std::uint32_t tablet, std::size_t from, std::size_t to, const std::uint64_t* dead,
                          std::vector<slot_page>& freed, bool young = false);
  /// After free_dead: the memory of segments in which nothing else is goes back. Outside of sections.
  void release_dead() noexcept;

  /// What the cycle found dead, until no weak cell names it; null otherwise. Changes to non-null in a pause only. Read
  /// in sections.
  std::atomic<const slot_marks*> dying{nullptr};
  /// What the cycle found dead, while the sweep frees it: eviction does not copy it out any more. Null before any of
  /// the slots may be used again. As `dying`.
  std::atomic<const slot_marks*> doomed{nullptr};

 private:
  void scan_aside(frame_visitor& visitor);
  static void scan_page(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor);
  static void scan_card(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor);
  /// Whether its word says free now, or nothing, so that the slot may be used again. With `young` only if it is young,
  /// and its bytes are added.
  bool free_slot(slot_t slot, bool young, std::uint64_t& bytes) noexcept;
  /// Of the 64 slots from `first` on, those in `dead`; which of them may be used again. While eviction is held back.
  std::uint64_t free_young(slot_t first, std::uint64_t dead, std::uint64_t& bytes) noexcept;
  std::uint64_t free_any(slot_t first, std::uint64_t dead, bool young, std::uint64_t& bytes) noexcept;

  object_cache& cache_;
};

/// While it lives no page of the table is given back: words only return from the side table. For scans that must meet
/// every resident word, and no longer than those: a cycle may take many seconds, in which the table must not grow past
/// its budget.
class held_pages {
 public:
  explicit held_pages(collector_view& of) : of_(of) { of_.hold_pages(true); }
  ~held_pages() { of_.hold_pages(false); }
  held_pages(const held_pages&) = delete;
  held_pages& operator=(const held_pages&) = delete;

 private:
  collector_view& of_;
};

}  // namespace fm::detail
