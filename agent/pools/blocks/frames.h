// The memory of one pool: regions of the agent, cut into frames of 4 KiB to 1 MiB (a buddy system in each region).
// Frames are given lowest first, so that regions at the end become empty and go back to the agent.
//
// Invariants owned here
//   - Frames in use do not overlap, and their bytes are at most the quota.
//   - Regions are numbered (ordinals). An ordinal is used again, the lowest first, when all who knew its region have
//     forgotten it (forget_gone); so there are never more than at one time, and those that are being forgotten.
//   - Nobody but the agent can write the memory of the regions, whoever has its descriptor.
// Not thread-safe: everything belongs to whoever has the pool's structure lock exclusively; what is const is also for
// those who share it.
#pragma once

#include "agent/base/protocol.h"

#include <array>
#include <deque>
#include <set>
#include <vector>

#include "agent/regions/region_pool.h"

namespace fm::agent {

class pool_frames {
 public:
  /// Regions are taken from `regions` for `key`, and marked as `holder`'s.
  pool_frames(region_pool& regions, const owner_key& key, const void* holder, std::uint64_t quota_bytes)
      : regions_(regions), key_(key), holder_(holder), quota_(quota_bytes) {}
  pool_frames(const pool_frames&) = delete;
  pool_frames& operator=(const pool_frames&) = delete;
  ~pool_frames();

  /// A frame of `bytes`, a power of two from 4 KiB to a region. Errors: quota_exceeded, agent_full. O(log n).
  errc take(std::uint64_t bytes, blocks::place& out);
  void give_back(blocks::place at, std::uint64_t bytes);

  [[nodiscard]] std::byte* memory(blocks::place at) const { return records_[at.ordinal].r->memory.base() + at.offset; }
  /// There are never more.
  [[nodiscard]] std::uint64_t most_frames() const noexcept { return quota_ / blocks::frame_bytes_min; }
  /// The region of that ordinal; null when it is gone or never was.
  [[nodiscard]] region* find(std::uint32_t ordinal) const {
    return ordinal < records_.size() ? records_[ordinal].r : nullptr;
  }
  /// How many regions have gone since the pool was made.
  [[nodiscard]] std::uint64_t gone() const noexcept { return forgotten_ + gone_.size(); }
  /// The ordinal of the one that went as the `n`th, from 0; it is not forgotten yet.
  [[nodiscard]] std::uint32_t gone(std::uint64_t n) const { return gone_[n - forgotten_]; }
  /// The first `n` that went are known to nobody any more.
  void forget_gone(std::uint64_t n);

  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t quota_bytes() const noexcept { return quota_; }
  [[nodiscard]] std::uint64_t regions() const noexcept { return held_; }
  /// Bytes of these records.
  [[nodiscard]] std::uint64_t books_bytes() const noexcept;
  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return regions_.region_bytes(); }

 private:
  static constexpr unsigned orders = 14;  ///< 4 KiB to 32 MiB
  struct record {
    region* r = nullptr;
  };
  using address = std::uint64_t;  ///< ordinal << 32 | offset
  static unsigned order_of(std::uint64_t bytes) {
    return static_cast<unsigned>(std::countr_zero(bytes / blocks::frame_bytes_min));
  }
  errc add_region();

  region_pool& regions_;
  const owner_key key_;
  const void* const holder_;
  const std::uint64_t quota_;
  std::uint64_t used_ = 0;
  std::uint64_t held_ = 0;
  std::vector<record> records_;     ///< by ordinal
  std::deque<std::uint32_t> gone_;  ///< ordinals that are not forgotten, in the order in which they went
  std::uint64_t forgotten_ = 0;     ///< those that went before
  std::set<std::uint32_t> ordinals_free_;
  std::array<std::set<address>, orders> free_;  ///< by order
};

}  // namespace fm::agent
