// The regions of an agent and the memory behind them, shared by all heaps, pools and spaces.
//
// Invariants owned here
//   - At most memory_bytes of region memory exist at any moment, the kept memory of free regions included.
//   - A memory file that one owner has had is never given to another: it might still be mapped there. Owners keep the
//     mappings of regions that may come back with the same memory, so the pool empties a kept file before it closes it.
//   - A region number is opened with generations 1, 2, ... and, when they are used up, never again.
//   - Whoever gives a region back waits for no memory to be unmapped, which takes half a millisecond for 16 MiB: a heap that
//     is closed has thousands, and others would be served by the same thread meanwhile. Maintenance does it, or who needs
//     memory.
// Its mutex is the innermost lock of the agent. Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "region.h"

namespace fm::agent {

/// Who owns memory: a heap of one process.
struct owner_key {
  std::uint64_t heap_id[2];
  std::uint64_t incarnation;
};

class region_pool {
 public:
  region_pool(std::uint64_t memory_bytes, std::uint64_t region_bytes, double reserve, bool huge_pages,
              bool shared = true);
  region_pool(const region_pool&) = delete;
  region_pool& operator=(const region_pool&) = delete;
  ~region_pool();

  /// A region with memory, its gate open, in its next generation. Null when memory is used up; the share held back
  /// for the cleaner is given only to it, and evacuations get none that would make memory low. Thread-safe.
  region* take(heap* owner, const owner_key& key, region_use use);
  /// Closes a region; its memory is free when the last user has left. `keep` allows the same owner to have it again.
  void give_back(region& r, bool keep);

  /// The region of that number if it was ever opened, null otherwise. Lock-free.
  [[nodiscard]] region* find(std::uint32_t number) const noexcept;
  /// Enters the region if it has this generation; leave() when done. Lock-free.
  region* enter(std::uint32_t number, std::uint32_t generation) noexcept;
  void leave(region& r) noexcept;
  /// Gives memory of `most` free regions back to the system; false if there was less. Thread-safe.
  bool drop_some(std::size_t most) noexcept;

  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return region_bytes_; }
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept { return limit_ * region_bytes_; }
  [[nodiscard]] std::uint64_t regions_in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t regions_max() const noexcept { return limit_; }
  [[nodiscard]] std::uint64_t regions_reserved() const noexcept { return reserved_; }
  /// Less than an eighth of the memory is left for owners.
  [[nodiscard]] bool is_low() const noexcept { return left_for_owners() < low_mark(limit_); }
  /// Regions that owners can still take.
  [[nodiscard]] std::uint64_t left_for_owners() const noexcept {
    const std::uint64_t for_owners = limit_ - reserved_, used = in_use_.load(std::memory_order_relaxed);
    return used < for_owners ? for_owners - used : 0;
  }
  /// How many regions can be taken before that is so.
  [[nodiscard]] std::uint64_t until_low() const noexcept {
    return left_for_owners() - std::min(left_for_owners(), low_mark(limit_));
  }
  /// Of so many regions: fewer left are low.
  [[nodiscard]] static constexpr std::uint64_t low_mark(std::uint64_t regions) noexcept {
    return std::max<std::uint64_t>(regions / 8, 2);
  }

 private:
  void make_room_for_one_more();
  void release(region& r);
  bool evict_kept();
  bool evict_left();
  bool drop_one() noexcept;
  void forget_memory(region& r) noexcept;

  std::uint64_t region_bytes_;
  const bool huge_pages_;  ///< of shared regions; others have them if the kernel gives any
  const bool shared_;
  std::uint64_t limit_;
  std::uint64_t reserved_;
  os::reservation records_;  ///< atomic<region*> by number
  std::atomic<std::uint64_t> in_use_{0};

  std::mutex mutex_;
  std::uint32_t next_number_ = 0;
  std::uint64_t with_memory_ = 0;
  std::vector<region*> bare_;  ///< free, without memory
  std::vector<region*> kept_;  ///< free, with the memory of their last owner
  std::vector<region*> left_;  ///< free, and their memory is nobody's any more
};

}  // namespace fm::agent
