// Root cells: what an fm::ptr points to. A cell holds a slot; the collector finds every root by walking the cells, so
// an fm::ptr may live anywhere: stack, global, std::vector. Making and dropping one is a pop and a push on the thread's
// own list of free cells.
//
//   cell word   0 slot (40)                    a root, 0 = null root
//               1<<63 | address of next cell   free
//
// Invariant: a cell is on exactly one list or belongs to exactly one handle. Cells are never unmapped: handles in
// statics outlive heaps and threads. While a cycle marks, a root's old value is logged before it is overwritten or
// dropped (deletion_barrier.h). Handles make and drop cells; the collector and a heap that closes walk them.
#pragma once

#include <farmem/detail/barriers/barrier.h>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

struct root_cell {
  std::atomic<std::uint64_t> word;
};

namespace roots {

constexpr std::uint64_t free_tag = std::uint64_t{1} << 63;
constexpr std::uint32_t local_max = 2048;  ///< free cells that a thread keeps before it gives half to the others

/// Gets cells for this thread: from what others gave back, or a new chunk. Throws out_of_memory.
root_cell* refill();
/// Gives half of this thread's free cells to the others.
void spill() noexcept;

inline root_cell* next_of(std::uint64_t word) { return reinterpret_cast<root_cell*>(word & ~free_tag); }

/// A cell that holds `slot`. O(1), no shared memory is touched in the common case.
inline root_cell* make(slot_t slot) {
  thread_state& t = this_thread;
  auto* c = static_cast<root_cell*>(t.free_cells);
  if (__builtin_expect(c == nullptr, 0)) c = refill();
  t.free_cells = next_of(c->word.load(std::memory_order_relaxed));
  --t.free_cell_count;
  c->word.store(slot, std::memory_order_release);
  return c;
}

inline void drop(root_cell* c) noexcept {
  thread_state& t = this_thread;
  if (is_marking()) log_overwritten(c->word.load(std::memory_order_relaxed));
  c->word.store(free_tag | reinterpret_cast<std::uint64_t>(t.free_cells), std::memory_order_release);
  t.free_cells = c;
  if (__builtin_expect(++t.free_cell_count > local_max, 0)) spill();
}

inline slot_t get(const root_cell* c) noexcept { return c->word.load(std::memory_order_relaxed); }

inline void set(root_cell* c, slot_t slot) noexcept {
  if (is_marking()) log_overwritten(c->word.load(std::memory_order_relaxed));
  c->word.store(slot, std::memory_order_release);
}

/// Visits every cell that holds a slot other than null. Cells that change meanwhile may or may not be seen; those that
/// hold a slot throughout are. Holds no lock while it visits.
void for_each(void (*visit)(root_cell&, slot_t, void*), void* context);

/// Memory of all cells, of the process.
[[nodiscard]] std::uint64_t memory_bytes() noexcept;

/// Called when a thread ends: its free cells go to the others.
void hand_over(thread_state& t) noexcept;

}  // namespace roots
}  // namespace fm::detail
