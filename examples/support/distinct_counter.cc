// HyperLogLog; see distinct_counter.h.
#include "distinct_counter.h"

#include <algorithm>
#include <cmath>

namespace fm::example {

void distinct_counter::add(std::uint64_t hash) noexcept {
  const std::size_t i = hash >> (64 - bits);
  const auto rank = std::uint8_t(1 + std::min(__builtin_clzll((hash << bits) | 1), int(64 - bits)));
  registers_[i] = std::max(registers_[i], rank);
}

void distinct_counter::merge(const distinct_counter& other) noexcept {
  for (std::size_t i = 0; i < registers_.size(); ++i) registers_[i] = std::max(registers_[i], other.registers_[i]);
}

double distinct_counter::estimate() const noexcept {
  const auto m = double(registers_.size());
  double sum = 0;
  std::size_t zeros = 0;
  for (const std::uint8_t r : registers_) {
    sum += std::ldexp(1.0, -int(r));
    zeros += r == 0;
  }
  const double raw = 0.7213 / (1 + 1.079 / m) * m * m / sum;
  return raw <= 2.5 * m && zeros != 0 ? m * std::log(m / double(zeros)) : raw;
}

}  // namespace fm::example
