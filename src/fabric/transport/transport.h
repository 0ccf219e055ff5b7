// The interface between the table of transports and one transport: what local:, shm://, tcp:// and verbs:// each fill
// in. Transports include this header and never the table (fabric/transport_table.h), which alone calls through it.
//
// verbs:// needs a library of its own, so it lives in a shared object that is opened at run time
// (fabric/verbs_library.h). That object exports `farmem_transport`, and `abi` keeps an object of another version out.
#pragma once

#include "fabric/client/session.h"
#include "fabric/server/service.h"
#include "fabric/transport/finding.h"
#include "fabric/wire/url.h"
#include <vector>

namespace fm::fabric {

struct transport {
  std::uint32_t abi;  ///< transport_abi of the library that it was built with
  const char* scheme;
  std::unique_ptr<session> (*connect)(const address&, const std::string& url, const session_options&, session_events&,
                                      service* in_process);
  /// Null when the transport has no server half.
  std::unique_ptr<listener> (*listen)(const address&, const std::string& url, const listen_options&, service&);
  /// Adds what it finds of the devices that it uses (finding.h). Null when it uses none.
  void (*examine)(std::vector<finding>&) = nullptr;
};

/// Changes whenever the interfaces between the library and a transport's shared object do.
constexpr std::uint32_t transport_abi = 8;

/// What a shared object exports under the name "farmem_transport".
using transport_entry = const transport* (*)();

}  // namespace fm::fabric
