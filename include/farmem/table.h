// Layer `table`: the heap indirection table, its word, slots and tablets.
#pragma once

#include <farmem/table/entry.h>
