// The generator; see parts.h.
#include "parts.h"

#include <fmt/format.h>

#include "../support/edges.h"

namespace fm::example {

namespace {

constexpr std::uint64_t layers = 4;

}  // namespace

std::string plain_parts::name_of(std::uint64_t part) { return fmt::format("part-{:07}", part); }

plain_part plain_parts::operator[](std::uint64_t part) const {
  std::uint64_t state = mix(seed_ ^ mix(part));
  const auto below = [&state](std::uint64_t limit) { return mix(state++) % limit; };
  plain_part p;
  p.cents = 1 + below(500);
  const std::uint64_t each = (count_ + layers - 1) / layers, layer = part / each;
  if (layer == 0) return p;
  for (std::uint64_t n = 2 + below(3); n > 0; --n) {
    const std::uint64_t from = (layer - 1) * each + below(each), count = 1 + below(4);
    bool again = false;
    for (const auto& u : p.made_from) again |= u.part == from;
    if (!again) p.made_from.push_back({from, count});
  }
  return p;
}

}  // namespace fm::example
