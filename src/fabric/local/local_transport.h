// The transport local:, which serves an agent in the same process. local.cc has the session and the invariant that
// it owns.
// Only the table of transports uses it (fabric/built_in_transports.cc).
#pragma once

#include "fabric/transport/transport.h"

namespace fm::fabric {

extern const transport local_transport;

}  // namespace fm::fabric
