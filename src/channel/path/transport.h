// One end of a connection, as an endpoint uses it: the connector's is a fabric session, the listener's a fabric peer.
// It carries every message of a channel, except for the parts that a byte path carries. Messages of send() arrive
// in order, as far as they arrive. `endpoint`, `sender` and `receiver` call it; session_transport and
// peer_transport implement it.
#pragma once

#include "channel_messages.h"
#include "fabric/client/client.h"
#include "fabric/server/server.h"

#include <string_view>

namespace fm::detail {

class channel_transport {
 public:
  virtual ~channel_transport() = default;
  /// Room for a message of `bytes`; waits for earlier ones to leave. Throws disconnected, timed_out. One thread at a
  /// time.
  virtual std::span<std::byte> room(std::size_t bytes) = 0;
  /// Sends the first `bytes` of the room given last. Messages that are sent so are in order, as far as they arrive.
  virtual errc send(std::size_t bytes, time_point deadline) noexcept = 0;
  /// Sends a small message, beside the others. Any thread. Copies it.
  virtual errc tell(std::span<const std::byte> message) noexcept = 0;
  /// Waits until what was sent is with the other process, as far as that can be told. One thread at a time.
  virtual void drain(time_point deadline) noexcept = 0;
  /// The same of messages of send(), where those are apart. No thread is in room() or send().
  virtual void drain_parts(time_point /*deadline*/) noexcept {}
  /// Breaks the connection, because the other end has broken the rules. Any thread.
  virtual void drop() noexcept = 0;
  /// Ends the connection; afterwards nobody calls the endpoint for it. Not from the transport's own thread.
  virtual void close() noexcept = 0;
};

}  // namespace fm::detail
