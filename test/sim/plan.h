// Everything that the seed of a run decides, beside the order in which its threads run.
#pragma once

#include <cstdint>

#include "mutator.h"
#include "network.h"
#include "program.h"
#include "scheduler.h"

namespace fm::sim {

struct plan {
  schedule scheduling;
  network_options net;
  std::uint64_t seed = 0, steps = 0, threads = 0, agents = 0;
  std::uint64_t cache = 0, segment = 0, agent_memory = 0, hit = 0;
  bool elastic = true, breaks = false, death = false;
  std::uint64_t replicas = 1;  ///< with more, a death takes nothing along, and others follow when all is whole again
  std::uint64_t changes = 0;   ///< of the heaps' agents, one after the other
  std::uint64_t break_every_ns = 0, death_after_ns = 0, rest_ns = 0;
  std::uint64_t young = 5;  ///< collections of young objects after a cycle, at most
  bool talk = true;         ///< agents to each other
  bool home_at_the_end = false;
  std::uint64_t references_max = 0;
  std::uint64_t trace_queue = 0;      ///< slots that an agent queues; beyond: rescans
  bool automatic = false;             ///< collections start by themselves, too
  std::uint64_t automatic_every = 0;  ///< bytes between two of those
  bool verify_cycles = false;         ///< around each collection
  bool in_traversal_order = false;    ///< agents evacuate so ...
  bool evacuate_all = false;          ///< ... and all that is full, not just what is sparse
  bool two_heaps = false;             ///< the second one has the same agents, and its own mutators
  std::uint64_t places = 16;          ///< of the array that mutators share
  std::uint64_t pins = 0;             ///< mutators that hold a pin from step to step: each holds a segment
  bool large = false, maps = false;   ///< what mutators have
  favour favours = favour::nothing;   ///< of mutators
  bool letters = false;               ///< mutators send graphs over channels
  letter_options post;                ///< of these

  /// A death takes objects along.
  [[nodiscard]] bool loses_agents() const noexcept { return death && replicas == 1; }
};

/// Of a seed. The plan leans towards a mutation whether or not it is chosen: so a run without it has the same plan.
plan plan_of(std::uint64_t seed, const setting& s);

}  // namespace fm::sim
