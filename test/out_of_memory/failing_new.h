// The global operator new of a test program, which fails at the allocations that a test asks for.
#pragma once

#include <atomic>
#include <cstdint>

namespace fm::test {

/// Allocations of all threads are counted from the call of `fail` on. Those from the `at`th on fail, `run` of them.
class failing_new {
 public:
  /// Starts counting from one.
  static void fail(std::uint64_t at, std::uint64_t run) noexcept;
  /// Nothing fails any more. Returns how many allocations were counted.
  static std::uint64_t stop() noexcept;
  /// How many have failed since `fail`.
  static std::uint64_t failed() noexcept;
  /// Whether this allocation is one that fails.
  static bool is_due() noexcept;
};

/// The test's own allocations: none of this thread's fails, nor counts, as long as it lives.
class spared {
 public:
  spared() noexcept;
  ~spared();
  spared(const spared&) = delete;
  spared& operator=(const spared&) = delete;
};

}  // namespace fm::test
