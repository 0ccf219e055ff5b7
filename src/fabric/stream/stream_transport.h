// The transports tcp:// and shm://, which share one session (stream_session.h) and one listener (stream_listener.h).
// These headers have the invariants.
// Only the table of transports uses them (fabric/built_in_transports.cc).
#pragma once

#include "fabric/transport/transport.h"

namespace fm::fabric {

extern const transport tcp_transport;
extern const transport shm_transport;

/// The server half of both.
std::unique_ptr<listener> listen_stream(const address& at, const std::string& url, const listen_options& options,
                                        service& s);

}  // namespace fm::fabric
