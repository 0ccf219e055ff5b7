// The function that the shared object of verbs:// exports: it gives its entry in the table of transports.
// fabric/verbs_library.cc opens the object and calls it.
#include "fabric/transport/transport.h"

#include "examine.h"
#include "listener.h"
#include "session.h"

namespace fm::fabric {
namespace {

std::unique_ptr<session> connect_verbs(const address&, const std::string& url, const session_options& options,
                                       session_events& events, service*) {
  auto s = std::make_unique<verbs::verbs_session>(url, options, events);
  s->start();
  return s;
}

std::unique_ptr<listener> listen_verbs(const address& at, const std::string& url, const listen_options& options,
                                       service& s) {
  return std::make_unique<verbs::verbs_listener>(at, url, options, s);
}

constexpr transport verbs_transport = {transport_abi, "verbs", connect_verbs, listen_verbs, verbs::examine};

}  // namespace
}  // namespace fm::fabric

extern "C" __attribute__((visibility("default"))) const fm::fabric::transport* farmem_transport() {
  return &fm::fabric::verbs_transport;
}
