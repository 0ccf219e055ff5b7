// The parts that the service knows, made from a seed: in layers, each part made from a few of the layer below. As plain numbers;
// the server builds its catalogue from them, and the client checks answers against them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::example {

struct plain_part {
  struct use {
    std::uint64_t part = 0, count = 0;
  };
  std::uint64_t cents = 0;  ///< to buy or to assemble one
  std::vector<use> made_from;
};

class plain_parts {
 public:
  plain_parts(std::uint64_t count, std::uint64_t seed) : count_(count), seed_(seed) {}
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Number `part`; those that it is made from have lower numbers.
  [[nodiscard]] plain_part operator[](std::uint64_t part) const;
  [[nodiscard]] static std::string name_of(std::uint64_t part);

 private:
  std::uint64_t count_, seed_;
};

}  // namespace fm::example
