// Scanning frames and freeing dead slots; see collection.h. Words are looked at with with_frame (frames/busy_word.h),
// so that no scan makes an object warm.
//
// Invariant: eviction makes no step between a look at a dead frame and the end of its slot (evictor::hold).
#include "collection.h"
#include "evictor.h"
#include "object_cache.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "cache/frames/busy_word.h"
#include "cache/frames/frame_contents.h"
#include "cache/frames/retire_frame.h"

namespace fm::detail {

// ---- scanning ----

namespace {

// `word` is where `w` was read, and may change; null for one that cannot.
void visit_frame(slot_t slot, word_t w, const std::atomic<word_t>* word, std::vector<slot_t>& refs,
                 frame_visitor& visitor) {
  char* payload = word::payload(w);
  frame_prefix& px = frame::prefix(payload);
  if (px.pins.load(std::memory_order_acquire) != 0) visitor.pinned(slot);
  // The home copy is as new if the word was clean, then no write-back was under way, and then it was clean still.
  // Copying out sets `writing` before `clean`, which the first two looks catch; a write-back that fails clears `clean`
  // before `writing`, which the last one does.
  const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
  const bool writing = (shape & frame::writing_bit) != 0, young = (shape & frame::young_bit) != 0;
  const bool clean = word::is_clean(w) && !writing && (!word || word::is_clean(word->load(std::memory_order_acquire)));
  if (visitor.frame(slot, !clean, young) && read_refs(payload, refs)) visitor.references(slot, refs);
}

}  // namespace

void collector_view::scan_aside(frame_visitor& visitor) {
  std::vector<slot_t> refs;
  const section in_section;
  cache_.pages().for_each_sided([&](slot_t slot, word_t w) {
    if (word::is_resident(w)) visit_frame(slot, w, nullptr, refs, visitor);
  });
}

void collector_view::scan_page(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor) {
  if (hit.pages[page].state.load(std::memory_order_acquire) == page_given_back) return;
  visitor.between_pages();
  std::array<std::uint16_t, page_slots> resident;  // their frames are prefetched together
  const section in_section;
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < page_slots; ++i) {
    const word_t w = word_at(page * page_slots + i).load(std::memory_order_relaxed);
    if (!word::is_resident(w)) continue;
    __builtin_prefetch(word::payload(w) - sizeof(frame_prefix));
    resident[n++] = static_cast<std::uint16_t>(i);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    const slot_t slot = page * page_slots + resident[i];
    std::atomic<word_t>& word = word_at(slot);
    with_frame(word,
               [&](const held_frame& f) { visit_frame(slot, f.word, f.is_busy ? nullptr : &word, refs, visitor); });
  };
}

void collector_view::scan_frames(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor) {
  // Words only return to the table meanwhile, since pages are held: so the ones that are aside come first.
  scan_aside(visitor);
  std::vector<slot_t> refs;
  for (const std::uint32_t t : tablets)
    for (std::uint64_t page = t * pages_per_tablet; page < (t + 1) * pages_per_tablet; ++page)
      scan_page(page, refs, visitor);
}

bool collector_view::read_references(slot_t slot, std::vector<slot_t>& out) {
  std::atomic<word_t>& word = word_at(slot);
  for (;;) {
    if (with_frame(word, [&](const held_frame& f) { read_refs(f.payload, out); })) return true;
    if (word.load(std::memory_order_acquire) != word::unknown) return false;
    bool found = false;  // with the word aside, since its page was given back
    const auto at = cache_.pages().with_sided(slot, [&](word_t& aside) {
      found = word::is_resident(aside);
      if (found) read_refs(word::payload(aside), out);
      return true;
    });
    if (at != hit_pages::found::in_table) return found;
  }
}

bool collector_view::has_dirty_card(std::uint32_t tablet) noexcept {
  const std::uint64_t first = tablet * pages_per_tablet;
  for (std::uint64_t page = first; page < first + pages_per_tablet; ++page)
    if (hit.pages[page].dirty_card.load(std::memory_order_acquire) != 0) return true;
  return false;
}

void collector_view::scan_cards(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor) {
  // Of one page: notes whether anything in it is dirty, and passes everything on.
  class noting final : public frame_visitor {
   public:
    noting(frame_visitor& to, std::atomic<std::uint32_t>& card) : to_(to), card_(card) {
      // Before the words are looked at: whoever makes one dirty from now on sets it again.
      card_.exchange(0, std::memory_order_acq_rel);
    }
    ~noting() override {
      if ((any_ && !mutated(mutation::believe_no_news)) || !whole_) card_.store(1, std::memory_order_release);
    }
    noting(const noting&) = delete;
    noting& operator=(const noting&) = delete;
    /// All of the page was looked at; otherwise the look was given up.
    void whole() noexcept { whole_ = true; }
    bool frame(slot_t slot, bool dirty, bool young) override {
      any_ |= dirty;
      return to_.frame(slot, dirty, young);
    }
    void references(slot_t slot, std::span<const slot_t> refs) override { to_.references(slot, refs); }
    void pinned(slot_t slot) override { to_.pinned(slot); }
    void between_pages() override { to_.between_pages(); }

   private:
    frame_visitor& to_;
    std::atomic<std::uint32_t>& card_;
    bool any_ = false, whole_ = false;
  };
  scan_aside(visitor);  // first: words only return to the table, since pages are held
  std::vector<slot_t> refs;
  for (const std::uint32_t t : tablets) {
    for (std::uint64_t page = t * pages_per_tablet; page < (t + 1) * pages_per_tablet; ++page) {
      std::atomic<std::uint32_t>& card = hit.pages[page].dirty_card;
      // A page that is given back keeps its card, for when its words return; these were seen aside. If it is open, they
      // have returned.
      if (card.load(std::memory_order_acquire) == 0 ||
          hit.pages[page].state.load(std::memory_order_acquire) == page_given_back)
        continue;
      noting notes(visitor, card);
      scan_page(page, refs, notes);
      notes.whole();
    }
  }
}

