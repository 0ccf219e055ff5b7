// The table of transports, by the scheme of their URLs. fabric::connect and fabric::listen look a scheme up here, and
// so does the doctor.
//
// Invariant: it stands on top of the fabric. It knows every transport, and none of them knows it.
#pragma once

#include "fabric/transport/transport.h"
#include <span>
#include <string>
#include <string_view>

namespace fm::fabric {

/// The transport that serves a scheme. Throws fm::error: unknown_scheme, or unsupported naming the package that is
/// missing. Thread-safe.
const transport& transport_for(const std::string& scheme, std::string_view url);

/// The transports that are part of the library itself. The simulation replaces the file that defines it
/// (built_in_transports.cc) by one of its own.
std::span<const transport* const> built_in_transports() noexcept;

}  // namespace fm::fabric
