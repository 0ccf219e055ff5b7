// The interface between a session and what it has opened: a heap, a pool, a space, or the right to send remote
// references as another agent.
//
// A session opens one tenant, once. The parts of the agent implement it (agent/heaps, agent/pools, agent/spaces,
// agent/peers); only agent/service calls it. A tenant lives as long as its session, and what it stands for may outlive
// both: an owner may come back within its lease.
#pragma once

#include "agent/base/protocol.h"
#include "fabric/server/server.h"

namespace fm::agent {

class tenant {
 public:
  tenant() = default;
  tenant(const tenant&) = delete;
  tenant& operator=(const tenant&) = delete;
  virtual ~tenant() = default;

  /// Every message but those that open something. ok: `out` is the answer, be it a refusal; anything else ends the
  /// connection. Several lanes of one session may be inside.
  virtual errc message(message_type type, std::span<const std::byte> b, fabric::answer& out) = 0;
  /// As fabric::service::memory. The memory was entered in its region and counted in session::in_flight; the store
  /// undoes both when the transport is done with it.
  virtual std::byte* memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept = 0;
  /// The session ends. Nobody is inside, and nobody comes any more.
  virtual void disconnected() noexcept = 0;
};

}  // namespace fm::agent
