// Layer `paged`: far memory for code that knows nothing of it: a range of plain bytes, larger than the memory that it takes
// here, and std::pmr over it (dcm, sections 3 and 4).
#pragma once

#include <farmem/paged/options.h>
#include <farmem/paged/range.h>
#include <farmem/paged/resource.h>
#include <farmem/paged/stats.h>
