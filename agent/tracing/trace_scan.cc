// The hot loop of tracing: slots go from the worker's stack through a ring, in which first the slot's entry and then
// its home copy is prefetched, and are scanned when they come out of it. Two random accesses an object, a dozen of them
// in flight; see tracer.h for what is shared with others.
//
// A home copy is found through its entry, and stays good while its region is entered, even if the object moves
// meanwhile: what is read is then what was current when the entry was loaded, hence not older than the snapshot.
#include "base/log.h"

#include <bit>

#include "agent/base/limits.h"
#include "trace_worker.h"

namespace fm::agent {

namespace {

void prefetch_copy(const std::byte* copy) {
  __builtin_prefetch(copy);
  __builtin_prefetch(copy + detail::cache_line_bytes);
}

}  // namespace

// ---- where slots come from ----

slot_t tracer::next_slot(worker& w) {
  if (w.top != 0) return w.stack[--w.top];
  if (!w.rescanning) return 0;
  std::byte* const block = h_.tablet_block_of(w.rescan_tablet);
  while (w.rescan_bits == 0) {
    if (w.rescan_word == detail::tablet_slots / 64) {
      w.rescanning = false;
      return 0;
    }
    w.rescan_bits = heap::marks(block)[w.rescan_word++].load(std::memory_order_acquire);
    --w.budget;
  }
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(w.rescan_bits));
  w.rescan_bits &= w.rescan_bits - 1;
  return slot_t{w.rescan_tablet} * detail::tablet_slots + (w.rescan_word - 1) * 64 + bit;
}

tracer::item tracer::make_item(slot_t slot) const {
  const entry_t* const entry = h_.entry(slot);
  __builtin_prefetch(entry);
  if (has_dirty_)
    __builtin_prefetch(
        &heap::dirty_bits(h_.tablet_block_of(detail::tablet_of(slot)))[slot % detail::tablet_slots / 64]);
  return {slot, entry, nullptr, 0, false};
}

void tracer::run(worker& w) {
  constexpr std::uint32_t mask = limits::trace_ring_items - 1;
  static_assert((limits::trace_ring_items & mask) == 0);
  item ring[limits::trace_ring_items];
  std::uint32_t popped = 0, resolved = 0, scanned = 0;  // numbers of items so far; the ring holds [scanned, popped)
  w.budget = limits::trace_step_budget;
  while (w.budget > 0 && !ended_.load(std::memory_order_relaxed)) {
    if (w.resume_slot != 0 && !resume(w)) break;
    while (popped - scanned < limits::trace_ring_items) {
      const slot_t slot = next_slot(w);
      if (slot == 0) break;
      ring[popped++ & mask] = make_item(slot);
    }
    if (popped == scanned) {
      if (!take_work(w)) break;
      continue;
    }
    if (resolved != popped && resolved - scanned < limits::trace_resolved_items) resolve(w, ring[resolved++ & mask]);
    if (resolved != popped && resolved - scanned < limits::trace_resolved_items) continue;
    if (!scan(w, ring[scanned++ & mask], 0)) break;
    if (wants_work_.load(std::memory_order_relaxed) && w.top >= limits::trace_ring_items) spill(w);
  }
  while (scanned != popped) w.stack[w.top++] = ring[scanned++ & mask].slot;
}

bool tracer::resume(worker& w) {
  item it = make_item(std::exchange(w.resume_slot, 0));
  resolve(w, it);
  return scan(w, it, w.resume_at);
}

// ---- from a slot to its home copy ----

bool tracer::is_dirty(slot_t slot) const noexcept {
  if (!has_dirty_) return false;
  const std::uint64_t at = slot % detail::tablet_slots;
  const heap::bits_t* const bits = heap::dirty_bits(h_.tablet_block_of(detail::tablet_of(slot)));
  return (bits[at / 64].load(std::memory_order_acquire) >> (at % 64) & 1) != 0;
}

void tracer::resolve(worker& w, item& it) {
  it.dirty = is_dirty(it.slot);
  if (it.dirty) return;
  word_t word = it.entry->load(std::memory_order_acquire);
  for (int moves = 0; word != 0; ++moves) {  // 0: young, or never stored
    const home_address at = home_address::unpack(word);
    if (const std::byte* const base = enter_region(w, at)) {
      it.copy = base + at.offset;
      it.room =
          std::min<std::uint64_t>(h_.regions_pool.region_bytes() - at.offset, detail::size_class::bytes(at.size_class));
      prefetch_copy(it.copy);
      return;
    }
    const word_t again = it.entry->load(std::memory_order_acquire);
    if (again == word || moves == limits::moves_max) {
      if (!h_.closed.load()) fault(it.slot, "its entry names a region that does not exist");
      return;
    }
    word = again;
  }
}

