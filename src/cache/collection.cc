#include "collection.h"
#include "evictor.h"
#include "object_cache.h"

#include <algorithm>
#include <cstring>

#include "busy_word.h"
#include "retire_frame.h"

namespace fm::detail {

namespace {

constexpr std::uint32_t sweep_rounds_max = 10000;  // a busy word is somebody's for a bounded time
constexpr std::uint32_t words_with_one_hold = 16;  // words of 64 dead slots that eviction is held back for

}  // namespace

// ---- slot_marks ----

slot_marks::slot_marks(std::vector<std::uint32_t> tablets) : tablets_(std::move(tablets)) {
  std::uint32_t most = 0;
  for (const std::uint32_t t : tablets_) most = std::max(most, t + 1);
  positions_.resize(most);
  for (std::size_t i = 0; i < tablets_.size(); ++i) positions_[tablets_[i]] = static_cast<std::uint32_t>(i + 1);
  allocated_.assign(tablets_.size() * tablet_words, ~std::uint64_t{0});
  marked_.resize(tablets_.size() * tablet_words);
}

void slot_marks::except(slot_t first, std::uint64_t slots) noexcept {
  for (slot_t s = first; s < first + slots;) {
    const std::size_t at = position(s);
    const std::uint64_t i = s % tablet_slots;
    if (at == 0) {
      s += tablet_slots - i;
      continue;
    }
    std::uint64_t& w = allocated_[(at - 1) * tablet_words + i / 64];
    if (i % 64 == 0 && first + slots - s >= 64) {
      w = 0;
      s += 64;
    } else {
      w &= ~(std::uint64_t{1} << (i % 64));
      ++s;
    }
  }
}

void slot_marks::except(const slot_page& p) noexcept {
  const std::size_t at = position(p.first);
  if (at == 0) return;
  std::uint64_t* w = allocated_.data() + (at - 1) * tablet_words + p.first % tablet_slots / 64;
  for (std::size_t i = 0; i < p.bits.size(); ++i) w[i] &= ~p.bits[i];
}

// ---- slots ----

slot_hold::slot_hold(object_cache& cache) : cache_(cache) {
  for (auto& source : cache_.slot_sources_) {
    locks_.emplace_back(source->mutex);
    if (source->next < source->end) free_runs_.push_back({source->next, source->end});
    free_pages_.insert(free_pages_.end(), source->free_pages.begin(), source->free_pages.end());
  }
  tablets_ = cache_.tablets();
  locks_.emplace_back(cache_.mutators_mutex_);
  free_runs_.reserve(free_runs_.size() + cache_.mutators_.size());
  free_pages_.reserve(free_pages_.size() + cache_.mutators_.size());
}

slot_hold::~slot_hold() = default;

void slot_hold::note_runs() noexcept {
  for (const auto& m : cache_.mutators_) {
    if (m->next_slot < m->end_slot) free_runs_.push_back({m->next_slot, m->end_slot});
    free_pages_.push_back(m->rest);
  }
}

std::unique_ptr<slot_marks> slot_hold::allocated(bool news) {
  if (news) std::erase_if(tablets_, [](std::uint32_t t) { return !object_cache::has_news(t); });
  auto marks = std::make_unique<slot_marks>(std::move(tablets_));
  if (mutated(mutation::sweep_by_entry)) return marks;
  for (const run& r : free_runs_) marks->except(r.first, r.end - r.first);
  for (const slot_page& p : free_pages_) marks->except(p);
  if (marks->covers(0)) marks->except(0, 1);
  return marks;
}

void object_cache::return_slots(std::uint32_t agent, std::span<const slot_page> pages) {
  slot_source& source = *slot_sources_[agent];
  const std::lock_guard lock(source.mutex);
  source.free_pages.insert(source.free_pages.end(), pages.begin(), pages.end());
}

// The next run of slots for a thread out of its page of free ones. In a section: a pause sees the one or the other.
bool object_cache::next_run(mutator& m) noexcept {
  for (std::size_t i = 0; i < m.rest.bits.size(); ++i) {
    std::uint64_t& w = m.rest.bits[i];
    if (w == 0) continue;
    const int from = __builtin_ctzll(w);
    const std::uint64_t ones = ~(w >> from);
    const int n = ones == 0 ? 64 : std::min(__builtin_ctzll(ones), 64 - from);
    const section in_section;
    w &= ~((n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << from);
    m.next_slot = m.rest.first + i * 64 + static_cast<std::uint64_t>(from);
    m.end_slot = m.next_slot + static_cast<std::uint64_t>(n);
    return true;
  }
  return false;
}

// ---- frames ----

namespace {

// `word` is where `w` was read, and may change; null for one that cannot.
void visit_frame(slot_t slot, word_t w, const std::atomic<word_t>* word, std::vector<slot_t>& refs,
                 frame_visitor& visitor) {
  char* payload = word::payload(w);
  frame_prefix& px = frame::prefix(payload);
  if (px.pins.load(std::memory_order_acquire) != 0) visitor.pinned(slot);
  // The home copy is as new if the word was clean, then no write-back was under way, and then it was clean still. Copying out
  // sets `writing` before `clean`, which the first two looks catch; a write-back that fails clears `clean` before `writing`,
  // which the last one does.
  const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
  const bool writing = (shape & frame::writing_bit) != 0, young = (shape & frame::young_bit) != 0;
  const bool clean = word::is_clean(w) && !writing && (!word || word::is_clean(word->load(std::memory_order_acquire)));
  if (visitor.frame(slot, !clean, young) && read_refs(payload, refs)) visitor.references(slot, refs);
}

// A word of the table; in a section. What is cold may be moved by whoever takes its lock, so the lock is taken.
void visit_word(slot_t slot, std::vector<slot_t>& refs, frame_visitor& visitor) {
  std::atomic<word_t>& word = word_at(slot);
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (!word::is_resident(w)) return;
    if (!word::is_cold(w)) return visit_frame(slot, w, &word, refs, visitor);
    if (word::is_busy(w)) {
      cpu_relax();
      continue;
    }
    if (!word.compare_exchange_weak(w, w | word::busy_bit, std::memory_order_acq_rel)) continue;
    visit_frame(slot, w, nullptr, refs, visitor);
    word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
    return;
  }
}

}  // namespace

void object_cache::scan_aside(frame_visitor& visitor) {
  std::vector<slot_t> refs;
  const section in_section;
  pages_.for_each_sided([&](slot_t slot, word_t w) {
    if (word::is_resident(w)) visit_frame(slot, w, nullptr, refs, visitor);
  });
}

void object_cache::scan_page(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor) {
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
  for (std::uint32_t i = 0; i < n; ++i) visit_word(page * page_slots + resident[i], refs, visitor);
}

void object_cache::scan_frames(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor) {
  // Words only return to the table meanwhile, since pages are held: so the ones that are aside come first.
  scan_aside(visitor);
  std::vector<slot_t> refs;
  for (const std::uint32_t t : tablets)
    for (std::uint64_t page = t * pages_per_tablet; page < (t + 1) * pages_per_tablet; ++page)
      scan_page(page, refs, visitor);
}

bool object_cache::read_references(slot_t slot, std::vector<slot_t>& out) {
  std::atomic<word_t>& word = word_at(slot);
  for (;;) {
    if (with_frame(word, [&](char* payload) { read_refs(payload, out); })) return true;
    if (word.load(std::memory_order_acquire) != word::unknown) return false;
    bool found = false;  // with the word aside, since its page was given back
    const auto at = pages_.with_sided(slot, [&](word_t& aside) {
      found = word::is_resident(aside);
      if (found) read_refs(word::payload(aside), out);
      return true;
    });
    if (at != hit_pages::found::in_table) return found;
  }
}

void object_cache::references_in(char* payload, std::vector<slot_t>& out) { read_refs(payload, out); }

void object_cache::release_dead() noexcept { evictor_->release_dead(); }

void object_cache::help_eviction() noexcept {
  if (!evictor_->help()) evictor_->wake();
}

void object_cache::send_batches() noexcept { evictor_->send(); }

void object_cache::await_batches(time_point deadline) noexcept { evictor_->await_acknowledged(deadline); }

void object_cache::hold_pages(bool hold) {
  {
    const auto no_step = evictor_->hold();  // a step that is under way ends first
    pages_.hold(hold);
  }
  if (pages_.wanting()) evictor_->wake();
}

namespace {

std::uint64_t home_bytes_of(char* payload) noexcept {
  return object_cache::home_bytes(frame::prefix(payload).header.load(std::memory_order_relaxed), payload,
                                  frame::total_bytes_of(payload) - sizeof(frame_prefix) + header::bytes);
}

}  // namespace

bool object_cache::free_slot(slot_t slot, bool young, std::uint64_t& bytes) noexcept {
  std::atomic<word_t>& word = word_at(slot);
  for (std::uint32_t round = 0; round < sweep_rounds_max; ++round) {
    word_t w = word.load(std::memory_order_acquire);
    if (w == word::free) return true;
    if (w == word::unknown) {
      bool gone = !young;
      const auto at = pages_.with_sided(slot, [&](word_t& aside) {
        if (!word::is_resident(aside)) return young;
        gone = may_free(aside, young);
        if (gone) {
          if (young) bytes += home_bytes_of(word::payload(aside));
          arena_.note_freed(word::payload(aside));
          bury_frame(word::payload(aside));
        }
        return !gone;
      });
      if (at == hit_pages::found::in_table) continue;
      // An answer that was asked for before the agent forgets must not come over it. Where the page is given back, one still
      // may: a hint to a copy that nobody refers to, which the next object in that slot overwrites.
      if (gone && page_of(slot).state.load(std::memory_order_acquire) != page_given_back &&
          !word.compare_exchange_strong(w, word::free, std::memory_order_acq_rel))
        continue;
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
      arena_.note_freed(word::payload(w));
      bury_frame(word::payload(w));
      word.store(word::free, std::memory_order_release);
      return true;
    }
    if (young) return false;  // it went home meanwhile
    if (word.compare_exchange_strong(w, word::free, std::memory_order_acq_rel)) return true;
  }
  return false;
}

bool object_cache::may_free(word_t w, bool young) noexcept {
  const frame_prefix& px = frame::prefix(word::payload(w));
  const std::uint32_t shape = px.shape.load(std::memory_order_acquire);
  return px.pins.load(std::memory_order_acquire) == 0 && (shape & frame::writing_bit) == 0 &&
         (!young || (shape & frame::young_bit) != 0);
}

std::uint64_t object_cache::free_dead(std::uint32_t tablet, std::size_t begin, std::size_t end,
                                      const std::uint64_t* dead, std::vector<slot_page>& freed, bool young) {
  std::uint64_t bytes = 0;
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  slot_page page;
  for (std::size_t from = begin; from < end; from += words_with_one_hold) {
    // Eviction looks at frames by walking segments: a frame must not die between its look and its step.
    std::unique_lock<std::mutex> no_eviction;
    for (std::size_t i = from; i < std::min(end, from + words_with_one_hold); ++i) {
      const slot_t here = first + i * 64;
      if (here % page_slots == 0) page = {here, {}};
      for (std::uint64_t w = dead[i]; w != 0; w &= w - 1) {
        const word_t at =
            word_at(here + static_cast<std::uint64_t>(__builtin_ctzll(w))).load(std::memory_order_relaxed);
        if (word::is_resident(at)) __builtin_prefetch(word::payload(at) - sizeof(frame_prefix), 1);
      }
      if (dead[i] != 0 && !no_eviction.owns_lock()) no_eviction = evictor_->hold();
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
