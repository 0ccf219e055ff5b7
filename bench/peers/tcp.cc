// Plain TCP; see tcp.h. A connection starts with a hello that says what the server shall do on it.
#include "tcp.h"

#include "base/base.h"
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "../support/cpu.h"

namespace fm::bench {
namespace {

struct hello {
  std::uint32_t request_bytes, reply_bytes;
  std::uint64_t stream_bytes;  // not 0: swallow that many and answer one byte
  waiting how;
  std::uint32_t unused = 0;
};

bool receive(int fd, char* to, std::size_t bytes, waiting how) {
  const int flags = how == waiting::spinning ? MSG_DONTWAIT : 0;
  while (bytes != 0) {
    const ssize_t n = recv(fd, to, bytes, flags);
    if (n > 0) {
      to += n;
      bytes -= std::size_t(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    }
  }
  return true;
}

bool send_all(int fd, const char* from, std::size_t bytes) {
  while (bytes != 0) {
    const ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      from += n;
      bytes -= std::size_t(n);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void serve_connection(int fd) {
  hello h{};
  if (!receive(fd, reinterpret_cast<char*>(&h), sizeof h, waiting::blocking)) return;
  if (h.stream_bytes != 0) {
    std::vector<char> sink(1 << 20);
    std::uint64_t left = h.stream_bytes;
    while (left != 0) {
      const ssize_t n = recv(fd, sink.data(), sink.size(), 0);
      if (n <= 0) return;
      left -= std::min<std::uint64_t>(left, std::uint64_t(n));
    }
    send_all(fd, "x", 1);
    return;
  }
  std::vector<char> request(h.request_bytes), reply(h.reply_bytes, 'r');
  while (receive(fd, request.data(), request.size(), h.how)) {
    if (!send_all(fd, reply.data(), reply.size())) return;
  }
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return a;
}

int connect_with(std::uint16_t port, const hello& h) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in a = loopback(port);
  const int on = 1;
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 ||
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      !send_all(fd, reinterpret_cast<const char*>(&h), sizeof h)) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw error(errc::unreachable, "127.0.0.1:" + std::to_string(port) + ": " + why);
  }
  return fd;
}

void broken() { throw error(errc::disconnected, "the plain TCP server"); }

}  // namespace

int tcp_server_main(const std::vector<std::string>&) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a = loopback(0);
  socklen_t size = sizeof a;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&a), &size) != 0)
    throw error(errc::unreachable, std::string("listening on 127.0.0.1: ") + std::strerror(errno));
  // A thread for each connection, so that an idle one does not keep the next waiting. The process ends with stdin.
  std::thread([listener] {
    for (;;) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      std::thread([fd] {
        serve_connection(fd);
        close(fd);
      }).detach();
    }
  }).detach();
  const int rc =
      serve_commands({{"port", double(ntohs(a.sin_port))}}, [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

tcp_ping::tcp_ping(std::uint16_t port, std::uint32_t request_bytes, std::uint32_t reply_bytes, waiting how)
    : fd_(connect_with(port, {request_bytes, reply_bytes, 0, how})),
      how_(how),
      request_(request_bytes, 'q'),
      reply_(reply_bytes) {}

tcp_ping::~tcp_ping() { close(fd_); }

void tcp_ping::run(std::size_t count, std::vector<std::uint32_t>& ns) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = now_ns();
    if (!send_all(fd_, request_.data(), request_.size()) || !receive(fd_, reply_.data(), reply_.size(), how_)) broken();
    ns.push_back(std::uint32_t(std::min<std::uint64_t>(now_ns() - begin, UINT32_MAX)));
  }
}

void tcp_ping::run_pipelined(std::size_t count, std::size_t in_flight) {
  const std::size_t lead = std::min(count, in_flight);
  std::vector<char> burst(lead * request_.size(), 'q');
  if (!send_all(fd_, burst.data(), burst.size())) broken();
  for (std::size_t answered = 0, sent = lead; answered < count; ++answered) {
    if (!receive(fd_, reply_.data(), reply_.size(), how_)) broken();
    if (sent < count) {
      if (!send_all(fd_, request_.data(), request_.size())) broken();
      ++sent;
    }
  }
}

double tcp_stream(std::uint16_t port, std::uint64_t bytes, std::uint32_t chunk_bytes) {
  const int fd = connect_with(port, {0, 0, bytes, waiting::blocking});
  const std::vector<char> chunk(chunk_bytes, 's');
  const std::uint64_t begin = now_ns();
  bool ok = true;
  for (std::uint64_t left = bytes; ok && left != 0;) {
    const std::uint64_t n = std::min<std::uint64_t>(left, chunk.size());
    ok = send_all(fd, chunk.data(), n);
    left -= n;
  }
  char done;
  ok = ok && receive(fd, &done, 1, waiting::blocking);
  const double seconds = double(now_ns() - begin) * 1e-9;
  close(fd);
  if (!ok) broken();
  return seconds;
}

}  // namespace fm::bench
