// Answers of a network, whatever keeps it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace fm::example {

constexpr std::uint64_t unreachable = ~std::uint64_t{0};

/// Someone to get to know: how many acquaintances two persons have in common.
struct suggestion {
  std::uint64_t id = 0, common = 0;
  friend bool operator==(const suggestion&, const suggestion&) = default;
};

/// Keeps the best `most`, in order.
inline void keep_best(std::vector<suggestion>& all, std::size_t most) {
  std::sort(all.begin(), all.end(), [](const suggestion& a, const suggestion& b) {
    return a.common != b.common ? a.common > b.common : a.id < b.id;
  });
  if (all.size() > most) all.resize(most);
}

struct groups {
  std::uint64_t count = 0, largest = 0;
  void add(std::uint64_t size) {
    ++count;
    largest = std::max(largest, size);
  }
  friend bool operator==(const groups&, const groups&) = default;
};

}  // namespace fm::example