void collector_view::release_dead() noexcept { cache_.eviction().release_dead(); }

void collector_view::hold_pages(bool hold) {
  {
    const auto no_step = cache_.eviction().hold();  // a step that is under way ends first
    cache_.pages().hold(hold);
  }
  if (cache_.pages().wanting()) cache_.eviction().wake();
}

// ---- freeing ----

namespace {

bool may_free(word_t w, bool young) noexcept {
  const frame_prefix& px = frame::prefix(word::payload(w));
  const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
  return px.pins.load(std::memory_order_acquire) == 0 && (shape & frame::writing_bit) == 0 &&
         (!young || (shape & frame::young_bit) != 0);
}

}  // namespace

bool collector_view::free_slot(slot_t slot, bool young, std::uint64_t& bytes) noexcept {
  std::atomic<word_t>& word = word_at(slot);
  for (std::uint32_t round = 0; round < limits::sweep_rounds_max; ++round) {
    word_t w = word.load(std::memory_order_acquire);
    if (w == word::free) return true;
    if (w == word::unknown) {
      bool gone = !young;
      const auto at = cache_.pages().with_sided(slot, [&](word_t& aside) {
        if (!word::is_resident(aside)) return young;
        gone = may_free(aside, young);
        if (gone) {
          if (young) bytes += home_bytes_of(word::payload(aside));
          cache_.memory().note_freed(word::payload(aside));
          retire_frame(word::payload(aside));
        }
        return !gone;
      });
      if (at == hit_pages::found::in_table) continue;
      // An answer that was asked for before the agent forgets must not come over it. Where the page is given back, one
      // still may: a hint to a copy that nobody refers to, which the next object in that slot overwrites.
      if (gone && page_of(slot).state.load(std::memory_order_acquire) != page_given_back &&
          !word.compare_exchange_strong(w, word::free, std::memory_order_acq_rel))
        continue;
      if (gone) cache_.losses().forget(slot);
      return gone;
    }
    if (word::is_fetching(w)) return false;
    if (word::is_resident(w)) {
      if (word::is_busy(w)) {
        cpu_relax();
        continue;
      }
      if (!word.compare_exchange_strong(w, w | word::busy_bit, std::memory_order_acq_rel)) continue;
      if (!may_free(w, young)) {
        word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
        return false;
      }
      if (young) bytes += home_bytes_of(word::payload(w));
      cache_.memory().note_freed(word::payload(w));
      retire_frame(word::payload(w));
      word.store(word::free, std::memory_order_release);
      return true;
    }
    if (young) return false;  // it went home meanwhile
    if (word.compare_exchange_strong(w, word::free, std::memory_order_acq_rel)) return true;
  }
  return false;
}

std::uint64_t collector_view::free_dead(std::uint32_t tablet, std::size_t begin, std::size_t end,
                                        const std::uint64_t* dead, std::vector<slot_page>& freed, bool young) {
  std::uint64_t bytes = 0;
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  slot_page page;
  for (std::size_t from = begin; from < end; from += limits::words_with_one_hold) {
    // Eviction looks at frames by walking segments: a frame must not die between its look and its step.
    std::unique_lock<std::mutex> no_eviction;
    for (std::size_t i = from; i < std::min(end, from + limits::words_with_one_hold); ++i) {
      const slot_t here = first + i * 64;
      if (here % page_slots == 0) page = {here, {}};
      for (std::uint64_t w = dead[i]; w != 0; w &= w - 1) {
        const word_t at =
            word_at(here + static_cast<std::uint64_t>(__builtin_ctzll(w))).load(std::memory_order_relaxed);
        if (word::is_resident(at)) __builtin_prefetch(word::payload(at) - sizeof(frame_prefix), 1);
      }
      if (dead[i] != 0 && !no_eviction.owns_lock()) no_eviction = cache_.eviction().hold();
      const section in_section;
      for (std::uint64_t w = dead[i]; w != 0; w &= w - 1) {
        const int bit = __builtin_ctzll(w);
        if (free_slot(here + static_cast<std::uint64_t>(bit), young, bytes))
          page.bits[i % (page_slots / 64)] |= std::uint64_t{1} << bit;
      }
      if ((here + 64) % page_slots == 0 &&
          std::any_of(page.bits.begin(), page.bits.end(), [](std::uint64_t b) { return b != 0; }))
        freed.push_back(page);
    }
  }
  return bytes;
}

}  // namespace fm::detail
