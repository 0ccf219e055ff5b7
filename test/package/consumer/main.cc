// A user's program, built against an installed farmem: an error of the compiled library is caught by type, a pool and a heap
// keep their objects on an agent in the process, and read them back.
#include <cstdint>
#include <cstdio>
#include <farmem/farmem.h>

using namespace fm::literals;

struct node {
  std::uint64_t value = 0;
  fm::ref<fm::string> name;
  fm::ref<node> next;
};

/// 0, or which step went wrong.
int use_a_heap() {
  fm::heap h({.cache = 4_MiB});
  const auto first = h.make<node>({.value = 1, .name = h.str("first")});
  const auto second = h.make<node>({.value = 2, .next = first});
  first.write()->next = second;
  fm::vector<std::uint64_t> numbers(h);
  for (std::uint64_t i = 0; i < 10'000; ++i) numbers.push_back(i);
  if (h.evict_all() != fm::errc::ok) return 10;
  if (second->next->value != 1 || first->next->value != 2) return 11;
  const fm::string name = second->next->name;
  if (name != "first" || numbers[9'999] != 9'999) return 12;
  const fm::heap_stats s = h.stats();
  if (s.misses == 0) return 13;
  if (h.evict_all() != fm::errc::ok || !h.verify().ok()) return 14;
  std::printf("consumer: %lu objects, %lu misses\n", static_cast<unsigned long>(s.allocated_objects),
              static_cast<unsigned long>(s.misses));
  return 0;
}

int main() {
  try {
    fm::heap h({.agents = {"nowhere://here"}});
    return 1;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::unknown_scheme) return 2;
    std::printf("consumer: %s\n", e.what());
  }
  fm::pool shared({.name = "consumer", .tenant = fm::pool_tenant::random()});
  auto nine = shared.alloc<std::uint64_t>(9);
  if (shared.read(nine) != 9 || !shared.verify().ok()) return 3;
  return use_a_heap();
}
