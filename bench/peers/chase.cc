// Plain lists and vectors; see chase.h.
#include "chase.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "../support/zipf.h"

namespace fm::bench {

std::vector<std::uint32_t> visiting_order(std::size_t count, visit_order order, std::uint64_t seed) {
  std::vector<std::uint32_t> visits(count);
  std::iota(visits.begin(), visits.end(), 0u);
  if (order == visit_order::random) {
    random_source random(seed);
    for (std::size_t i = count; i > 1; --i) std::swap(visits[i - 1], visits[random.below(i)]);
  }
  return visits;
}

raw_list::raw_list(std::size_t count, visit_order order, std::uint64_t seed)
    : count_(count), memory_(std::max<std::size_t>(count, 1) * sizeof(raw_node), 2u << 20) {
  os::reservation::prefer_huge_pages(memory_.base(), memory_.bytes());
  auto* nodes = new (memory_.base()) raw_node[count];
  const std::vector<std::uint32_t> visits = visiting_order(count, order, seed);
  for (std::size_t i = 0; i < count; ++i) {
    nodes[visits[i]].value = i;
    nodes[visits[i]].next = i + 1 < count ? &nodes[visits[i + 1]] : nullptr;
  }
  first_ = count != 0 ? &nodes[visits[0]] : nullptr;
}

std::uint64_t raw_list::walk() const noexcept {
  std::uint64_t sum = 0;
  for (const raw_node* n = first_; n != nullptr; n = n->next) sum += n->value;
  return sum;
}

std::uint64_t scan(const std::vector<std::uint64_t>& values) noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t v : values) sum += v;
  return sum;
}

}  // namespace fm::bench
