// Scanning frames and freeing dead slots; see collection.h. Words are looked at with with_frame (frames/busy_word.h),
// so that no scan makes an object warm.
//
// Invariant: eviction makes no step between a look at a dead frame and the end of its slot (evictor::hold).
#include "cache/collections/collection.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "table/young_bits.h"

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
  const bool young = is_young(slot);
  const bool writing = (px.shape.load(std::memory_order_acquire) & frame::writing_bit) != 0;
  const bool clean = word::is_clean(w) && !writing && (!word || word::is_clean(word->load(std::memory_order_acquire)));
  if (visitor.frame(slot, !clean, young) && read_refs(payload, refs)) visitor.references(slot, refs);
}

// Slots of one page whose frames are about to be looked at; the frames are prefetched together.
class frames_to_visit {
 public:
  void add(slot_t slot, word_t w) noexcept {
    __builtin_prefetch(word::payload(w) - sizeof(frame_prefix));
    slots_[count_++] = slot;
  }
  void visit(std::vector<slot_t>& refs, frame_visitor& visitor) const {
    for (std::uint32_t i = 0; i < count_; ++i) {
      std::atomic<word_t>& word = word_at(slots_[i]);
      with_frame(word, [&](const held_frame& f) {
        visit_frame(slots_[i], f.word, f.is_busy ? nullptr : &word, refs, visitor);
      });
    }
  }

 private:
  std::array<slot_t, page_slots> slots_;
  std::uint32_t count_ = 0;
};

// A card of a page, taken while all that it stands for is looked at. Whoever makes it true from now on sets it again.
class taken_card {
 public:
  explicit taken_card(std::atomic<std::uint32_t>& card) noexcept
      : card_(card),
        was_set_(card.load(std::memory_order_acquire) != 0 && card.exchange(0, std::memory_order_seq_cst) != 0) {}
  ~taken_card() {
    if (was_set_ && stays_) card_.store(1, std::memory_order_release);
  }
  taken_card(const taken_card&) = delete;
  taken_card& operator=(const taken_card&) = delete;
  [[nodiscard]] bool was_set() const noexcept { return was_set_; }
  /// The look has ended: `any` was found that it stands for. Without this it was given up, and says nothing.
  void looked(bool any) noexcept { stays_ = any; }

 private:
  std::atomic<std::uint32_t>& card_;
  const bool was_set_;
  bool stays_ = true;
};

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
  frames_to_visit frames;
  const section in_section;
  for (slot_t slot = page * page_slots; slot < (page + 1) * page_slots; ++slot)
    if (const word_t w = word_at(slot).load(std::memory_order_relaxed); word::is_resident(w)) frames.add(slot, w);
  frames.visit(refs, visitor);
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

// Of objects that are young only the words and bits are looked at: each is dirty. One that ceases to be young from now on
// is logged.
void collector_view::scan_card(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor) {
  /// Notes whether anything is dirty, and passes everything on.
  class noting final : public frame_visitor {
   public:
    explicit noting(frame_visitor& to) noexcept : to_(to) {}
    bool frame(slot_t slot, bool dirty, bool young) override {
      any |= dirty;
      return to_.frame(slot, dirty, young);
    }
    void references(slot_t slot, std::span<const slot_t> refs) override { to_.references(slot, refs); }
    void pinned(slot_t slot) override { to_.pinned(slot); }
    void between_pages() override { to_.between_pages(); }
    bool any = false;

   private:
    frame_visitor& to_;
  };
  visitor.between_pages();
  taken_card dirty(hit.pages[page].dirty_card), pins(hit.pages[page].pin_card);
  const bool look_at_pins = pins.was_set() && !mutated(mutation::believe_no_pins);
  bool any_pinned = false;
  frames_to_visit others;
  noting notes(visitor);
  const section in_section;
  for (slot_t first = page * page_slots; first < (page + 1) * page_slots; first += 64) {
    const std::uint64_t bits = young_bits_of(first).load(std::memory_order_acquire);
    std::uint64_t young = 0;
    for (std::uint64_t i = 0; i < 64; ++i) {
      const word_t w = word_at(first + i).load(std::memory_order_acquire);
      if (!word::is_resident(w)) continue;
      if ((bits >> i & 1) == 0) {
        others.add(first + i, w);
        continue;
      }
      young |= std::uint64_t{1} << i;
      if (!look_at_pins) continue;
      with_frame(word_at(first + i), [&](const held_frame& f) {
        if (frame::prefix(f.payload).pins.load(std::memory_order_seq_cst) == 0) return;
        any_pinned = true;
        visitor.pinned(first + i);
      });
    }
    if (young == 0) continue;
    notes.any = true;
    visitor.young(first, young);
  }
  others.visit(refs, notes);
  dirty.looked(notes.any && !mutated(mutation::believe_no_news));
  pins.looked(any_pinned);
}

