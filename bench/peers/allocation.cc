// mimalloc; see allocation.h.
#include "allocation.h"

#include "base/base.h"
#include <cstdint>
#include <mimalloc.h>
#include <new>
#include <string>

#include "../support/cpu.h"

namespace fm::bench {
namespace {

struct block {
  block* next;
  std::uint64_t words[7];
};
static_assert(sizeof(block) == 64);

block* allocate(std::size_t count) {
  block* all = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    void* at = mi_malloc(sizeof(block));
    if (at == nullptr) throw error(errc::out_of_memory, "mi_malloc of 64 bytes");
    all = new (at) block{all, {i}};
  }
  return all;
}

void free_all(block* all) {
  while (all != nullptr) {
    block* const next = all->next;
    mi_free(all);
    all = next;
  }
}

}  // namespace

double mimalloc_64(std::size_t count, bool fresh) {
  // Either state is produced here, whatever the turn before left behind.
  if (fresh) {
    mi_collect(true);
  } else {
    free_all(allocate(count));
  }
  const std::uint64_t begin = now_ns();
  block* const all = allocate(count);
  const double ns = double(now_ns() - begin) / double(count);
  free_all(all);
  return ns;
}

const char* mimalloc_name() {
  static const std::string name = "mimalloc " + std::to_string(mi_version() / 100) + "." +
                                  std::to_string(mi_version() / 10 % 10) + "." + std::to_string(mi_version() % 10);
  return name.c_str();
}

}  // namespace fm::bench
