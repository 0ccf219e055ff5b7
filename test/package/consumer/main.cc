// A user's program, built against an installed farmem: uses headers, the compiled library, an error that travels from one
// to the other, and a heap whose objects go home to an agent in the process and come back.
#include <cstdio>
#include <cstring>
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
  const char digits[] = "123456789";
  if (fm::detail::crc32c(digits, 9) != 0xe3069283u) return 1;
  const auto s = fm::agent::store::create({.memory_bytes = 1u << 20, .region_bytes = 1u << 16});
  if (s->statistics().empty()) return 4;
  fm::os::memory_file file("consumer", 4096);
  std::memcpy(file.base(), digits, sizeof digits);
  try {
    fm::os::memory_file::adopt(-1, 4096);
    return 2;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::invalid_argument) return 3;
    std::printf("consumer: %s\n", e.what());
  }
  return use_a_heap();
}
