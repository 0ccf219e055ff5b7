// The transports tcp:// and shm://, which share one session and one listener. Only the table of transports uses them.
#pragma once

#include "fabric/transport/transport.h"

namespace fm::fabric {

extern const transport tcp_transport;
extern const transport shm_transport;

/// The server half of both.
std::unique_ptr<listener> listen_stream(const address& at, const std::string& url, const listen_options& options,
                                        service& s);

}  // namespace fm::fabric
