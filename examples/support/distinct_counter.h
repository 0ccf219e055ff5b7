// How many different things a stream holds, without keeping them: for the estimates that the examples make before they decide how
// much memory they get. One counter for each thread; they are merged at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm::example {

/// Estimates how many distinct hashes were seen, within about one percent, in 16 KiB (HyperLogLog; Flajolet et al. 2007).
class distinct_counter {
 public:
  distinct_counter() : registers_(std::size_t{1} << bits) {}
  void add(std::uint64_t hash) noexcept;
  void merge(const distinct_counter& other) noexcept;
  [[nodiscard]] double estimate() const noexcept;

 private:
  static constexpr unsigned bits = 14;
  std::vector<std::uint8_t> registers_;
};

}  // namespace fm::example
