// Ghosts: which objects have left the cache a short while ago, without having been used since they came. One that comes
// back has proved by that that it is wanted (S3-FIFO, section 4.1).
//
//   bucket   16 bytes: the fingerprints of the last four that left, of those whose slots share the bucket; newest first
//
// Invariant: correctness depends on nothing here. A fingerprint is 32 bits of a slot's hash, and threads may lose each
// other's updates.
//
// The evictor notes what leaves; misses ask, and take the ghost away.
#pragma once

#include "os/os.h"
#include <atomic>
#include <bit>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

class ghosts {
 public:
  /// Remembers about `capacity_bytes / limits::ghost_bytes` objects, at 4 bytes each.
  explicit ghosts(std::uint64_t capacity_bytes)
      : buckets_(std::bit_floor(std::max<std::uint64_t>(1, capacity_bytes / limits::ghost_bytes / ways))),
        memory_(buckets_ * sizeof(bucket), page_bytes) {}

  /// The object has left. O(1).
  void note(slot_t slot) noexcept {
    const std::uint64_t h = hash(slot);
    bucket& b = of(h);
    std::uint32_t next = fingerprint(h);
    for (auto& f : b.fingerprints) {
      const std::uint32_t was = f.load(std::memory_order_relaxed);
      f.store(next, std::memory_order_relaxed);
      if (was == fingerprint(h)) return;
      next = was;
    }
  }
  /// Whether it left a short while ago; then it is forgotten. O(1).
  bool take(slot_t slot) noexcept {
    const std::uint64_t h = hash(slot);
    for (auto& f : of(h).fingerprints) {
      if (f.load(std::memory_order_relaxed) != fingerprint(h)) continue;
      f.store(0, std::memory_order_relaxed);
      return true;
    }
    return false;
  }
  /// Before take(), so that the bucket is there.
  void prefetch(slot_t slot) const noexcept { __builtin_prefetch(&of(hash(slot))); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return buckets_ * sizeof(bucket); }

 private:
  static constexpr std::size_t ways = 4;
  struct bucket {
    std::atomic<std::uint32_t> fingerprints[ways];
  };
  static std::uint64_t hash(slot_t slot) noexcept {
    std::uint64_t h = slot * 0x9e3779b97f4a7c15;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93;
  }
  // 0 is nobody's.
  static std::uint32_t fingerprint(std::uint64_t h) noexcept { return static_cast<std::uint32_t>(h >> 32) | 1; }
  [[nodiscard]] bucket& of(std::uint64_t h) const noexcept {
    return reinterpret_cast<bucket*>(memory_.base())[h & (buckets_ - 1)];
  }

  std::uint64_t buckets_;
  os::reservation memory_;
};

}  // namespace fm::detail
