// Giving pages of the HIT back: the compute node's half of the table is a cache too. A page (512 words) that names few
// resident objects costs more than it is worth when a heap has many more objects than its cache holds. It goes, and is
// filled again by asking the agent. A reader or writer of words opens pages, and the evictor closes them.
//
//   given back ──open()──► open ──close──► closing ──grace──► discarding ──► given back (drops + 1)
//        │                  ▲  ◄──a writer──┘                     │ a fetch is in flight
//        └─begin_filling─► filling (a thread allocates its slots) └──► open
//
// Protocol, called "Page give-back" elsewhere
//   1. A word of a page goes from unknown to anything else only while the page is open or filling, as seen in the
//      section that writes it. A writer that finds it closing makes it open again; one that finds it given back opens
//      it (open()).
//   2. Closing: mark the page; a grace period later nobody is left who saw it open and has yet to write. Under the
//      shard's lock, if the mark still stands: count the drop, move resident words to the side table, make all words
//      unknown, discard the memory.
//   3. Opening: under the same lock, the side table's words for the page return to it, then it is open. So a page with
//      words has none in the side table, and nobody can take an unknown word for an object that is resident.
//   4. An answer is put over an unknown word only if the page has not been dropped since before the question was asked
//      (may_install, put): otherwise the object may have been fetched, changed, written back and dropped in between, and
//      the answer would name older bytes.
//
// Everything else that changes a word does so from a value that is not unknown, by compare-exchange, or owns the word
// (busy, fetching): the first fails over a word that has been taken away, and a page with the second is not discarded.
// So a resident word may live in the side table for a while, whatever its flags; eviction reaches it through
// with_sided().
#pragma once

#include "base/limits.h"
#include "table/table.h"
#include <array>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace fm::detail {

class hit_pages {
 public:
  /// `budget_bytes` of the table may be in memory, 0: all of it. A page that names more than `residents_max` resident
  /// objects stays.
  hit_pages(std::uint64_t budget_bytes, std::uint32_t residents_max);

  // ---- for whoever reads or writes words; inside a section ----
  /// Makes the slot's page writable, with its resident words in it. Then a word that is unknown is truly unknown. O(1)
  /// when it is open; takes a lock otherwise.
  void open(slot_t slot) {
    const std::uint32_t s = page_of(slot).state.load(std::memory_order_acquire);
    if (s != page_open && s != page_filling) [[unlikely]]
      open_slowly(slot);
  }
  /// Whether an answer may be put over an unknown word of the slot's page, by a question asked after `drops` was read.
  [[nodiscard]] bool may_install(slot_t slot, std::uint32_t drops) noexcept;
  /// Puts hints over those words of the page of `first` that are still unknown, if it may. False: it may not.
  bool put(slot_t first, std::uint32_t drops, std::span<const word_t> hints) noexcept;
  /// Pages that are asked for with another one: those of its group that are given back, if one of the group is in memory
  /// already. Who reads here and there in a heap that was attached would ask for each page otherwise.
  struct group {
    std::uint64_t first = 0;                                          ///< page
    std::uint32_t opened = 0;                                         ///< a bit for each page of the group
    std::array<std::uint32_t, limits::pages_asked_together> drops{};  ///< of an opened page, from before the question
  };
  /// Opens them, as many as the budget has room for, and the slot's page. Within a section.
  [[nodiscard]] group open_group(slot_t slot);
  /// A thread is about to allocate these slots (whole pages): they stay open until end_filling.
  void begin_filling(slot_t first, std::uint64_t slots);
  void end_filling(slot_t first, std::uint64_t slots) noexcept;
  /// The word as it is now, wherever it is. For verification and sweeps.
  [[nodiscard]] word_t now(slot_t slot);

  enum class found : std::uint8_t { in_table, aside, nowhere };
  /// Lets `f(word_t&)` look at, change or (returning false) drop the slot's word in the side table, under its lock.
  /// in_table: it is in the table (again), look there.
  template <class F>
  found with_sided(slot_t slot, F&& f) {
    const std::uint64_t page = slot / page_slots;
    shard& sh = shard_of(page);
    const std::lock_guard lock(sh.mutex);
    if (word_at(slot).load(std::memory_order_acquire) != word::unknown) return found::in_table;
    const auto it = sh.pages.find(page);
    if (it == sh.pages.end()) return found::nowhere;
    for (sided& s : it->second) {
      if (s.slot != slot) continue;
      if (!f(s.word)) {
        s = it->second.back();
        it->second.pop_back();
        sided_.fetch_sub(1, std::memory_order_relaxed);
        if (it->second.empty()) sh.pages.erase(it);
      }
      return found::aside;
    }
    return found::nowhere;
  }

