// The collector's half of weak handles (farmem/detail/barriers/weak_cell.h): the cells of dead objects get another version before
// the slots of these are used again.
//
// Invariant: when clear_weak returns, no name leads to a dead slot, and none can come to lead to one, because only an
// object that is kept alive is given a name. A collection's sweep calls it, after the final pause. The rest is for heaps
// that close or are inherited, for notices of deaths, and for verification.
#pragma once

#include "base/limits.h"
#include "cache/tablets/slot_marks.h"
#include <array>
#include <atomic>
#include <farmem/detail/barriers/weak_cell.h>

namespace fm::detail {

using weak_word = std::atomic<std::uint64_t>;
/// Cells by number: chunks of limits::cells_per_weak_chunk, made one after the other. For debuggers and tests.
extern constinit std::array<std::atomic<weak_word*>, limits::weak_chunks_max> weak_chunks;

/// Makes the names of what `dying` holds dead null. Returns of how many objects. O(weak cells).
std::uint64_t clear_weak(const slot_marks& dying) noexcept;
/// Makes the names null of all slots for which gone(slot, context) is true. O(weak cells).
void forget_weak(bool (*gone)(slot_t, void*), void* context) noexcept;
/// Whether the object of that name has not been found dead. Wait-free.
bool is_named(weak_name name) noexcept;
/// Visits the slots that have a cell, with whether the cell is the one that the slot's index names. While no cell
/// changes.
void for_each_weak(void (*visit)(slot_t, bool indexed, void*), void* context);

}  // namespace fm::detail
