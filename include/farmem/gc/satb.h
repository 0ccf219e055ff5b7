// The deletion barrier's hook: while a cycle marks, every overwritten reference and root is logged, so that whatever was
// reachable at the snapshot is traced (collector design: exchange, then log). Nothing marks yet; the barrier is in
// place so that every store already goes through it.
#pragma once

#include <atomic>
#include <farmem/table.h>

namespace fm::detail {

/// Not 0 while some heap of this process marks.
extern std::atomic<std::uint32_t> marking;

/// Logs a slot that was just overwritten or dropped. Called after the exchange, by the thread that made it.
void log_overwritten(slot_t slot) noexcept;

}  // namespace fm::detail
