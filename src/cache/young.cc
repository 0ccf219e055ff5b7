// Young objects (frame.h): where they are found, and when they cease to be. What a collection of them needs of the cache, and
// what the evictor does so that it stays true.
//
// Invariants owned here
//   - When a batch is acknowledged, nothing that a copy in it refers to is young. Until then the frames of those copies are `writing`,
//     so that scan_news shows them as newer.
//   - What ceases to be young while a collection of young objects marks is logged: a scan may have shown it as young, and the frame that refers to it as no
//     newer than its home copy, a moment later.
//   - A page whose words scan_news has looked at, and found none that is newer, has none until its `news` is set again.
#include "collection.h"
#include "object_cache.h"

#include "busy_word.h"

namespace fm::detail {

std::uint64_t object_cache::end_youth(std::uint64_t h, const char* payload, std::uint64_t from,
                                      std::uint64_t elements) noexcept {
  const std::uint64_t length = for_each_ref(h, payload, from, elements, [this](slot_t s) { no_longer_young(s); });
  return from + elements < length ? from + elements : 0;
}

bool object_cache::has_news(std::uint32_t tablet) noexcept {
  const std::uint64_t first = tablet * pages_per_tablet;
  for (std::uint64_t page = first; page < first + pages_per_tablet; ++page)
    if (hit.pages[page].news.load(std::memory_order_acquire) != 0) return true;
  return false;
}

void object_cache::scan_news(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor) {
  // Of one page: tells whether anything in it is newer, and passes everything on.
  class noting final : public frame_visitor {
   public:
    noting(frame_visitor& to, std::atomic<std::uint32_t>& news) : to_(to), news_(news) {
      // Before the words are looked at: whoever makes one newer from now on sets it again.
      news_.exchange(0, std::memory_order_acq_rel);
    }
    ~noting() override {
      if ((any_ && !mutated(mutation::believe_no_news)) || !whole_) news_.store(1, std::memory_order_release);
    }
    noting(const noting&) = delete;
    noting& operator=(const noting&) = delete;
    /// All of the page was looked at; otherwise the look was given up.
    void whole() noexcept { whole_ = true; }
    bool frame(slot_t slot, bool newer, bool young) override {
      any_ |= newer;
      return to_.frame(slot, newer, young);
    }
    void references(slot_t slot, std::span<const slot_t> refs) override { to_.references(slot, refs); }
    void pinned(slot_t slot) override { to_.pinned(slot); }
    void between_pages() override { to_.between_pages(); }

   private:
    frame_visitor& to_;
    std::atomic<std::uint32_t>& news_;
    bool any_ = false, whole_ = false;
  };
  scan_aside(visitor);  // first: words only return to the table, since pages are held
  std::vector<slot_t> refs;
  for (const std::uint32_t t : tablets) {
    for (std::uint64_t page = t * pages_per_tablet; page < (t + 1) * pages_per_tablet; ++page) {
      std::atomic<std::uint32_t>& news = hit.pages[page].news;
      // One that is given back keeps its news, for when its words return; these were seen aside. If it is open, they have
      // returned.
      if (news.load(std::memory_order_acquire) == 0 ||
          hit.pages[page].state.load(std::memory_order_acquire) == page_given_back)
        continue;
      noting notes(visitor, news);
      scan_page(page, refs, notes);
      notes.whole();
    }
  }
}

void object_cache::no_longer_young(slot_t slot) noexcept {
  if (slot >= hit.slots || mutated(mutation::young_for_ever)) return;
  bool was_young = false;
  const auto grow_up = [&](char* payload) {
    was_young =
        (frame::prefix(payload).shape.fetch_and(~frame::young_bit, std::memory_order_acq_rel) & frame::young_bit) != 0;
  };
  std::atomic<word_t>& word = word_at(slot);
  while (!with_frame(word, grow_up)) {
    if (word.load(std::memory_order_acquire) != word::unknown) return;  // it is, or was, at home
    const auto at = pages_.with_sided(slot, [&](word_t& aside) {
      if (word::is_resident(aside)) grow_up(word::payload(aside));
      return true;
    });
    if (at != hit_pages::found::in_table) break;
  }
  if (was_young) grew_up(slot);
}

void object_cache::grew_up(slot_t slot) noexcept {
  if (young_marking.load(std::memory_order_relaxed) && !mutated(mutation::grow_up_unnoticed)) log_(slot);
}

}  // namespace fm::detail