  // ---- for the evictor, one thread at a time ----
  /// A bounded piece of closing pages; true when it should be called again soon. `tablets`: the heap's, asked for when
  /// needed.
  template <class Tablets>
  bool step(Tablets&& tablets) noexcept {
    if (!wanting()) return false;
    if (!closing_.empty()) return discard_closing();
    if (tablets_.empty() || hand_ >= tablets_.size() * (tablet_slots / page_slots)) try {
        closing_.reserve(limits::pages_closed_together);
        begin_round(tablets());
      } catch (const std::bad_alloc&) {
        return false;  // it is wanted still
      }
    return wanting() && mark_some();
  }
  [[nodiscard]] bool over() const noexcept { return budget_ != 0 && pages_.load(std::memory_order_relaxed) > budget_; }
  /// So far over it that who makes the pages has to give some back, too. Any thread.
  [[nodiscard]] bool far_over() const noexcept {
    return budget_ != 0 && pages_.load(std::memory_order_relaxed) > budget_ + limits::pages_over_before_help;
  }
  /// Over the budget, and worth another look now. Any thread.
  [[nodiscard]] bool wanting() const noexcept {
    return over() && held_.load(std::memory_order_acquire) == 0 &&
           (pages_.load(std::memory_order_relaxed) >= again_from_.load(std::memory_order_relaxed) ||
            clock::now() >= again_at_.load(std::memory_order_relaxed));
  }
  /// Much has been evicted: a look is worth it whatever the last one found. Any thread.
  void look_again() noexcept {
    again_from_.store(0, std::memory_order_relaxed);
    again_at_.store(time_point{}, std::memory_order_relaxed);
  }
  /// While held, no page is given back: words only return to the table. Between two steps. Holds add up.
  void hold(bool hold) noexcept {
    if (hold)
      held_.fetch_add(1, std::memory_order_acq_rel);
    else
      held_.fetch_sub(1, std::memory_order_acq_rel);
  }
  /// Visits the words that are aside, `f(slot, word)`, each under its shard's lock.
  template <class F>
  void for_each_sided(F&& f) {
    for (shard& sh : shards_) {
      const std::lock_guard lock(sh.mutex);
      for (const auto& [page, words] : sh.pages)
        for (const sided& s : words) f(s.slot, s.word);
    }
  }
  /// When to look again: a while after a round in vain, or earlier if the table grows by an eighth, and not as long as
  /// pages are held. Any thread.
  [[nodiscard]] time_point again_at() const noexcept {
    return held_.load(std::memory_order_acquire) != 0 ? time_point::max() : again_at_.load(std::memory_order_relaxed);
  }

  struct counts {
    std::uint64_t pages, given_back, opened_again, kept, sided;
  };
  [[nodiscard]] counts count() const noexcept {
    return {pages_.load(), given_back_.load(), opened_again_.load(), kept_.load(), sided_.load()};
  }

 private:
  struct sided {
    slot_t slot;
    word_t word;
  };
  struct shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::vector<sided>> pages;
  };
  static constexpr std::size_t shards = 64;

  shard& shard_of(std::uint64_t page) noexcept { return shards_[page % shards]; }
  void open_slowly(slot_t slot);
  /// Back into the table; the shard is locked.
  void restore(shard& sh, std::uint64_t page);
  void begin_round(std::vector<std::uint32_t> tablets);
  bool mark_some();
  bool worth_closing(std::uint64_t page) const noexcept;
  bool discard_closing();
  bool discard(std::uint64_t page);

  const std::uint64_t budget_;  ///< pages; 0: no bound
  const std::uint32_t residents_max_;
  std::array<shard, shards> shards_;
  std::atomic<std::uint64_t> pages_{0};  ///< in memory, of this heap
  std::atomic<std::uint64_t> given_back_{0}, opened_again_{0}, kept_{0}, sided_{0};

  // The evictor's.
  std::vector<std::uint32_t> tablets_;
  std::uint64_t hand_ = 0;               ///< next page to look at, of tablets_
  std::uint64_t given_back_before_ = 0;  ///< when this round began
  std::vector<std::uint64_t> closing_;
  std::uint64_t closing_stamp_ = 0;
  std::uint32_t vain_rounds_ = 0;  ///< since one gave something back
  std::atomic<time_point> again_at_{time_point{}};
  std::atomic<std::uint64_t> again_from_{0};  ///< pages: with as many as this, a look is worth it before again_at_
  std::atomic<std::uint32_t> held_{0};
  std::vector<sided> moving_;  ///< of the page being discarded
};

}  // namespace fm::detail
