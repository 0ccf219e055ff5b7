// Namespaces, and rules of nft; see partitions.h.
#include "partitions.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "fabric/wire/url.h"
#include "program/live_agent.h"
#include "support/temporary_folder.h"

namespace chaos {

namespace {

constexpr const char* nft = "/usr/sbin/nft";

bool write_file(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return ok;
}

/// Whoever is not root is root of a user namespace, which has the right to one of networks.
bool unshare_network() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (user == 0) return ::unshare(CLONE_NEWNET) == 0;
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", fmt::format("0 {} 1", user)) &&
         write_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

bool raise_loopback() {
  const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool ok = s >= 0 && ::ioctl(s, SIOCSIFFLAGS, &lo) == 0;
  if (s >= 0) ::close(s);
  return ok;
}

/// Its exit code, and what it said.
std::pair<int, std::string> run_nft(const std::string& rule) {
  const fm::test::temporary_folder folder;
  agent_test::process p({nft, rule}, folder / "said");
  const int code = p.end();
  return {code, agent_test::text_of(folder / "said")};
}

}  // namespace

std::string network::enter() {
  if (::access(nft, X_OK) != 0) return fmt::format("there is no {}", nft);
  if (!unshare_network()) return fmt::format("no network namespace: {}", std::strerror(errno));
  if (!raise_loopback()) return fmt::format("no loopback device: {}", std::strerror(errno));
  const auto [code, said] =
      run_nft("add table inet cuts; add chain inet cuts in { type filter hook input priority 0; }");
  return code == 0 ? "" : "nft: " + said;
}

void network::drop(const std::string& url, cut which) {
  const auto at = fm::value_or_throw(fm::fabric::parse_url(url));
  std::string rules;
  if ((static_cast<unsigned>(which) & static_cast<unsigned>(cut::to_agent)) != 0)
    rules += fmt::format("add rule inet cuts in ip daddr {} tcp dport {} drop;", at.host, at.port);
  if ((static_cast<unsigned>(which) & static_cast<unsigned>(cut::from_agent)) != 0)
    rules += fmt::format("add rule inet cuts in ip saddr {} tcp sport {} drop;", at.host, at.port);
  const auto [code, said] = run_nft(rules);
  INFO(said);
  REQUIRE(code == 0);
}

void network::mend() {
  const auto [code, said] = run_nft("flush chain inet cuts in");
  INFO(said);
  REQUIRE(code == 0);
}

}  // namespace chaos
