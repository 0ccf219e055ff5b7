// The options of a collector: when to collect, with how much of a core, and what to verify. heap_core fills them in
// from fm::heap_options, and nothing changes them afterwards, so the collector's parts read them without a lock.
// Also: who traces.
#pragma once

#include "cache/replicas/rehoming.h"
#include <cstdint>
#include <farmem/base/units.h>
#include <farmem/heap/collect.h>
#include <farmem/heap/options.h>
#include <functional>
#include <string>
#include <vector>

namespace fm::detail {

struct collector_options {
  bool automatic = true;    ///< start cycles when much was allocated since the last one
  std::uint64_t every = 0;  ///< bytes allocated between cycles; 0: from what is live and what the agents have
  bool young = true;        ///< if automatic: collections of young objects in between
  bool continuous = false;  ///< if automatic: at most limits::least_between_continuous, and no longer than a second
  double share = 1;         ///< of a core, while nothing waits for the cycle
  bool verify = false;      ///< before, within and after every cycle: src/collector/verify_cycle.h
  bool agents_talk = true;  ///< agents send references to each other's objects to each other, where they can
  evacuation_options evacuation;
  /// An agent that was lost has no tablets any more; on the collector's thread.
  std::function<void(const rehomed::from&, std::vector<lost_type> lost_types)> on_rehomed;
  /// After tablets lacked members of their replica sets, none does any more; on the collector's thread.
  std::function<void()> on_replicated;
  /// An agent stores nothing of the heap any more, and is left; on the collector's thread.
  std::function<void(std::uint32_t agent)> on_left;
  std::uint64_t cycles_before = 0;                   ///< of an earlier owner of the heap: the agents know these numbers
  duration call_within = std::chrono::seconds(10);   ///< one message; an agent that makes no progress for so long
  duration pause_within = std::chrono::seconds(10);  ///< all attempts at one pause together
};

/// Who traces. Anything but `agents` is for tests and benchmarks (src/collector/marking/compute_tracer.h).
enum class tracing : std::uint8_t {
  agents,
  compute_node,  ///< the collector's thread, through the cache
  both,          ///< one after the other, and a difference is a fault; only while the program is still
};

}  // namespace fm::detail
