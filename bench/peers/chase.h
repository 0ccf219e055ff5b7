// The peer of resident access: lists over plain pointers and a std::vector, everything in memory.
#pragma once

#include "os/os.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fm::bench {

/// A node of one cache line, as the managed nodes that it is compared with.
struct alignas(64) raw_node {
  std::uint64_t value = 0;
  raw_node* next = nullptr;
  std::uint64_t more[6] = {};
};

/// The order in which a list's links visit `count` nodes: in order of allocation, or one random cycle through all.
enum class visit_order { sequential, random };
std::vector<std::uint32_t> visiting_order(std::size_t count, visit_order order, std::uint64_t seed);

/// Nodes in one array, the best that an allocator could do, in huge pages where the kernel gives them, as the heap's cache.
class raw_list {
 public:
  raw_list(std::size_t count, visit_order order, std::uint64_t seed);
  /// Follows every link once and returns the sum of the values.
  [[nodiscard]] std::uint64_t walk() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  std::size_t count_;
  os::reservation memory_;
  raw_node* first_ = nullptr;
};

/// The sum of a vector's elements, in order.
std::uint64_t scan(const std::vector<std::uint64_t>& values) noexcept;

}  // namespace fm::bench
