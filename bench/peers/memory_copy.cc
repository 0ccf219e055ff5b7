// memcpy; see memory_copy.h.
#include "memory_copy.h"

#include <cstring>

#include "../support/cpu.h"
#include "chase.h"

namespace fm::bench {

memory_copy::memory_copy(std::uint64_t bytes, std::size_t object_bytes, std::uint64_t seed)
    : object_bytes_(object_bytes),
      order_(visiting_order(bytes / object_bytes, visit_order::random, seed)),
      from_(order_.size() * object_bytes, 'f'),
      to_(order_.size() * object_bytes, 't') {}

double memory_copy::run() {
  const std::uint64_t begin = now_ns();
  char* to = to_.data();
  for (const std::uint32_t i : order_) {
    std::memcpy(to, from_.data() + std::size_t(i) * object_bytes_, object_bytes_);
    to += object_bytes_;
  }
  keep(to_.back());
  return double(to_.size()) / double(1 << 20) / (double(now_ns() - begin) * 1e-9);
}

}  // namespace fm::bench
