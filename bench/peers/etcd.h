// A real etcd for a benchmark: one member on loopback, in a folder of its own, which goes with it.
#pragma once

#include <arpa/inet.h>
#include <farmem/base/error.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "../support/process.h"

namespace fm::bench {

class etcd {
 public:
  static constexpr const char* program = "/usr/bin/etcd";
  [[nodiscard]] static bool is_installed() { return ::access(program, X_OK) == 0; }

  etcd() : folder_(new_folder()), url_(free_address()) {
    const std::string peers = free_address();
    child_ = child({.argv = {program, "--name", "one", "--data-dir", folder_ + "/data", "--log-level", "error",
                             "--listen-client-urls", url_, "--advertise-client-urls", url_, "--listen-peer-urls", peers,
                             "--initial-advertise-peer-urls", peers, "--initial-cluster", "one=" + peers}});
  }
  etcd(const etcd&) = delete;
  etcd& operator=(const etcd&) = delete;
  ~etcd() {
    child_.stop(std::chrono::seconds(5));
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  static std::string new_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "farmem-etcd-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw fm::error(fm::errc::refused, "a temporary folder cannot be made");
    return name;
  }
  /// Of a port that nobody has now.
  static std::string free_address() {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    const bool good = ::bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0 &&
                      ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) == 0;
    ::close(s);
    if (!good) throw fm::error(fm::errc::refused, "no port is free");
    return "http://127.0.0.1:" + std::to_string(ntohs(a.sin_port));
  }

  const std::string folder_, url_;
  child child_;
};

}  // namespace fm::bench
