// Looks at the memory that this process uses, so that a program ends with a figure before the kernel ends it without one.
// The plan of machine.h says how much it may be; whoever works in a loop calls check().
#pragma once

#include <atomic>
#include <cstdint>

namespace fm::example {

class memory_watch {
 public:
  /// `local_bytes` may be used; 0: any amount.
  explicit memory_watch(std::uint64_t local_bytes = 0) noexcept : local_bytes_(local_bytes) {}

  /// Throws fm::error(out_of_memory), with the --local that would do, when nearly all of the memory is in use. Looks
  /// every few milliseconds only, so it may be called often. Thread-safe.
  void check() const;
  /// The most that was seen, bytes.
  [[nodiscard]] std::uint64_t most_bytes() const noexcept { return most_.load(std::memory_order_relaxed); }

 private:
  const std::uint64_t local_bytes_;
  mutable std::atomic<std::int64_t> next_ns_{0};
  mutable std::atomic<std::uint64_t> most_{0};
};

/// What the kernel charges to this process and cannot take back: private memory and page tables, bytes. Reads /proc.
std::uint64_t used_bytes();

}  // namespace fm::example
