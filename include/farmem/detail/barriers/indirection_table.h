// The heap indirection table of this process: one array of words, indexed by slot, shared by all of its heaps, so that
// a barrier needs no heap to translate a reference. A reserved address range of which only touched pages exist.
//
// Invariants owned here
//   - A tablet number belongs to at most one heap of the process at a time (tablet_info::heap), and to one agent of it.
//   - Words become unknown again only page by page: when a tablet is given back, or by "Page give-back"
//     (src/table/pages.h). The page's drop counter goes up with it, and an install over `unknown` checks that it has
//     not.
//
// Barriers read words. The cache alone changes them, by the transitions of word.h; heaps take tablets and give them
// back.
#pragma once

#include <atomic>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

class object_cache;

/// Who a tablet belongs to. Written under the tablet lock, read by slow paths.
struct tablet_info {
  std::atomic<object_cache*> heap{nullptr};
  std::atomic<std::uint32_t> agent{0};  ///< index of the agent within the heap
  /// The other agents that store it (src/cache/tablets/replica_set.h); 0: there are none.
  std::atomic<std::uint64_t> replicas{0};
  /// Counts how `agent` was handed over to another one; odd while that happens (src/cache/tablets/tablet_home.h).
  std::atomic<std::uint32_t> handovers{0};
};

/// One page of the table: 512 words.
constexpr std::uint64_t page_slots = page_bytes / sizeof(word_t);
constexpr std::uint64_t pages_per_tablet = tablet_slots / page_slots;

struct page_info {
  std::atomic<std::uint32_t> drops{0};  ///< how often the page was given back; an install over `unknown` checks it
  std::atomic<std::uint32_t> state{0};  ///< page_state
  /// The page's card. 1: some of its words may be dirty. Set after a word became so, in the same section; cleared by
  /// who then looks at all of the page's words (collector_view::scan_cards). So a page whose card is clean had no dirty
  /// word in any pause.
  std::atomic<std::uint32_t> dirty_card{0};
  /// The same of pins: 1 if some of its young objects may be pinned.
  std::atomic<std::uint32_t> pin_card{0};
};
/// See table/pages.h for who moves a page on.
enum page_state : std::uint32_t {
  page_given_back = 0,  ///< no word was written since the last drop, or ever: costs no memory
  page_open = 1,
  page_filling = 2,     ///< open, and a thread allocates its slots
  page_closing = 3,     ///< to be given back after a grace period, unless a writer comes
  page_discarding = 4,  ///< just now, under its shard's lock
};

/// The table's arrays. Set once, before the first heap exists; constant afterwards.
struct hit_arrays {
  std::atomic<word_t>* words = nullptr;
  tablet_info* tablets = nullptr;
  page_info* pages = nullptr;
  std::atomic<std::uint64_t>* young = nullptr;  ///< a bit a slot: see table/young_bits.h
  std::uint64_t slots = 0;
};
extern constinit hit_arrays hit;

/// Reserves the table for `slots` slots (rounded up to tablets); the first caller decides, later ones with a larger
/// wish get fm::errc::slots_exhausted. 0: the default (2^40; 2^27 in sanitizer builds; FARMEM_SLOTS in the environment
/// overrides).
void reserve_hit(std::uint64_t slots);

inline std::atomic<word_t>& word_at(slot_t s) noexcept { return hit.words[s]; }
inline page_info& page_of(slot_t s) noexcept { return hit.pages[s / page_slots]; }
/// After the word became so. Always a store: one that was left out because the flag was seen would have to be ordered
/// before that look.
inline void note_dirty(slot_t s) noexcept { page_of(s).dirty_card.store(1, std::memory_order_release); }
/// After the pin, in the section that took it. Pins are sequentially consistent, as is the scan: it sees either the pin
/// or what is stored here. So threads that pin neighbours need not write the same line again and again.
inline void note_pinned(slot_t s) noexcept {
  std::atomic<std::uint32_t>& card = page_of(s).pin_card;
  if (card.load(std::memory_order_seq_cst) == 0) card.store(1, std::memory_order_seq_cst);
}
inline tablet_info& tablet_info_of(slot_t s) noexcept { return hit.tablets[s / tablet_slots]; }

/// From now on the table is kept in small pages: huge ones would bring back what was given back.
void prefer_small_hit_pages() noexcept;

/// Takes `count` consecutive unused tablet numbers for a heap; returns the first. Throws fm::errc::slots_exhausted.
std::uint32_t take_tablets(object_cache* heap, std::uint32_t agent, std::uint32_t count);
/// Takes those numbers, which stored references already name. Throws fm::errc::slots_exhausted if they are beyond the table,
/// or if one of them is in use; then none is taken.
void take_stored_tablets(object_cache* heap, std::uint32_t first, std::uint32_t count);
/// Gives tablets back: their words become unknown, and the numbers may be used by another heap.
void give_back_tablets(std::uint32_t first, std::uint32_t count) noexcept;

}  // namespace fm::detail
