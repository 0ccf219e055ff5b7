// What the owner of a heap writes down for the next one, when it leaves the heap at its agents: everything that they do
// not know. That is little, because the indirection table is a cache: where objects lie is told by the agents' entries.
//
//   header, agents' addresses, types 1, 2, ... of the process, runs of tablets with their replica sets
//
// Each agent has all of it. Bytes that come back are checked like any that come from outside: they are another process's.
// src/heap/detach.cc writes and reads it; agents do not look inside.
#pragma once

#include "base/base.h"
#include "cache/tablets/replica_set.h"
#include "object/object.h"
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fm::detail {

struct heap_record {
  std::uint64_t number = 0;  ///< how often the heap was detached: of two records the later one has the larger number
  std::uint64_t id = 0;      ///< random: two that have one number differ
  std::uint64_t lineage[2] = {0, 0};  ///< random; every record of the heap has it
  slot_t root = 0;
  std::uint64_t cycles = 0;         ///< the number of the last one, which agents know
  std::uint64_t object_bytes = 0;   ///< of the largest object that agents may have
  std::vector<std::string> agents;  ///< in the order of their numbers in the sets
  std::vector<type_descriptor> types;
  struct run {
    std::uint32_t first = 0, count = 0;
    replica_set set;  ///< whole
  };
  std::vector<run> tablets;  ///< ascending

  /// Throws too_large if it does not fit into a message.
  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// Throws corrupt, and says what is wrong.
  [[nodiscard]] static heap_record read(std::span<const std::byte> bytes);
};

}  // namespace fm::detail
