// How blocks of each size turn out: whether the pages that came along with one that was asked for are used. From it
// follows how many blocks are looked at, and how readily they grow. Guesses only: lost updates between threads do no
// harm.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace fm::detail {

/// A sampled block costs a fault for every page of it that is used, so large ones, which have shown already that they
/// are wanted, are sampled less often: as long as samples turn out well. When a program begins to jump about, in blocks
/// that grew before, a few that were in vain are enough to look at all; and blocks that do not last are seldom tried
/// again.
class block_record {
 public:
  /// Whether a block of this order is to be sampled. `random` is 64 random bits.
  [[nodiscard]] bool samples(std::uint32_t order, std::uint64_t random) const noexcept {
    if (order == 0) return false;
    constexpr std::array<std::uint32_t, 5> rarity{0, 0, 1, 3, 5};
    const std::uint32_t r = rarity[std::min<std::size_t>(order, rarity.size() - 1)], d = doubt(order);
    return r <= d || random % (std::uint64_t{1} << (r - d)) == 0;
  }
  /// Whether a block may grow to this order now.
  [[nodiscard]] bool grows(std::uint32_t order, std::uint64_t random) const noexcept {
    return random % (std::uint64_t{1} << doubt(order)) == 0;
  }
  /// A sampled block was evicted.
  void turned_out(std::uint32_t order, bool well) noexcept {
    std::atomic<std::uint32_t>& d = doubt_[order];
    const std::uint32_t now = d.load(std::memory_order_relaxed);
    d.store(well ? now - (now != 0) : std::min(now + 2, doubt_max), std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t doubt(std::uint32_t order) const noexcept {
    return doubt_[order].load(std::memory_order_relaxed);
  }

  static constexpr std::uint32_t doubt_max = 5;

 private:
  std::array<std::atomic<std::uint32_t>, 16> doubt_{};
};

}  // namespace fm::detail
