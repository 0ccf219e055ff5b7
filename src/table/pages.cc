// Opening and closing pages of the table; see "Page give-back" in pages.h.
//
// Invariant: a page becomes given back, and open again, only under its shard's lock. Words that are put aside are on
// the shard's list exactly while their page is given back.
#include "pages.h"
#include "os/os.h"

#include <algorithm>
#include <new>

namespace fm::detail {

namespace {

std::atomic<std::uint32_t>& state_of(std::uint64_t page) noexcept { return hit.pages[page].state; }

}  // namespace

hit_pages::hit_pages(std::uint64_t budget_bytes, std::uint32_t residents_max)
    : budget_((budget_bytes + page_bytes - 1) / page_bytes), residents_max_(residents_max) {
  if (budget_ != 0) prefer_small_hit_pages();
}

void hit_pages::open_slowly(slot_t slot) {
  const std::uint64_t page = slot / page_slots;
  std::atomic<std::uint32_t>& state = state_of(page);
  std::uint32_t s = page_closing;
  if (state.compare_exchange_strong(s, page_open, std::memory_order_acq_rel)) return;
  if (s == page_open || s == page_filling) return;
  shard& sh = shard_of(page);
  const std::lock_guard lock(sh.mutex);
  // Under the lock it is not being discarded; it may have been opened, or even be closing again.
  s = page_closing;
  if (state.compare_exchange_strong(s, page_open, std::memory_order_acq_rel) || s != page_given_back) return;
  restore(sh, page);
  state.store(page_open, std::memory_order_release);
}

void hit_pages::restore(shard& sh, std::uint64_t page) {
  // Nobody else writes words of a page that is given back.
  if (const auto it = sh.pages.find(page); it != sh.pages.end()) {
    for (const sided& s : it->second) word_at(s.slot).store(s.word, std::memory_order_release);
    hit.pages[page].dirty_card.store(1, std::memory_order_release);
    sided_.fetch_sub(it->second.size(), std::memory_order_relaxed);
    sh.pages.erase(it);
  }
  pages_.fetch_add(1, std::memory_order_relaxed);
  if (hit.pages[page].drops.load(std::memory_order_relaxed) != 0) opened_again_.fetch_add(1, std::memory_order_relaxed);
}

bool hit_pages::may_install(slot_t slot, std::uint32_t drops) noexcept {
  page_info& info = page_of(slot);
  std::uint32_t s = page_closing;
  // The state before the counter: once this section has seen the page open, it is not dropped until the section ends.
  if (!info.state.compare_exchange_strong(s, page_open, std::memory_order_acq_rel) && s != page_open &&
      s != page_filling)
    return false;
  return info.drops.load(std::memory_order_acquire) == drops;
}

bool hit_pages::put(slot_t first, std::uint32_t drops, std::span<const word_t> hints) noexcept {
  if (!may_install(first, drops)) return false;
  for (std::size_t i = 0; i < hints.size() && i < page_slots; ++i) {
    word_t expected = word::unknown;
    if (word::is_remote(hints[i]))
      word_at(first + i).compare_exchange_strong(expected, hints[i], std::memory_order_acq_rel);
  }
  return true;
}

hit_pages::group hit_pages::open_group(slot_t slot) {
  constexpr std::uint64_t pages = limits::pages_asked_together;
  const std::uint64_t own = slot / page_slots;
  group g{.first = own / pages * pages};
  bool wanted = false;
  for (std::uint64_t i = 0; i < pages; ++i)
    wanted |= g.first + i != own && state_of(g.first + i).load(std::memory_order_relaxed) != page_given_back;
  const auto open_one = [&](std::uint64_t page) {
    g.drops[page - g.first] = hit.pages[page].drops.load(std::memory_order_acquire);
    open(page * page_slots);
    g.opened |= 1u << (page - g.first);
  };
  open_one(own);
  for (std::uint64_t page = g.first; wanted && page < g.first + pages; ++page) {
    if (budget_ != 0 && pages_.load(std::memory_order_relaxed) >= budget_) break;
    if (state_of(page).load(std::memory_order_relaxed) == page_given_back) open_one(page);
  }
  return g;
}

void hit_pages::begin_filling(slot_t first, std::uint64_t slots) {
  for (std::uint64_t page = first / page_slots; page < (first + slots) / page_slots; ++page) {
    shard& sh = shard_of(page);
    const std::lock_guard lock(sh.mutex);
    if (state_of(page).load(std::memory_order_acquire) == page_given_back) restore(sh, page);
    state_of(page).store(page_filling, std::memory_order_release);
  }
}

// Another thread may fill the same page meanwhile, with slots that were used and freed, and end first: then it is open
// already, or even given back, and stays so, since its words are not in the table.
void hit_pages::end_filling(slot_t first, std::uint64_t slots) noexcept {
  for (std::uint64_t page = first / page_slots; page < (first + slots) / page_slots; ++page) {
    std::uint32_t s = page_filling;
    state_of(page).compare_exchange_strong(s, page_open, std::memory_order_acq_rel);
  }
}

word_t hit_pages::now(slot_t slot) {
  for (;;) {
    if (const word_t w = word_at(slot).load(std::memory_order_acquire); w != word::unknown) return w;
    word_t w = word::unknown;
    const found at = with_sided(slot, [&](word_t& s) {
      w = s;
      return true;
    });
    if (at != found::in_table) return w;
  }
}

// ---- closing ----

void hit_pages::begin_round(std::vector<std::uint32_t> tablets) {
  given_back_before_ = given_back_.load(std::memory_order_relaxed);
  tablets_ = std::move(tablets);
  hand_ = 0;
  look_again();  // until this round has ended
}

bool hit_pages::worth_closing(std::uint64_t page) const noexcept {
  std::uint32_t residents = 0;
  for (slot_t s = page * page_slots; s < (page + 1) * page_slots; ++s) {
    const word_t w = word_at(s).load(std::memory_order_relaxed);
    if (word::is_fetching(w)) return false;
    if (word::is_resident(w) && ++residents > residents_max_) return false;
  }
  return true;
}

bool hit_pages::mark_some() {
  const std::uint64_t all = tablets_.size() * pages_per_tablet;
  const std::uint64_t over_by =
      pages_.load(std::memory_order_relaxed) - std::min(budget_, pages_.load(std::memory_order_relaxed));
  const std::uint64_t closed_max = std::min<std::uint64_t>(limits::pages_closed_together, over_by);
  const std::uint64_t end = std::min(all, hand_ + limits::pages_passed_over_per_step);
  for (std::uint32_t n = 0; n < limits::pages_looked_at_per_step && hand_ < end && closing_.size() < closed_max;
       ++hand_) {
    const std::uint64_t page =
        std::uint64_t{tablets_[hand_ / pages_per_tablet]} * pages_per_tablet + hand_ % pages_per_tablet;
    if (state_of(page).load(std::memory_order_acquire) != page_open) continue;
    ++n;
    std::uint32_t s = page_open;
    if (!worth_closing(page))
      kept_.fetch_add(1, std::memory_order_relaxed);
    else if (state_of(page).compare_exchange_strong(s, page_closing, std::memory_order_acq_rel))
      closing_.push_back(page);
  }
  if (!closing_.empty()) {
    closing_stamp_ = epochs::stamp();
    return true;
  }
  if (hand_ < all) return true;
  // A whole round in vain: the pages that are left name resident objects. They are looked at again after a while.
  if (given_back_.load(std::memory_order_relaxed) != given_back_before_) {
    vain_rounds_ = 0;
    return false;
  }
  const std::uint64_t now = pages_.load(std::memory_order_relaxed);
  again_from_.store(now + std::max(limits::pages_over_before_help, now / 8), std::memory_order_relaxed);
  again_at_.store(clock::now() + limits::idle_after_vain_round * (1u << vain_rounds_), std::memory_order_relaxed);
  vain_rounds_ = std::min(vain_rounds_ + 1, limits::vain_rounds_longer);
  return false;
}

bool hit_pages::discard_closing() {
  if (!epochs::try_pass(closing_stamp_) && !mutated(mutation::drop_open_page)) return false;
  for (const std::uint64_t page : closing_) {
    if (discard(page))
      given_back_.fetch_add(1, std::memory_order_relaxed);
    else
      kept_.fetch_add(1, std::memory_order_relaxed);
  }
  closing_.clear();
  return true;
}

// False when the page stays: a writer wanted it, a fetch is in flight, or there is no memory for the side table.
bool hit_pages::discard(std::uint64_t page) {
  shard& sh = shard_of(page);
  const std::lock_guard lock(sh.mutex);
  std::uint32_t marked = page_closing;
  if (!state_of(page).compare_exchange_strong(marked, page_discarding, std::memory_order_acq_rel) &&
      !mutated(mutation::drop_open_page))
    return false;
  hit.pages[page].drops.fetch_add(1, std::memory_order_release);
  moving_.clear();
  bool all = true;
  for (slot_t s = page * page_slots; s < (page + 1) * page_slots && all; ++s) {
    std::atomic<word_t>& word = word_at(s);
    word_t w = word.load(std::memory_order_acquire);
    for (std::uint32_t round = 0; w != word::unknown;) {
      if (word::is_fetching(w) || round > limits::page_busy_rounds_max) {
        all = false;
        break;
      }
      if (word::is_resident(w) && word::is_busy(w)) {
        ++round;
        cpu_relax();
        w = word.load(std::memory_order_acquire);
        continue;
      }
      if (!word.compare_exchange_weak(w, word::unknown, std::memory_order_acq_rel)) continue;
      if (word::is_resident(w)) {
        try {
          moving_.push_back({s, w});
        } catch (const std::bad_alloc&) {
          word.store(w, std::memory_order_release);
          all = false;
        }
      }
      break;
    }
  }
  if (all && !moving_.empty()) {
    try {
      sh.pages.emplace(page, std::vector<sided>(moving_.begin(), moving_.end()));
      sided_.fetch_add(moving_.size(), std::memory_order_relaxed);
    } catch (const std::bad_alloc&) {
      all = false;
    }
  }
  if (!all) {
    for (const sided& s : moving_) word_at(s.slot).store(s.word, std::memory_order_release);
    state_of(page).store(page_open, std::memory_order_release);
    return false;
  }
  os::reservation::discard(hit.words + page * page_slots, page_bytes);
  pages_.fetch_sub(1, std::memory_order_relaxed);
  state_of(page).store(page_given_back, std::memory_order_release);
  return true;
}

}  // namespace fm::detail
