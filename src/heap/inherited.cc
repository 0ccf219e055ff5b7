// Letting go of the heaps of the parent; see inherited.h. It runs once in each child, on the thread that opens a heap.
#include "heap/inherited.h"

#include "collector/roots/weak_cells.h"
#include "os/os.h"
#include "table/table.h"
#include <farmem/detail/barriers/roots.h>

#include <mutex>

namespace fm::detail {

namespace {

std::mutex opening;  // the first heap
const os::fork_guard opening_at_fork = os::guard_at_fork<opening>(os::fork_rank::heaps);

}  // namespace

void let_go_of_parents() {
  if ((epochs::gate.load(std::memory_order_relaxed) & epochs::gate_forked) == 0) return;
  const std::lock_guard lock(opening);
  if ((epochs::gate.load(std::memory_order_relaxed) & epochs::gate_forked) == 0) return;
  roots::for_each([](root_cell& cell, slot_t, void*) { cell.word.store(0, std::memory_order_release); }, nullptr);
  forget_weak([](slot_t, void*) { return true; }, nullptr);
  forget_tablets();
  epochs::gate.fetch_and(~std::uint32_t{epochs::gate_forked}, std::memory_order_seq_cst);
}

}  // namespace fm::detail
