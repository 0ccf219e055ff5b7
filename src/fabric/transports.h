// The transports that are part of the library itself.
#pragma once

#include <farmem/fabric/transport.h>
#include <span>

namespace fm::fabric {

extern const transport local_transport;

std::span<const transport* const> built_in_transports() noexcept;

}  // namespace fm::fabric
