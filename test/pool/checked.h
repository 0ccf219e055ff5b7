// Values of a pool that tell by themselves whether they are whole, whose they are, and of which version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pool_test {

/// A value that tells whether it is whole: all its words follow from the first two.
template <std::size_t Words>
struct checked {
  std::uint64_t id = 0, version = 0;
  std::array<std::uint64_t, Words - 2> rest{};

  static checked make(std::uint64_t id, std::uint64_t version) {
    checked c;
    c.id = id;
    c.version = version;
    for (std::size_t i = 0; i < c.rest.size(); ++i) c.rest[i] = word(id, version, i);
    return c;
  }
  [[nodiscard]] bool whole() const {
    for (std::size_t i = 0; i < rest.size(); ++i)
      if (rest[i] != word(id, version, i)) return false;
    return true;
  }
  static std::uint64_t word(std::uint64_t id, std::uint64_t version, std::size_t i) {
    return (id * 0x9e3779b97f4a7c15ull) ^ (version * 0xc2b2ae3d27d4eb4full) ^ i;
  }
};

}  // namespace pool_test
