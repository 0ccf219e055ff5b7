// The other agents that take part in a cycle, as a tracer knows them: which tablets each of them has, and which
// references are on their way there.
// The tracer (trace_peers.cc) guards it with its mutex. The routes are constant once tracing has begun.
// Made by peers (agent/peers) from the owner's message.
#pragma once

#include "os/os.h"

#include <string>
#include <vector>

#include "agent/heaps/heap.h"

namespace fm::agent {

/// What is on its way to another agent, and whether it gets there.
///
///   outbox ──take──► under way ──acknowledged──► gone
///      └──────┬──────────┘
///           lost ──► the owner's outbox, as all that comes after it
struct trace_peer_box {
  std::string url;
  std::uint64_t heap_id[2] = {0, 0};
  std::uint64_t ticket[2] = {0, 0};
  std::vector<slot_t> outbox;
  std::vector<slot_t> under_way;  ///< in message `number`, and not acknowledged
  std::uint32_t number = 0;
  bool lost = false;  ///< for the rest of the cycle
  time_point moved;   ///< something was acknowledged, or came to be here when nothing was

  [[nodiscard]] bool empty() const noexcept { return outbox.empty() && under_way.empty(); }
};

struct trace_peer_set {
  std::vector<trace_peer_box> boxes;
  os::reservation routes;           ///< for every tablet the number of its box, from 1; 0: none
  std::uint64_t routes_memory = 0;  ///< bytes of it that were touched, at most
  std::uint8_t* route(std::uint32_t tablet) noexcept { return reinterpret_cast<std::uint8_t*>(routes.base()) + tablet; }
};

}  // namespace fm::agent
