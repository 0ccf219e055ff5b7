// The rules by which segments move through the queues of one cache (arena.h). Objects prove themselves: what is fetched
// stays if it is used again before a tenth of the cache has been fetched after it, or if it had left only just before.
//
//   fetched -> trial  -> used again: moved to active     (S3-FIFO: small queue, main queue, ghosts)
//                     -> not used: leaves, and is remembered for a while (ghosts.h)
//   made    -> active -> used since it came or moved last: moved to active's young end     (CLOCK)
//                     -> not used: leaves
//
// A filled segment of what was fetched is promoted by luck, with a small probability (dcm's epsilon, section 3.2). So of
// a scan that is longer than the cache, a part is still there when it comes round again. As long as active has less than
// its share, one in two is promoted: what is on trial then is more than a trial needs, and a loop that begins keeps as
// much as fits after two rounds and not after twenty. Luck is less as more of what active lets go of was used: then
// active holds what is wanted, and what luck puts in its place would be wanted no sooner. Luck is left out where objects
// come back soon enough to be remembered: then the queues find out what is wanted, and luck only keeps what is not.
//
// Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023), with segments in place of objects.
//
// Invariant: the policy has no state but its options; the random state is the caller's.
#pragma once

#include "base/limits.h"
#include "base/random.h"
#include <algorithm>
#include <cstdint>

namespace fm::detail {

struct replacement_policy {
  double promote_probability = 0.05;  ///< epsilon

  /// Whether a segment of fetched objects enters active at once: `used` bytes, of which objects that were remembered have
  /// `returned`. `room`: active takes nothing from others, since more is on trial than need be. `wanted`: the share of
  /// active's oldest that was used, 0 to 1. `random` is 64 random bits.
  [[nodiscard]] bool promotes(std::uint64_t returned, std::uint64_t used, bool room, double wanted,
                              std::uint64_t random) const noexcept {
    if (returned >= used / limits::returning_share || promote_probability <= 0) return false;
    const double luck = promote_probability * std::max(1 - wanted, limits::luck_least);
    return happens(room ? std::max(luck, limits::promoted_into_room) : luck, random);
  }
  /// Segments of `capacity` that the trial queue may hold before the next to leave is one of them.
  [[nodiscard]] static std::uint32_t trial_target(std::uint32_t capacity) noexcept {
    return std::max(1u, capacity / limits::trial_share);
  }
};

}  // namespace fm::detail
