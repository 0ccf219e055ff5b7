// The options of one heap's cache, as heap_core fills them in from fm::heap_options.
// Invariant: they are constant once the cache is open, so every part of it, and the collector, reads them without a
// lock.
#pragma once

#include "cache/frames/policy.h"
#include <chrono>
#include <cstdint>
#include <farmem/base/units.h>

namespace fm::detail {

struct cache_options {
  std::uint64_t capacity_bytes = 256ull << 20;  ///< as it is opened; see arena::capacity_segments
  std::uint64_t capacity_bytes_most = 0;        ///< that it may have later; 0: not more
  std::uint64_t segment_bytes = 1ull << 20;
  replacement_policy policy;
  duration memory_within = std::chrono::seconds(5);   ///< nothing has moved for so long: cache_full
  duration access_within = std::chrono::seconds(10);  ///< a miss waits so long, then timed_out or agent_lost
  std::uint64_t hit_bytes = 0;                        ///< of the HIT that may be in memory; 0: all of it
  std::uint32_t hit_residents_max = 64;  ///< a page of the HIT that names more resident objects is not given back
  std::uint32_t replicas = 1;            ///< agents that store an object
  bool strict_zones = false;             ///< no two agents of a zone store an object
  bool rebalances = true;                ///< moves tablets from agents that are much fuller or busier than others
  std::uint32_t min_replicas = 1;        ///< what is stored on fewer stays dirty
  std::uint64_t stored_before_max = 0;   ///< bytes of an object that earlier owners of the heap may have stored
  bool elastic = true;
  bool background_evictor = true;
  bool dumped = false;  ///< core dumps have the segments and the used part of the HIT
};

}  // namespace fm::detail
