// A list that grows while others read it, and never shrinks: its elements stay where they are.
//
// Invariant owned here: who sees an element counted sees all of it. One thread at a time adds.
//
// The agents of a heap stand in such lists, which misses and eviction read without a lock.
#pragma once

#include "base/base.h"
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace fm::detail {

template <class T>
class growing_list {
 public:
  /// Room for `most` elements; throws bad_alloc.
  explicit growing_list(std::size_t most) : all_(std::make_unique<std::unique_ptr<T>[]>(most)), most_(most) {}

  /// O(1). One thread at a time, and at most `most` times.
  void push_back(std::unique_ptr<T> element) noexcept {
    const std::size_t n = size_.load(std::memory_order_relaxed);
    FM_CHECK(n < most_, "a growing list has room for what is added");
    all_[n] = std::move(element);
    size_.store(n + 1, std::memory_order_release);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] const std::unique_ptr<T>& operator[](std::size_t i) const noexcept { return all_[i]; }
  [[nodiscard]] const std::unique_ptr<T>& front() const noexcept { return all_[0]; }
  /// Those that are there now.
  [[nodiscard]] const std::unique_ptr<T>* begin() const noexcept { return all_.get(); }
  [[nodiscard]] const std::unique_ptr<T>* end() const noexcept { return all_.get() + size(); }

 private:
  std::unique_ptr<std::unique_ptr<T>[]> all_;
  std::size_t most_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace fm::detail