void collector_view::scan_cards(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor) {
  scan_aside(visitor);  // first: words only return to the table, since pages are held
  std::vector<slot_t> refs;
  for (const std::uint32_t t : tablets) {
    for (std::uint64_t page = t * pages_per_tablet; page < (t + 1) * pages_per_tablet; ++page) {
      // A page that is given back keeps its card, for when its words return; these were seen aside. If it is open, they
      // have returned.
      if (hit.pages[page].dirty_card.load(std::memory_order_acquire) == 0 ||
          hit.pages[page].state.load(std::memory_order_acquire) == page_given_back)
        continue;
      scan_card(page, refs, visitor);
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

bool may_free(slot_t slot, word_t w, bool young) noexcept {
  const frame_prefix& px = frame::prefix(word::payload(w));
  return px.pins.load(std::memory_order_acquire) == 0 &&
         (px.shape.load(std::memory_order_acquire) & frame::writing_bit) == 0 && (!young || is_young(slot));
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
        gone = may_free(slot, aside, young);
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
      if (!may_free(slot, w, young)) {
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

std::uint64_t collector_view::free_any(slot_t first, std::uint64_t dead, bool young, std::uint64_t& bytes) noexcept {
  std::uint64_t freed = 0;
  for (; dead != 0; dead &= dead - 1) {
    const int bit = __builtin_ctzll(dead);
    if (free_slot(first + static_cast<std::uint64_t>(bit), young, bytes)) freed |= std::uint64_t{1} << bit;
  }
  return freed;
}

// The word of an object that is young and dead, in the table and not busy, is nobody else's: no thread reaches it, no
// batch has it, and eviction, which alone moves frames and gives pages back, is held back. So a store will do.
std::uint64_t collector_view::free_young(slot_t first, std::uint64_t dead, std::uint64_t& bytes) noexcept {
  std::uint64_t freed = 0, others = 0;
  std::uint32_t type = 0;
  std::uint64_t bytes_of_type = 0;
  for (std::uint64_t left = dead & young_bits_of(first).load(std::memory_order_acquire); left != 0; left &= left - 1) {
    const int bit = __builtin_ctzll(left);
    std::atomic<word_t>& word = word_at(first + static_cast<std::uint64_t>(bit));
    const word_t w = word.load(std::memory_order_acquire);
    if (!word::is_resident(w) || word::is_busy(w)) {
      others |= std::uint64_t{1} << bit;
      continue;
    }
    char* const payload = word::payload(w);
    const frame_prefix& px = frame::prefix(payload);
    if (px.pins.load(std::memory_order_acquire) != 0) continue;
    const std::uint64_t h = px.header.load(std::memory_order_relaxed);
    if (header::type(h) != type || bytes_of_type == 0) {
      const type_descriptor* const t = find_type(type = header::type(h));
      bytes_of_type = t != nullptr && t->kind != type_kind::array ? header::bytes + t->payload_bytes() : 0;
    }
    bytes += bytes_of_type != 0 ? bytes_of_type : home_bytes_of(payload);
    cache_.memory().note_freed(payload);
    retire_frame(payload);
    word.store(word::free, std::memory_order_release);
    freed |= std::uint64_t{1} << bit;
  }
  return freed | free_any(first, others, true, bytes);
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
      if (dead[i] != 0) {
        for (std::uint64_t w = dead[i]; w != 0; w &= w - 1) {
          const word_t at =
              word_at(here + static_cast<std::uint64_t>(__builtin_ctzll(w))).load(std::memory_order_relaxed);
          if (word::is_resident(at)) __builtin_prefetch(word::payload(at) - sizeof(frame_prefix));
        }
        if (!no_eviction.owns_lock()) no_eviction = cache_.eviction().hold();
        const section in_section;
        page.bits[i % (page_slots / 64)] =
            young ? free_young(here, dead[i], bytes) : free_any(here, dead[i], false, bytes);
      }
      if ((here + 64) % page_slots == 0 &&
          std::any_of(page.bits.begin(), page.bits.end(), [](std::uint64_t b) { return b != 0; }))
        freed.push_back(page);
    }
  }
  return bytes;
}

}  // namespace fm::detail
