// The peer's regions as this side reaches them: number to address, key and bounds. Every one-sided request looks its
// region up here.
//
// Invariant: a request that is out of bounds, or of another connection or generation, is refused before it is posted.
// Belongs to one verbs_session; its lanes look keys up, from any thread.
#pragma once

#include "fabric/wire/request.h"

#include <shared_mutex>
#include <unordered_map>

namespace fm::fabric::verbs {

struct region_key {
  std::uint32_t generation = 0;
  std::uint32_t connection = 0;  ///< generation of the session that the key was given to
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool writable = false;
};

class region_keys {
 public:
  void set(std::uint32_t region, const region_key& key) {
    const std::unique_lock lock(mutex_);
    keys_[region] = key;
  }
  /// True if it was known.
  bool forget(std::uint32_t region) {
    const std::unique_lock lock(mutex_);
    return keys_.erase(region) != 0;
  }
  void clear() {
    const std::unique_lock lock(mutex_);
    keys_.clear();
  }
  /// Whether `bytes` at `where` may be reached so, and with what key.
  bool find(const remote& where, std::uint64_t bytes, bool writes, std::uint32_t connection, region_key& out) const {
    const std::shared_lock lock(mutex_);
    const auto found = keys_.find(where.region);
    if (found == keys_.end()) return false;
    const region_key& k = found->second;
    if (k.connection != connection || k.generation != where.generation || bytes > k.bytes ||
        where.offset > k.bytes - bytes)
      return false;
    if (writes && !k.writable) return false;
    out = k;
    return true;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint32_t, region_key> keys_;
};

}  // namespace fm::fabric::verbs
