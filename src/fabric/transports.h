// The transports that are part of the library itself.
#pragma once

#include "transport.h"
#include <span>

namespace fm::fabric {

extern const transport local_transport;
extern const transport tcp_transport;
extern const transport shm_transport;

/// The server half of tcp:// and shm://.
std::unique_ptr<listener> listen_stream(const address& at, const std::string& url, const listen_options& options,
                                        service& s);

std::span<const transport* const> built_in_transports() noexcept;

}  // namespace fm::fabric
