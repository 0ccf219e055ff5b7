// Replacement policies as the literature describes them, for objects of one size: how many accesses of a trace miss.
// A cache of farmem is compared with them (bench/policy.cc).
//
//   LRU       the least recently used object leaves
//   SIEVE     a queue and a hand: what was not used since the hand last came by leaves (Zhang et al., NSDI 2024)
//   S3-FIFO   a small queue on trial, a main queue, and ghosts of what left the small one (Yang et al., SOSP 2023)
//   Belady    what is used again last leaves: no policy misses less (it needs the future)
//
// Invariant: a policy keeps at most `capacity` objects, and sees the trace once, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trace.h"

namespace fm::bench {

/// One policy with its cache. Keys are below `keys`; the capacity is in objects and at least 1.
class policy_simulator {
 public:
  virtual ~policy_simulator() = default;
  /// True when the key was in the cache; it is afterwards.
  virtual bool access(std::uint32_t key) = 0;
};

std::unique_ptr<policy_simulator> simulate_lru(std::uint32_t keys, std::uint64_t capacity);
std::unique_ptr<policy_simulator> simulate_sieve(std::uint32_t keys, std::uint64_t capacity);
std::unique_ptr<policy_simulator> simulate_s3_fifo(std::uint32_t keys, std::uint64_t capacity);

/// Misses of the trace from access `from` on; those before warm the cache.
std::uint64_t misses_of(policy_simulator& policy, const trace& t, std::uint64_t from);
/// The same of Belady's optimum.
std::uint64_t belady_misses(const trace& t, std::uint32_t keys, std::uint64_t capacity, std::uint64_t from);

struct named_policy {
  std::string name;
  std::function<std::uint64_t(const trace&, std::uint32_t keys, std::uint64_t capacity, std::uint64_t from)> misses;
};
/// All of the above.
const std::vector<named_policy>& simulated_policies();

}  // namespace fm::bench
