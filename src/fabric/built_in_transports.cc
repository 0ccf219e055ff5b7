// The transports that are part of the library itself: local:, shm:// and tcp://. transport_table.cc alone asks for
// them; the simulation links a file of its own in place of this one.
#include "fabric/local/local_transport.h"
#include "fabric/stream/stream_transport.h"
#include "fabric/transport_table.h"

namespace fm::fabric {

std::span<const transport* const> built_in_transports() noexcept {
  static const transport* const all[] = {&local_transport, &shm_transport, &tcp_transport};
  return all;
}

}  // namespace fm::fabric
