// The registry of transports. connect() and listen() look a URL's scheme up here. Transports that need a library of
// their own (verbs) live in a shared object that is opened at run time, so that a user without the hardware needs
// nothing installed; it exports `farmem_transport`.
#pragma once

#include "doctor.h"
#include "fabric/client/session.h"
#include "fabric/server/service.h"
#include "fabric/wire/url.h"

namespace fm::fabric {

struct transport {
  std::uint32_t abi;  ///< transport_abi of the library that it was built with
  const char* scheme;
  std::unique_ptr<session> (*connect)(const address&, const std::string& url, const session_options&, session_events&,
                                      service* in_process);
  /// Null when the transport has no server half.
  std::unique_ptr<listener> (*listen)(const address&, const std::string& url, const listen_options&, service&);
  /// Adds what it finds of the devices that it uses (doctor.h). Null when it uses none.
  void (*examine)(std::vector<finding>&) = nullptr;
};

/// Changes whenever the interfaces between the library and a transport's shared object do.
constexpr std::uint32_t transport_abi = 4;

/// What a shared object exports under the name "farmem_transport".
using transport_entry = const transport* (*)();

/// The transport that serves a scheme. Throws fm::error: unknown_scheme, or unsupported naming the package that is
/// missing. Thread-safe.
const transport& transport_for(const std::string& scheme, std::string_view url);

}  // namespace fm::fabric