const std::byte* tracer::enter_region(worker& w, home_address at) {
  worker::entered& e = w.at(at.region);
  if (e.generation == at.generation) return e.base;
  if (e.generation != 0) return nullptr;  // while one is inside, the number has no other generation
  region* const r = h_.regions_pool.enter(at.region, at.generation);
  if (r == nullptr) return nullptr;
  if (at.offset >= r->memory.bytes()) {
    h_.regions_pool.leave(*r);
    return nullptr;
  }
  e = {at.generation, r->memory.base()};
  w.inside.push_back(r);
  return e.base;
}

void tracer::leave_regions(worker& w) noexcept {
  for (region* const r : w.inside) {
    w.at(r->number).generation = 0;
    h_.regions_pool.leave(*r);
  }
  w.inside.clear();
}

// ---- from a home copy to what it refers to ----

bool tracer::scan(worker& w, const item& it, std::uint64_t from) {
  w.budget -= 4;
  if (it.dirty) {
    if (hand_over(w, it.slot)) return true;
    w.resume_slot = it.slot;
    w.resume_at = 0;
    return false;
  }
  if (it.copy == nullptr) return true;
  std::uint64_t header = 0;
  const std::uint64_t bytes = h_.copy_bytes(it.copy, it.room, header);
  if (bytes == 0 || detail::header::slot(header) != it.slot) {
    fault(it.slot, "its home copy's header is damaged");
    return true;
  }
  if (from == 0) w.scanned_bytes += bytes;
  const heap::type_references refs = h_.references_of(detail::header::type(header));
  if (refs.count == 0) return true;
  // The length of an array follows from the checked size: the word in the copy may change.
  const bool array = refs.stride != 0;
  const std::uint64_t total = array ? (bytes - 16) / refs.stride * refs.count : refs.count;
  if (from >= total) return true;
  const std::byte* element = it.copy + detail::header::bytes + (array ? 8 + from / refs.count * refs.stride : 0);
  std::uint32_t field = static_cast<std::uint32_t>(from % refs.count);
  for (std::uint64_t i = from; i < total; ++i) {
    const bool put_off = --w.budget < -limits::trace_overdraft;
    if (put_off || !visit(w, heap::load_word(element + refs.offsets[field]))) {
      w.resume_slot = it.slot;
      w.resume_at = i;
      return false;
    }
    if (++field == refs.count) {
      field = 0;
      element += refs.stride;
    }
  }
  return true;
}

bool tracer::visit(worker& w, slot_t slot) {
  if (slot == 0) return true;
  if (slot >= detail::slot_limit) {
    fault(slot, "no such slot, but a home copy refers to it");
    return true;
  }
  const std::uint64_t word = h_.tablet_words()[detail::tablet_of(slot)].load(std::memory_order_acquire);
  if (word == 0 || (word & heap::is_backup) != 0) return add_remote_reference(w, slot);
  if ((word & heap::in_cycle) == 0) return true;
  std::byte* const block = heap::block_in(word);
  const std::uint64_t at = slot % detail::tablet_slots, bit = std::uint64_t{1} << (at % 64);
  heap::bits_t& bits = heap::marks(block)[at / 64];
  if ((bits.load(std::memory_order_relaxed) & bit) != 0 || (bits.fetch_or(bit, std::memory_order_acq_rel) & bit) != 0)
    return true;
  ++w.marked;
  if (w.top < w.stack_max)
    w.stack[w.top++] = slot;
  else
    push_overflow(w, slot, block);
  return true;
}

bool tracer::add_remote_reference(worker& w, slot_t slot) {
  auto& seen = reinterpret_cast<std::atomic<slot_t>*>(seen_references_.base())[(slot * 0x9e3779b97f4a7c15ull) >> 48];
  if (seen.load(std::memory_order_relaxed) == slot) return true;
  if (!hand_over(w, slot)) return false;
  seen.store(slot, std::memory_order_relaxed);
  return true;
}

bool tracer::hand_over(worker& w, slot_t slot) {
  if (w.remote_reference_count == limits::trace_references_batch) {
    std::lock_guard lock(mutex_);
    flush_remote_references(w);
    if (w.remote_reference_count == limits::trace_references_batch) return false;
  }
  w.remote_references[w.remote_reference_count++] = slot;
  return true;
}

void tracer::fault(slot_t slot, const char* what) {
  if (faults_.fetch_add(1, std::memory_order_relaxed) == 0)
    log::error("heap {}: cycle {}: slot {:#x}: {}", h_.name, cycle, slot, what);
}

}  // namespace fm::agent
