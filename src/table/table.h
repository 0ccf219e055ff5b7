// Layer `table`: the heap indirection table, its word, slots and tablets, and the epochs that guard it.
//
// Invariant: it knows of no frame, and of an agent its number only. The layers above
// include this header alone.
#pragma once

#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

/// In a child after fork, when no root names a slot of its parent any more: all tablets are nobody's, and all words
/// unknown, as before the first heap. The parent's table is another one by then.
void forget_tablets() noexcept;

}  // namespace fm::detail
