// The caller's memory as a device may reach it: what was lent to the session (session::lend), registered slab by slab
// when it is first used, and kept until it is taken back or the protection domain changes.
//
// Invariant: memory that was taken back is registered nowhere when take_back returns. The owner has nothing in flight
// on it then, so nothing posted can name the key.
#pragma once

#include <shared_mutex>
#include <vector>

#include "device.h"

namespace fm::fabric::verbs {

class local_memory {
 public:
  /// `slab_bytes`, a power of two, is what is registered at a time.
  void lend(std::byte* base, std::uint64_t bytes, std::uint64_t slab_bytes);
  /// Memory inside what was lent, or all of it: no device reaches it any more.
  void take_back(std::byte* base, std::uint64_t bytes, bool for_good) noexcept;
  /// Everything is registered with `domain` from now on, when it is used, and pinned or not as `how` says.
  void use(ibv_pd* domain, const paging& how = {}) noexcept;
  /// How much at `at`, up to `bytes`, one key covers; registers it if need be. 0: it was not lent, or cannot be
  /// registered.
  std::uint64_t find(void* at, std::uint64_t bytes, std::uint32_t& key) noexcept;

 private:
  struct lent {
    std::byte* base;
    std::uint64_t bytes;
    std::uint64_t slab_bytes;
    std::vector<memory_region> slabs;
    bool refused = false;  ///< registering failed; not tried again until the domain changes
  };

  lent* containing(const std::byte* at) noexcept;

  std::shared_mutex mutex_;
  ibv_pd* domain_ = nullptr;
  int access_ = local_access;
  std::vector<lent> all_;
};

}  // namespace fm::fabric::verbs
