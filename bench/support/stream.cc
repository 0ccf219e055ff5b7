#include "stream.h"

#include "base/base.h"
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace fm::bench {
namespace {

struct address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

address tcp_address(std::uint16_t port) {
  address a;
  auto& in = reinterpret_cast<sockaddr_in&>(a.bytes);
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.size = sizeof in;
  return a;
}

address unix_address(std::uint16_t port) {
  address a;
  auto& un = reinterpret_cast<sockaddr_un&>(a.bytes);
  un.sun_family = AF_UNIX;
  const std::string name = "farmem-bench-" + std::to_string(port);
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  a.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

address address_of(socket_kind kind, std::uint16_t port) {
  return kind == socket_kind::tcp ? tcp_address(port) : unix_address(port);
}

int open_socket(socket_kind kind) {
  return socket(kind == socket_kind::tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

[[noreturn]] void fail(const std::string& what) { throw error(errc::unreachable, what + ": " + std::strerror(errno)); }

void send_at_once(int fd, socket_kind kind) {
  const int on = 1;
  if (kind == socket_kind::tcp && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
}

}  // namespace

stream::~stream() {
  if (fd_ >= 0) close(fd_);
}

stream& stream::operator=(stream&& o) noexcept {
  std::swap(fd_, o.fd_);
  return *this;
}

stream stream::connect(socket_kind kind, std::uint16_t port) {
  stream s(open_socket(kind));
  const address a = address_of(kind, port);
  if (s.fd_ < 0 || ::connect(s.fd_, a.get(), a.size) != 0) fail("connecting to port " + std::to_string(port));
  send_at_once(s.fd_, kind);
  return s;
}

bool stream::send(const void* from, std::size_t bytes) noexcept {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t n = ::send(fd_, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= std::size_t(n);
  }
  return true;
}

bool stream::send(std::string_view head, std::string_view body) noexcept {
  iovec both[2] = {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(body.data()), body.size()}};
  msghdr m{};
  m.msg_iov = both;
  m.msg_iovlen = 2;
  ssize_t n = 0;
  do n = ::sendmsg(fd_, &m, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return false;
  const auto sent = std::size_t(n);
  if (sent < head.size() && !send(head.data() + sent, head.size() - sent)) return false;
  const std::size_t of_body = sent < head.size() ? 0 : sent - head.size();
  return send(body.data() + of_body, body.size() - of_body);
}

bool stream::receive(void* to, std::size_t bytes) noexcept {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t n = recv(fd_, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= std::size_t(n);
  }
  return true;
}

stream_acceptor::stream_acceptor(socket_kind kind) : fd_(open_socket(kind)) {
  address a = address_of(kind, kind == socket_kind::tcp ? 0 : std::uint16_t(getpid()));
  if (fd_ < 0 || bind(fd_, a.get(), a.size) != 0 || listen(fd_, 16) != 0) fail("listening");
  port_ = std::uint16_t(getpid());
  if (kind == socket_kind::unix_domain) return;
  if (getsockname(fd_, a.get(), &a.size) != 0) fail("listening");
  port_ = ntohs(reinterpret_cast<sockaddr_in&>(a.bytes).sin_port);
}

stream_acceptor::~stream_acceptor() { close(fd_); }

stream stream_acceptor::accept() {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = accept4(fd_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
    if (fd < 0 && errno == EINTR) continue;
    if (fd < 0) fail("accepting");
    stream s(fd);
    if (from.ss_family == AF_INET) send_at_once(fd, socket_kind::tcp);
    return s;
  }
}

}  // namespace fm::bench
