// The steps of forgetting addresses; see address_sweep.h.
//
// Invariant: an address is taken out of a word by compare-exchange, and out of a frame under its word's busy bit.
#include "cache/replicas/address_sweep.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "os/os.h"

namespace fm::detail {

bool address_sweep::ends() const noexcept { return stopping_.load(std::memory_order_acquire) || cache_.closed(); }

bool address_sweep::await_readers(time_point deadline) {
  const std::uint64_t stamp = epochs::stamp();
  os::nap nap(limits::pass_nap_first, limits::pass_nap_most);
  while (!epochs::readers_passed(stamp)) {
    if (clock::now() >= deadline || ends()) return false;
    // The ends of sections are not announced.
    std::atomic<std::uint32_t> never{0};
    os::futex_wait(never, 0, clock::now() + nap.next());
  }
  return true;
}

bool address_sweep::forget_addresses(std::uint32_t tablet, time_point deadline) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  for (slot_t from = first; from < first + tablet_slots; from += page_slots) {
    if (page_of(from).state.load(std::memory_order_acquire) == page_given_back) continue;  // nothing of it is near
    for (slot_t slot = from; slot < from + page_slots;) {
      {
        const auto no_step = cache_.eviction().hold();
        const section in_section;
        while (slot < from + page_slots && forget_address(slot)) ++slot;
      }
      if (slot < from + page_slots) await_fetch(slot);
      if (ends() || (slot < from + page_slots && clock::now() >= deadline)) return false;
    }
  }
  return true;
}

bool address_sweep::holds_no_address(std::uint32_t tablet) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  for (slot_t from = first; from < first + tablet_slots; from += page_slots) {
    if (page_of(from).state.load(std::memory_order_acquire) == page_given_back) continue;
    const auto no_step = cache_.eviction().hold();
    const section in_section;
    for (slot_t slot = from; slot < from + page_slots; ++slot) {
      const word_t w = word_at(slot).load(std::memory_order_acquire);
      if (word::is_remote(w) || word::is_fetching(w)) return false;
      if (!word::is_resident(w) || word::is_busy(w) || !word::is_clean(w)) continue;
      if (word::is_remote(frame::prefix(word::payload(w)).home.load(std::memory_order_relaxed)) &&
          word_at(slot).load(std::memory_order_acquire) == w)
        return false;
    }
  }
  return true;
}

bool address_sweep::forget_address(slot_t slot) noexcept {
  std::atomic<word_t>& word = word_at(slot);
  for (word_t w = word.load(std::memory_order_acquire);;) {
    if (w == word::free || w == word::unknown) return true;
    if (word::is_fetching(w)) return mutated(mutation::rehome_without_grace);
    if (word::is_remote(w)) {
      if (word.compare_exchange_weak(w, word::unknown, std::memory_order_acq_rel)) return true;
      continue;
    }
    if (word::is_busy(w)) {
      cpu_relax();
      w = word.load(std::memory_order_acquire);
      continue;
    }
    if (!word::is_clean(w)) return true;  // it gets another address before it is clean
    if (!word.compare_exchange_weak(w, w | word::busy_bit, std::memory_order_acq_rel)) continue;
    frame::prefix(word::payload(w)).home.store(word::unknown, std::memory_order_relaxed);
    word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
    return true;
  }
}

void address_sweep::open_aside(const std::vector<slot_t>& slots) {
  for (const slot_t slot : slots) {
    const section in_section;
    cache_.pages().open(slot);
  }
}

// Requests of a lost agent have failed, or do so now; a detached one is completed by whoever polls.
void address_sweep::await_fetch(slot_t slot) noexcept {
  for (auto& link : cache_.agents()) link->session().poll();
  const word_t w = word_at(slot).load(std::memory_order_acquire);
  if (!word::is_fetching(w)) return;
  auto* const f = word::fetch_of<fetch>(w);
  f->waiters.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t sequence = f->sequence.load(std::memory_order_seq_cst);
  if (word_at(slot).load(std::memory_order_acquire) == w)
    os::futex_wait(f->sequence, sequence, clock::now() + std::chrono::milliseconds(1));
  f->waiters.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace fm::detail
