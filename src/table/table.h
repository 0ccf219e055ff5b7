// Layer `table`: the heap indirection table, its word, slots and tablets, and the epochs that guard it.
//
// Invariant: it knows of no frame, and of an agent its number only. The layers above
// include this header alone.
#pragma once

#include <farmem/detail/epoch.h>
#include <farmem/detail/indirection_table.h>
#include <farmem/detail/word.h>
