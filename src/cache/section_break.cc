// Pinning what sections have handed out, and going on in them; see section_break.h.
//
// Invariant: between leave() and enter() the thread has no section, and each payload that it may still use is pinned.
#include "object_cache.h"

#include <fmt/format.h>

#include <farmem/detail/barriers/barrier.h>
#include <farmem/detail/barriers/section_break.h>

namespace fm::detail {

namespace {

/// Makes the word of a pinned frame warm, in a section. It takes no memory and asks nobody, since the frame does not
/// move: a section that could be left here would be entered without what it holds. False if the heap was closed
/// meanwhile: its memory may be gone, and the pin with it.
bool warm(object_cache* heap, slot_t slot, const char* payload) noexcept {
  if (heap == nullptr || tablet_info_of(slot).heap.load(std::memory_order_acquire) != heap) return false;
  std::atomic<word_t>& word = word_at(slot);
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (!word::is_resident(w)) {
      FM_CHECK(w == word::unknown, "the object of a pinned frame is resident, perhaps aside");
      heap->pages().open(slot);
      continue;
    }
    FM_CHECK(word::payload(w) == payload, "a pinned frame stays where it is");
    if (!word::is_cold(w)) return true;
    if (word::is_busy(w)) {
      cpu_relax();
      continue;
    }
    if (word.compare_exchange_weak(w, w & ~word::cold_bit, std::memory_order_acq_rel)) return true;
  }
}

std::atomic<std::uint64_t> sections_not_left{0};

}  // namespace

std::uint64_t section_break::not_left() noexcept { return sections_not_left.load(std::memory_order_relaxed); }

void section_break::require_left(const char* what) {
  const thread_state& t = this_thread;
  if (t.depth == 0) return;
  const char* file = t.file.load(std::memory_order_relaxed);
  throw error(errc::scope_misuse, fmt::format("{} in a scope that has shown more than {} objects: {}:{}", what,
                                              handed_out_max, file ? file : "?", t.line.load()));
}

void section_break::leave(slot_t reaches) noexcept {
  thread_state& t = this_thread;
  if (!epochs::may_leave()) {
    sections_not_left.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  count_ = t.handed_out;
  for (std::uint32_t i = 0; i < count_; ++i) {
    char* const payload = pinned_[i].payload = t.payloads[i];
    if (payload == nullptr) continue;
    pinned_[i].slot = header::slot(frame::prefix(payload).header.load(std::memory_order_relaxed));
    pinned_[i].heap = tablet_info_of(pinned_[i].slot).heap.load(std::memory_order_acquire);
    pin_frame(payload);
  }
  FM_ASSERT(t.waits_for.load(std::memory_order_relaxed) == 0, "a thread waits for one slot at a time");
  t.waits_for.store(reaches, std::memory_order_release);
  depth_ = t.depth;
  t.depth = 0;
  t.handed_out = 0;
  t.epoch.store(0, std::memory_order_release);
}

void section_break::enter() noexcept {
  thread_state& t = this_thread;
  epochs::enter();
  for (std::uint32_t i = 0; i < count_; ++i) {
    char*& payload = pinned_[i].payload;
    if (payload != nullptr && !warm(pinned_[i].heap, pinned_[i].slot, payload)) payload = nullptr;
  }
  for (std::uint32_t i = 0; i < count_; ++i)
    if (char* const payload = t.payloads[i] = pinned_[i].payload; payload != nullptr) unpin_frame(payload);
  t.handed_out = count_;
  t.depth = depth_;
  t.waits_for.store(0, std::memory_order_release);
}

}  // namespace fm::detail
