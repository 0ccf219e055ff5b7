// The peer of write-back over shm://: memcpy of the same objects between buffers far larger than the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm::bench {

class memory_copy {
 public:
  /// Two buffers of `bytes` each, touched. Objects are copied from a seeded random order, as an evictor meets them,
  /// to consecutive places.
  memory_copy(std::uint64_t bytes, std::size_t object_bytes, std::uint64_t seed);
  /// Copies every object once; MiB a second.
  double run();

 private:
  std::size_t object_bytes_;
  std::vector<std::uint32_t> order_;
  std::vector<char> from_, to_;
};

}  // namespace fm::bench
