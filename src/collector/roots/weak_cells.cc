// Weak cells: where they are, how an object gets one, and what the collector does to them (weak_cells.h).
//
// Invariants owned here
//   - Cells and the index are never unmapped, so a name of any age may be looked up.
//   - A cell's word is whole before the index leads to it. A cell changes its object through `free` with a new version
//     alone.
//   - A name is looked up after the marks of the cycle: it sees the marks, or what the cycle did to the cell.
#include "weak_cells.h"

#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "os/os.h"
#include <farmem/detail/barriers/deletion_barrier.h>

#include <mutex>
#include <new>

namespace fm::detail {

constinit std::array<std::atomic<weak_word*>, limits::weak_chunks_max> weak_chunks{};

namespace {

constexpr unsigned version_shift = 40;
constexpr std::uint64_t low_bits = (std::uint64_t{1} << version_shift) - 1;
constexpr std::uint64_t free_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t one_version = std::uint64_t{1} << version_shift;
constexpr std::uint64_t version_bits = free_bit - one_version;

/// A list of free cells, and the rest of a chunk. Threads that make objects at the same time use different ones.
struct alignas(cache_line_bytes) free_cells {
  std::mutex mutex;
  std::uint64_t first = 0;  ///< of the list
  std::uint64_t next = 0, end = 0;
};
constinit std::array<free_cells, limits::weak_free_lists> free_lists{};
constinit std::atomic<std::uint64_t> chunks{0};

/// Number of the cell of a slot, 0 for none. Address space as long as the table; only touched pages of it exist.
constinit std::atomic<std::atomic<std::uint32_t>*> index_of_cell{nullptr};
std::mutex index_mutex;

struct all_weak_locks {
  void lock() noexcept {
    index_mutex.lock();
    for (free_cells& f : free_lists) f.mutex.lock();
  }
  void unlock() noexcept {
    for (free_cells& f : free_lists) f.mutex.unlock();
    index_mutex.unlock();
  }
} weak_locks;
const os::fork_guard weak_at_fork = os::guard_at_fork<weak_locks>(os::fork_rank::leaves);

std::atomic<std::uint32_t>* index() {
  if (auto* const known = index_of_cell.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(index_mutex);
  auto* at = index_of_cell.load(std::memory_order_relaxed);
  if (at == nullptr) {
    os::reservation made(hit.slots * sizeof *at, page_bytes);
    at = reinterpret_cast<std::atomic<std::uint32_t>*>(made.base());
    made.abandon();
    index_of_cell.store(at, std::memory_order_release);
  }
  return at;
}

/// Null for a number that no cell has.
weak_word* cell_at(std::uint64_t number) noexcept {
  const std::uint64_t chunk = number / limits::cells_per_weak_chunk;
  if (chunk >= weak_chunks.size()) return nullptr;
  weak_word* const cells = weak_chunks[chunk].load(std::memory_order_acquire);
  return cells == nullptr ? nullptr : cells + number % limits::cells_per_weak_chunk;
}

free_cells& free_list_of(slot_t slot) noexcept { return free_lists[slot / page_slots % free_lists.size()]; }

void add_chunk(free_cells& to) {
  const std::uint64_t chunk = chunks.load(std::memory_order_relaxed) < weak_chunks.size()
                                  ? chunks.fetch_add(1, std::memory_order_relaxed)
                                  : weak_chunks.size();
  weak_word* const cells = chunk < weak_chunks.size() ? new (std::align_val_t{cache_line_bytes}, std::nothrow)
                                                            weak_word[limits::cells_per_weak_chunk]()
                                                      : nullptr;
  if (cells == nullptr) throw error(errc::out_of_memory, "cells for weak handles");
  weak_chunks[chunk].store(cells, std::memory_order_release);
  to.next = chunk * limits::cells_per_weak_chunk + (chunk == 0 ? 1 : 0);  // number 0 is in no name
  to.end = (chunk + 1) * limits::cells_per_weak_chunk;
}

/// A free cell, which now holds `slot`. No name has its version.
std::uint64_t take_cell(slot_t slot) {
  free_cells& from = free_list_of(slot);
  const std::lock_guard lock(from.mutex);
  std::uint64_t number = from.first;
  if (number == 0 && from.next == from.end) add_chunk(from);
  if (number == 0) number = from.next++;
  weak_word& cell = *cell_at(number);
  const std::uint64_t was = cell.load(std::memory_order_relaxed);
  if (number == from.first) from.first = was & low_bits;
  cell.store((was & version_bits) | slot, std::memory_order_release);
  return number;
}

/// The cell of `slot` is free, with the next version or, if nobody was given a name with it, the same.
void free_cell(std::uint64_t number, slot_t slot, bool named) noexcept {
  weak_word& cell = *cell_at(number);
  const std::uint64_t version = cell.load(std::memory_order_relaxed) & version_bits;
  free_cells& to = free_list_of(slot);
  const std::lock_guard lock(to.mutex);
  if (named && version == version_bits) {  // there is no version that would be new
    cell.store(free_bit | version, std::memory_order_release);
    return;
  }
  cell.store(free_bit | (named ? version + one_version : version) | to.first, std::memory_order_release);
  to.first = number;
}

/// The slot that `word` has for that name, 0 for none.
slot_t slot_for(weak_name name, std::uint64_t word) noexcept {
  return ((word ^ name) & (free_bit | version_bits)) == 0 ? word & low_bits : 0;
}
slot_t slot_of(weak_name name) noexcept {
  const weak_word* const cell = name == 0 ? nullptr : cell_at(name & low_bits);
  return cell == nullptr ? 0 : slot_for(name, cell->load(std::memory_order_acquire));
}

template <class Visit>
void visit_cells(Visit&& visit) {
  for (std::uint64_t chunk = 0; chunk < weak_chunks.size(); ++chunk) {
    weak_word* const cells = weak_chunks[chunk].load(std::memory_order_acquire);
    if (cells == nullptr) {
      if (chunk >= chunks.load(std::memory_order_acquire)) return;
      continue;
    }
    for (std::uint64_t i = 0; i < limits::cells_per_weak_chunk; ++i) {
      const std::uint64_t w = cells[i].load(std::memory_order_acquire);
      if ((w & free_bit) == 0 && (w & low_bits) != 0) visit(chunk * limits::cells_per_weak_chunk + i, w & low_bits);
    }
  }
}

/// A dead slot is given no name, so nobody else changes its index and its cell.
template <class Gone>
std::uint64_t clear_if(Gone&& gone) noexcept {
  std::uint64_t cleared = 0;
  visit_cells([&](std::uint64_t number, slot_t slot) {
    if (!gone(slot)) return;
    index()[slot].store(0, std::memory_order_relaxed);
    free_cell(number, slot, true);
    ++cleared;
  });
  return cleared;
}

}  // namespace

weak_name name_weakly(slot_t slot) {
  std::atomic<std::uint32_t>& known = index()[slot];
  std::uint32_t number = known.load(std::memory_order_acquire);
  if (number == 0) {
    const auto mine = static_cast<std::uint32_t>(take_cell(slot));
    if (known.compare_exchange_strong(number, mine, std::memory_order_acq_rel))
      number = mine;
    else
      free_cell(mine, slot, false);  // another thread was first
  }
  return (cell_at(number)->load(std::memory_order_acquire) & version_bits) | number;
}

slot_t lock_weak(weak_name name) noexcept {
  const slot_t slot = slot_of(name);
  const object_cache* heap = slot == 0 ? nullptr : tablet_info_of(slot).heap.load(std::memory_order_acquire);
  if (!heap) return 0;
  const slot_marks* dying = heap->collections().dying.load(std::memory_order_acquire);
  // The cell is read after the marks: if there are none because the cycle is through with weak cells, this sees what it
  // did to them, and no slot that is used for something else by now.
  if (slot_of(name) != slot) return 0;
  if (dying && dying->dead(slot) && !mutated(mutation::lock_without_asking)) return 0;
  if (is_marking()) log_overwritten(slot);  // it may be reachable from nowhere else
  return slot;
}

std::uint64_t clear_weak(const slot_marks& dying) noexcept {
  return clear_if([&](slot_t slot) { return dying.dead(slot); });
}

void forget_weak(bool (*gone)(slot_t, void*), void* context) noexcept {
  clear_if([&](slot_t slot) { return gone(slot, context); });
}

bool is_named(weak_name name) noexcept { return slot_of(name) != 0; }

void for_each_weak(void (*visit)(slot_t, bool, void*), void* context) {
  visit_cells([&](std::uint64_t number, slot_t slot) {
    visit(slot, index()[slot].load(std::memory_order_acquire) == number, context);
  });
}

}  // namespace fm::detail
