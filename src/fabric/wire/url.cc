// Parsing and writing the addresses of agents; see url.h. Looks at the text alone. Any thread may call it.
#include "url.h"
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>

namespace fm::fabric {
namespace {

tl::unexpected<error> bad(std::string_view url, std::string_view why) {
  return fail(errc::invalid_argument, fmt::format("address '{}': {}", url, why));
}

bool is_scheme(std::string_view s) {
  if (s.empty()) return false;
  for (const char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.')) return false;
  return true;
}

result<address> parse_host_port(std::string_view url, std::string_view rest, address a) {
  std::string_view host, port;
  if (!rest.empty() && rest.front() == '[') {
    const auto end = rest.find(']');
    if (end == std::string_view::npos || end + 1 >= rest.size() || rest[end + 1] != ':')
      return bad(url, "expected [IPV6]:PORT");
    host = rest.substr(1, end - 1);
    port = rest.substr(end + 2);
  } else {
    const auto colon = rest.rfind(':');
    if (colon == std::string_view::npos) return bad(url, "the port is missing");
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) return bad(url, "an IPv6 address needs brackets");
  }
  if (host.empty()) return bad(url, "the host is missing");
  if (host.find_first_of("[]") != std::string_view::npos) return bad(url, "a bracket inside the host");
  unsigned number = 0;
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (ec != std::errc() || end != port.data() + port.size() || number > 65535)
    return bad(url, fmt::format("'{}' is no port", port));
  a.host = host;
  a.port = std::uint16_t(number);
  return a;
}

}  // namespace

result<address> parse_url(std::string_view url) {
  if (url.size() > 1024) return bad(url.substr(0, 64), "longer than 1024 characters");
  if (url.find('\0') != std::string_view::npos) return bad(url, "contains a zero byte");
  const auto colon = url.find(':');
  if (colon == std::string_view::npos || !is_scheme(url.substr(0, colon)))
    return bad(url, "expected local:, shm://PATH, tcp://HOST:PORT or verbs://HOST:PORT");
  address a;
  a.scheme = url.substr(0, colon);
  std::string_view rest = url.substr(colon + 1);
  if (a.scheme == "local") {
    if (!rest.empty()) return bad(url, "local: takes nothing after the colon");
    return a;
  }
  if (!rest.starts_with("//")) return bad(url, "expected // after the scheme");
  rest.remove_prefix(2);
  if (a.scheme == "shm") {
    if (rest.empty()) return bad(url, "the path is missing");
    if (rest.size() >= sizeof(sockaddr_un::sun_path))
      return bad(url, fmt::format("the path is longer than {} characters", sizeof(sockaddr_un::sun_path) - 1));
    a.path = rest;
    return a;
  }
  if (a.scheme == "tcp" || a.scheme == "verbs") return parse_host_port(url, rest, std::move(a));
  a.path = rest;  // some other scheme: the registry of transports says that nobody serves it
  return a;
}

bool stays_on_host(const address& a) {
  if (a.scheme == "shm" || a.scheme == "local" || a.host == "localhost") return true;
  in_addr four{};
  if (::inet_pton(AF_INET, a.host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, a.host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::string format_url(std::string_view scheme, std::string_view host, std::uint16_t port) {
  if (host.find(':') != std::string_view::npos) return fmt::format("{}://[{}]:{}", scheme, host, port);
  return fmt::format("{}://{}:{}", scheme, host, port);
}

}  // namespace fm::fabric
