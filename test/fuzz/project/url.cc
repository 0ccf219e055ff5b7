// Any string is either refused with a typed error or split into an address that prints and parses to itself.
#include "fabric/wire/url.h"
#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view url(reinterpret_cast<const char*>(data), bytes);
  const auto address = fm::fabric::parse_url(url);
  if (!address) {
    FM_CHECK(address.error().code() == fm::errc::invalid_argument, "a URL was refused for an odd reason");
    return 0;
  }
  if (address->scheme != "tcp" && address->scheme != "verbs") return 0;
  const std::string printed = fm::fabric::format_url(address->scheme, address->host, address->port);
  const auto again = fm::fabric::parse_url(printed);
  FM_CHECK(again.has_value(), "an address that was accepted does not parse when printed");
  FM_CHECK(again->scheme == address->scheme && again->host == address->host && again->port == address->port,
           "an address changed by printing and parsing");
  return 0;
}
