// fabric::connect and fabric::listen: they look the scheme of a URL up and hand over to that transport; see
// transport_table.h. Keeps no state. Owners of sessions and of listeners call both.
#include "fabric/transport_table.h"

#include "base/log.h"
#include <fmt/format.h>

#include "fabric/socket/socket.h"
#include "fabric/verbs_library.h"

namespace fm::fabric {
const transport& transport_for(const std::string& scheme, std::string_view url) {
  for (const transport* t : built_in_transports())
    if (scheme == t->scheme) return *t;
  if (scheme == "verbs") return open_verbs(url);
  throw error(errc::unknown_scheme, fmt::format("'{}' in address '{}'", scheme, url));
}

namespace {
const transport& listening_transport(const address& a, std::string_view url) {
  const transport& t = transport_for(a.scheme, url);
  if (!t.listen) throw error(errc::unsupported, fmt::format("{}: nothing can listen on {}:", url, a.scheme));
  return t;
}
}  // namespace

std::unique_ptr<session> connect(std::string_view url, const session_options& options, session_events& events,
                                 service* in_process) {
  log::prepare();  // made before there are threads that log
  const address a = value_or_throw(parse_url(url));
  return transport_for(a.scheme, url).connect(a, std::string(url), options, events, in_process);
}

std::unique_ptr<listener> listen(std::string_view url, const listen_options& options, service& s) {
  log::prepare();
  const address a = value_or_throw(parse_url(url));
  return listening_transport(a, url).listen(a, std::string(url), options, s);
}

void check_listen(std::string_view url, const listen_options& options) {
  const address a = value_or_throw(parse_url(url));
  (void)listening_transport(a, url);
  if ((a.scheme == "tcp" || a.scheme == "verbs") && !options.insecure && is_beyond_host(a)) throw_insecure(url);
}

}  // namespace fm::fabric
