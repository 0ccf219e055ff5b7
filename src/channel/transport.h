// One end of a connection, as an endpoint uses it: the connector's is a fabric session, the listener's a fabric peer.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "wire.h"

#include <string_view>

namespace fm::detail {

class line {
 public:
  virtual ~line() = default;
  /// Room for a message of `bytes`; waits for earlier ones to leave. Throws disconnected, timed_out. One thread at a time.
  virtual std::span<std::byte> room(std::size_t bytes, time_point deadline) = 0;
  /// Sends the first `bytes` of the room given last. Messages that are sent so are in order, as far as they arrive.
  virtual errc send(std::size_t bytes, time_point deadline) noexcept = 0;
  /// Sends a small message, beside the others. Any thread. Copies it.
  virtual errc tell(std::span<const std::byte> message) noexcept = 0;
  /// Waits until what was sent is with the other process, as far as that can be told. One thread at a time.
  virtual void drain(time_point deadline) noexcept = 0;
  /// Breaks the connection, because the other end has broken the rules. Any thread.
  virtual void drop() noexcept = 0;
  /// Ends the connection; afterwards nobody calls the endpoint for it. Not from the line's own thread.
  virtual void close() noexcept = 0;
};

}  // namespace fm::detail
