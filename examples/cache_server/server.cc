// Accepting, reading, executing and sending; see server.h.
#include "server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "../support/machine.h"

namespace fm::example {

namespace {

constexpr std::size_t read_at_once = 64u << 10;
constexpr std::size_t out_bytes_max = 256u << 10;  // no further command of a client while more waits to be sent
constexpr unsigned expired_at_once = 200;
constexpr int tick_ms = 100;
constexpr auto linger_for = std::chrono::seconds(5);

[[noreturn]] void fail_here(const std::string& what) {
  throw error(errc::refused, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

server::server(cache& c, const options& o)
    : cache_(c), options_(o), commands_(c, status_), buffer_(read_at_once, '\0') {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  const int on = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(o.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener_ < 0 || epoll_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_, 511) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &bytes) != 0)
    fail_here(fmt::format("port {} of 127.0.0.1", o.port));
  status_.port = ntohs(at.sin_port);
  epoll_event e{EPOLLIN, {.fd = listener_}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &e) != 0) fail_here("epoll");
}

server::~server() {
  for (const auto& c : clients_) ::close(c.first);
  if (listener_ >= 0) ::close(listener_);
  if (epoll_ >= 0) ::close(epoll_);
}

void server::run() {
  std::array<epoll_event, 256> events;
  while (!stop_requested.load(std::memory_order_relaxed)) {
    const int n = ::epoll_wait(epoll_, events.data(), int(events.size()), tick_ms);
    if (n < 0 && errno != EINTR) fail_here("epoll");
    for (int i = 0; i < n; ++i) {
      if (events[std::size_t(i)].data.fd == listener_) {
        accept_some();
      } else if (const auto c = clients_.find(events[std::size_t(i)].data.fd); c != clients_.end()) {
        handle(*c->second, events[std::size_t(i)].events);
      }
    }
    (void)cache_.expire_some(expired_at_once);
    if (clock::now() >= look_at_) look_around();
  }
}

/// What is not done as soon as something happens.
void server::look_around() {
  const time_point now = clock::now();
  look_at_ = now + std::chrono::milliseconds(tick_ms);
  for (auto c = clients_.begin(); c != clients_.end();) {
    client& k = *(c++)->second;
    if (k.lingers_until && now >= *k.lingers_until) close_client(k);
  }
  if (!accepting_) {
    epoll_event e{EPOLLIN, {.fd = listener_}};
    accepting_ = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &e) == 0;
  }
}

void server::accept_some() {
  for (int i = 0; i < 64; ++i) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        epoll_event e{0, {.fd = listener_}};
        accepting_ = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &e) != 0;
      }
      return;
    }
    if (clients_.size() >= options_.clients_max) {
      constexpr std::string_view full = "-ERR max number of clients reached\r\n";
      ++status_.clients_refused;
      (void)!::send(fd, full.data(), full.size(), MSG_NOSIGNAL);
      ::close(fd);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event e{EPOLLIN, {.fd = fd}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) != 0) {
      ::close(fd);
      continue;
    }
    auto c = std::make_unique<client>();
    c->fd = fd;
    clients_.emplace(fd, std::move(c));
    status_.clients = clients_.size();
  }
}

void server::handle(client& c, std::uint32_t events) {
  if ((events & EPOLLIN) != 0 && c.reading) {
    const ssize_t n = ::recv(c.fd, buffer_.data(), buffer_.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return close_client(c);
    if (n > 0 && c.closing) return;
    if (n > 0) c.requests.feed({buffer_.data(), std::size_t(n)});
  } else if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    return close_client(c);
  }
  if (!pump(c)) close_client(c);
}

bool server::pump(client& c) {
  for (;;) {
    auto status = request_parser::status::command;  // there may be more, unless the parser says that there is not
    while (!c.closing && c.out.size() < out_bytes_max) {
      status = c.requests.next();
      if (status == request_parser::status::more) break;
      reply_writer r(c.out);
      if (status == request_parser::status::command) {
        c.closing = !commands_.execute(c.requests.words(), c.out);
      } else if (status == request_parser::status::too_large) {
        r.error(fmt::format("ERR too_large: a command of more than {} bytes", request_parser::command_bytes_max));
      } else {
        r.error(fmt::format("ERR {}", c.requests.text()));
        c.closing = true;
      }
    }
    if (!send_some(c)) return false;
    const bool waits = c.sent < c.out.size();
    if (!waits) {
      c.out.clear();
      c.sent = 0;
      if (c.out.capacity() > 4 * out_bytes_max) std::string().swap(c.out);
      if (c.closing) return linger(c);
      if (status != request_parser::status::more) continue;
    }
    watch(c, !waits, waits);
    return true;
  }
}

/// The client has been told all, and is read from until it goes: closed with bytes that nobody read, a connection is reset, and
/// the last reply lost.
bool server::linger(client& c) {
  if (!c.lingers_until) ::shutdown(c.fd, SHUT_WR);
  if (!c.lingers_until) c.lingers_until = clock::now() + linger_for;
  watch(c, true, false);
  return true;
}

bool server::send_some(client& c) {
  while (c.sent < c.out.size()) {
    const ssize_t n = ::send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    c.sent += std::size_t(n);
  }
  return true;
}

void server::watch(client& c, bool reading, bool writing) {
  if (c.reading == reading && c.writing == writing) return;
  epoll_event e{(reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u), {.fd = c.fd}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &e);
  c.reading = reading;
  c.writing = writing;
}

void server::close_client(client& c) {
  ::close(c.fd);  // which takes it out of the epoll set
  clients_.erase(c.fd);
  status_.clients = clients_.size();
}

}  // namespace fm::example
