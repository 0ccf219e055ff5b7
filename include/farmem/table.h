// Layer `table`: the heap indirection table, its word, slots and tablets, and the epochs that guard it.
#pragma once

#include <farmem/table/entry.h>
#include <farmem/table/epoch.h>
#include <farmem/table/hit.h>
