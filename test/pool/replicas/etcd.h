// A real etcd for a test: one member on loopback, in a folder of its own.
#pragma once

#include "program/live_agent.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace pool_test {

class etcd {
 public:
  static constexpr const char* program = "/usr/bin/etcd";
  [[nodiscard]] static bool is_installed() { return ::access(program, X_OK) == 0; }

  etcd() {
    const std::string clients = address(), peers = address();
    url_ = clients;
    run_ = std::make_unique<agent_test::process>(
        std::vector<std::string>{program, "--name", "one", "--data-dir", folder_ / "data", "--listen-client-urls",
                                 clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers,
                                 "--initial-advertise-peer-urls", peers, "--initial-cluster", "one=" + peers},
        folder_ / "log");
  }
  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] const agent_test::process& process() const { return *run_; }

 private:
  /// Of a port that nobody has now.
  static std::string address() {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    REQUIRE(::bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
    REQUIRE(::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) == 0);
    ::close(s);
    return "http://127.0.0.1:" + std::to_string(ntohs(a.sin_port));
  }

  fm::test::temporary_folder folder_;
  std::string url_;
  std::unique_ptr<agent_test::process> run_;
};

}  // namespace pool_test
