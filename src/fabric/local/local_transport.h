// The transport local:, which serves an agent in the same process. Only the table of transports uses it.
#pragma once

#include "fabric/transport/transport.h"

namespace fm::fabric {

extern const transport local_transport;

}  // namespace fm::fabric
