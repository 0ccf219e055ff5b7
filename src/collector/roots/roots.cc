// Root cells that no thread has at hand: chunks of cells, the shared list of free ones, and the walk over all of them
// (farmem/detail/barriers/roots.h).
//
// Invariants owned here
//   - A chunk is never given back, so a walk may read any cell at any time.
//   - A free cell is on the shared list or on one thread's; a thread that ends hands its list over.
//
// refill, spill and hand_over are called by handles that are made and dropped; the walk by the collector and by
// verify.
#include "base/limits.h"
#include "os/os.h"
#include <farmem/detail/barriers/roots.h>

#include <mutex>
#include <new>
#include <vector>

namespace fm::detail {

namespace roots {

namespace {

struct shared_cells {
  std::mutex mutex;
  std::vector<root_cell*> chunks;
  root_cell* free = nullptr;  // a list of free cells, linked through their words
  std::uint32_t free_count = 0;
};
shared_cells& shared() {
  static auto* s = new shared_cells;  // outlives every handle
  return *s;
}
const os::fork_guard cells_at_fork(
    os::fork_rank::leaves, []() noexcept { shared().mutex.lock(); }, []() noexcept { shared().mutex.unlock(); },
    []() noexcept { shared().mutex.unlock(); });

void hand_over_at_thread_end() {
  static const bool told = (epochs::at_thread_end(hand_over), true);
  (void)told;
}
const os::at_load told_at_load(hand_over_at_thread_end);

}  // namespace

std::uint64_t memory_bytes() noexcept {
  shared_cells& s = shared();
  const std::lock_guard lock(s.mutex);
  return s.chunks.size() * limits::cells_per_chunk * sizeof(root_cell);
}

root_cell* refill() {
  { const section registered; }  // the end of a thread must be noticed: its cells are handed over then
  hand_over_at_thread_end();
  thread_state& t = this_thread;
  shared_cells& s = shared();
  const std::lock_guard lock(s.mutex);
  if (s.free) {
    root_cell* first = s.free;
    root_cell* last = first;
    std::uint32_t n = 1;
    for (; n < local_max / 4 && next_of(last->word.load(std::memory_order_relaxed)); ++n)
      last = next_of(last->word.load(std::memory_order_relaxed));
    s.free = next_of(last->word.load(std::memory_order_relaxed));
    s.free_count -= n;
    last->word.store(free_tag, std::memory_order_relaxed);
    t.free_cells = first;
    t.free_cell_count = n;
    return first;
  }
  root_cell* chunk = nullptr;
  try {
    if (s.chunks.size() == s.chunks.capacity()) s.chunks.reserve(2 * s.chunks.size() + 64);
    chunk = new (std::align_val_t{cache_line_bytes}) root_cell[limits::cells_per_chunk];
  } catch (const std::bad_alloc&) {
    throw error(errc::out_of_memory, "cells for root handles");
  }
  for (std::size_t i = 0; i < limits::cells_per_chunk; ++i)
    chunk[i].word.store(
        free_tag | (i + 1 < limits::cells_per_chunk ? reinterpret_cast<std::uint64_t>(&chunk[i + 1]) : 0),
        std::memory_order_relaxed);
  s.chunks.push_back(chunk);
  t.free_cells = chunk;
  t.free_cell_count = limits::cells_per_chunk;
  return chunk;
}

namespace {

// Moves the first `n` free cells of a thread to the shared list.
void give(thread_state& t, std::uint32_t n) noexcept {
  if (n == 0 || !t.free_cells) return;
  auto* first = static_cast<root_cell*>(t.free_cells);
  root_cell* last = first;
  for (std::uint32_t i = 1; i < n; ++i) last = next_of(last->word.load(std::memory_order_relaxed));
  t.free_cells = next_of(last->word.load(std::memory_order_relaxed));
  t.free_cell_count -= n;
  shared_cells& s = shared();
  const std::lock_guard lock(s.mutex);
  last->word.store(free_tag | reinterpret_cast<std::uint64_t>(s.free), std::memory_order_relaxed);
  s.free = first;
  s.free_count += n;
}

}  // namespace

void spill() noexcept { give(this_thread, local_max / 2); }

void hand_over(thread_state& t) noexcept { give(t, t.free_cell_count); }

void for_each(void (*visit)(root_cell&, slot_t, void*), void* context) {
  std::vector<root_cell*> chunks;  // they are never given back
  {
    shared_cells& s = shared();
    const std::lock_guard lock(s.mutex);
    chunks = s.chunks;
  }
  for (root_cell* chunk : chunks) {
    for (std::size_t i = 0; i < limits::cells_per_chunk; ++i) {
      const std::uint64_t w = chunk[i].word.load(std::memory_order_acquire);
      if (w != 0 && (w & free_tag) == 0) visit(chunk[i], w, context);
    }
  }
}

}  // namespace roots
}  // namespace fm::detail
