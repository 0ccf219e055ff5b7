// Connecting, listening, and sending and receiving without blocking, over TCP and Unix sockets; see socket.h. Owns the
// rule that plaintext never listens beyond this host unless the caller says so. It keeps no state, and any thread may
// call it.
#include "fabric/socket/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/limits.h"
#include "os/os.h"

namespace fm::fabric {

std::atomic<name_lookup_fn> name_lookup{&::getaddrinfo};

namespace {

struct endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

endpoint unix_endpoint(const std::string& path) noexcept {
  endpoint e;
  auto* un = reinterpret_cast<sockaddr_un*>(&e.storage);
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path, path.c_str(), std::min(path.size() + 1, sizeof un->sun_path));
  e.length = sizeof(sockaddr_un);
  return e;
}

/// Every address of a name, or why there is none. Of a name that is no number it may take minutes.
std::vector<endpoint> resolve(const address& a, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int rc = name_lookup.load()(a.host.c_str(), fmt::format("{}", a.port).c_str(), &hints, &list);
  std::vector<endpoint> found;
  if (rc != 0) {
    why = ::gai_strerror(rc);
    return found;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (const addrinfo* i = list; i; i = i->ai_next) {
    endpoint e;
    if (i->ai_addrlen > sizeof e.storage) continue;
    std::memcpy(&e.storage, i->ai_addr, i->ai_addrlen);
    e.length = i->ai_addrlen;
    found.push_back(e);
  }
  return found;
}

/// Threads that wait for the system's answer.
struct lookups {
  std::mutex mutex;
  std::condition_variable changed;
  int under_way = 0;
};
lookups& names() {
  static lookups& all = *new lookups;  // of threads that may outlive main
  return all;
}
const os::fork_guard lookups_at_fork(
    os::fork_rank::leaves, []() noexcept { names().mutex.lock(); }, []() noexcept { names().mutex.unlock(); },
    []() noexcept {  // those threads are the parent's
      names().under_way = 0;
      new (&names().changed) std::condition_variable;
      names().mutex.unlock();
    });

/// The system looks names up without a deadline, so a thread of its own waits for that, and is left to itself when the
/// deadline passes. There are few of them, whoever chooses the names.
errc resolve_within(const address& a, time_point deadline, std::vector<endpoint>& found) {
  std::string why;
  found = resolve(a, AI_NUMERICHOST, why);
  if (!found.empty()) return errc::ok;
  lookups& all = names();
  struct answer {
    bool done = false;
    std::vector<endpoint> found;
  };
  const auto asked = std::make_shared<answer>();
  std::unique_lock lock(all.mutex);
  const auto wait = [&](const auto& condition) {
    if (deadline != time_point::max()) return all.changed.wait_until(lock, deadline, condition);
    all.changed.wait(lock, condition);
    return true;
  };
  if (!wait([&] { return all.under_way < fabric_limits::lookups_max; })) return errc::timed_out;
  try {
    std::thread([asked, a, &all] {
      std::string reason;
      auto every = resolve(a, 0, reason);
      const std::lock_guard over(all.mutex);
      asked->found = std::move(every);
      asked->done = true;
      --all.under_way;
      all.changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return errc::out_of_memory;
  }
  ++all.under_way;
  if (!wait([&] { return asked->done; })) return errc::timed_out;
  found = std::move(asked->found);
  return found.empty() ? errc::unreachable : errc::ok;
}

bool is_loopback(const endpoint& e) noexcept {
  if (e.storage.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&e.storage)->sin_addr.s_addr) >> 24) == 127;
  if (e.storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&e.storage)->sin6_addr);
  return false;
}

void set_no_delay(int fd) noexcept {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Where a socket is bound, or what it is connected to; of length 0 where the system does not say.
endpoint end_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) noexcept {
  endpoint e;
  e.length = sizeof e.storage;
  if (which(fd, reinterpret_cast<sockaddr*>(&e.storage), &e.length) != 0) e.length = 0;
  return e;
}

/// While nobody listens at a port of this host that the system also gives to those that connect, it may give the same port
/// to the one that connects to it: TCP then opens the connection to itself. Left alone, it would keep the listener from
/// coming back, and closed in order, for a minute more; so it is cut off.
bool is_itself(int fd) noexcept {
  const endpoint here = end_of(fd, &::getsockname), there = end_of(fd, &::getpeername);
  if (here.length == 0 || here.length != there.length) return false;
  if (std::memcmp(&here.storage, &there.storage, here.length) != 0) return false;
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return true;
}

errc connect_endpoint(const endpoint& e, time_point deadline, descriptor& out) noexcept {
  descriptor s(::socket(e.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s) return errc::unreachable;
  if (::connect(s.get(), e.get(), e.length) != 0) {
    if (errno == EAGAIN && e.storage.ss_family == AF_UNIX) return errc::unreachable;  // its backlog is full
    if (errno != EINPROGRESS) return errc::unreachable;
    if (!wait_socket(s.get(), POLLOUT, deadline)) return errc::timed_out;
    int failed = 0;
    socklen_t size = sizeof failed;
    if (::getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0 || failed != 0) return errc::unreachable;
  }
  if (e.storage.ss_family != AF_UNIX) {
    if (is_itself(s.get())) return errc::unreachable;
    set_no_delay(s.get());
  }
  out = std::move(s);
  return errc::ok;
}

/// The deadline of the next of `tries`, so that one that nobody answers leaves the others their time.
time_point share_of(time_point deadline, std::size_t tries) noexcept {
  if (deadline == time_point::max()) return deadline;
  const time_point now = clock::now();
  return now + (deadline - now) / static_cast<std::int64_t>(tries);
}

/// A socket file that nobody listens on is left over from a killed agent; any other file is not ours to remove. The system
/// refuses a connection only if nobody listens: a listener that is busy, or that may not be asked, is there all the same.
void remove_stale_socket(const address& at, const std::string& url) {
  struct stat st {};
  if (::lstat(at.path.c_str(), &st) != 0) return;
  if (!S_ISSOCK(st.st_mode))
    throw error(errc::invalid_argument, fmt::format("{}: the path exists and is no socket", url));
  const descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const endpoint e = unix_endpoint(at.path);
  const int why = probe && ::connect(probe.get(), e.get(), e.length) == 0 ? 0 : errno;
  if (why == 0 || why == EAGAIN)  // EAGAIN: its backlog is full
    throw error(errc::refused, fmt::format("{}: another process listens there", url));
  if (why != ECONNREFUSED && why != ENOENT)
    throw error(errc::unreachable, fmt::format("{}: does another process listen there? {}", url, std::strerror(why)));
  ::unlink(at.path.c_str());
}

descriptor bind_and_listen(const endpoint& e, const std::string& url) {
  descriptor s(::socket(e.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (s && e.storage.ss_family != AF_UNIX) ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!s || ::bind(s.get(), e.get(), e.length) != 0 || ::listen(s.get(), 128) != 0)
    throw error(errc::unreachable, fmt::format("listening on {}: {}", url, std::strerror(errno)));
  return s;
}

}  // namespace

errc connect_socket(const address& to, time_point deadline, descriptor& out) noexcept {
  try {
    if (to.scheme == "shm") return connect_endpoint(unix_endpoint(to.path), deadline, out);
    std::vector<endpoint> found;
    errc e = resolve_within(to, deadline, found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      e = connect_endpoint(found[i], share_of(deadline, found.size() - i), out);
      if (e == errc::ok) break;
    }
    return e;
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

bool is_beyond_host(const address& at) {
  std::string why;
  const auto found = resolve(at, AI_PASSIVE, why);
  return !found.empty() && !is_loopback(found.front());
}

void throw_insecure(std::string_view url) {
  throw error(errc::access_denied,
              fmt::format("listening on {}: plaintext beyond this host needs listen_options::insecure", url));
}

descriptor listen_socket(const address& at, const std::string& url, bool insecure, std::string& real) {
  if (at.scheme == "shm") {
    remove_stale_socket(at, url);
    real = url;
    return bind_and_listen(unix_endpoint(at.path), url);
  }
  std::string why;
  const auto found = resolve(at, AI_PASSIVE, why);
  if (found.empty()) throw error(errc::unreachable, fmt::format("listening on {}: {}", url, why));
  if (!is_loopback(found.front()) && !insecure) throw_insecure(url);
  descriptor s = bind_and_listen(found.front(), url);
  const endpoint bound = end_of(s.get(), &::getsockname);
  const std::uint16_t port = bound.storage.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                                 : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port;
  real = format_url(at.scheme, at.host, ntohs(port));
  return s;
}

descriptor accept_socket(int listening, bool unix_family, std::string& peer_name) {
  endpoint from;
  from.length = sizeof from.storage;
  descriptor s(
      ::accept4(listening, reinterpret_cast<sockaddr*>(&from.storage), &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!s) return s;
  if (unix_family) {
    ucred who{};
    socklen_t size = sizeof who;
    ::getsockopt(s.get(), SOL_SOCKET, SO_PEERCRED, &who, &size);
    peer_name = fmt::format("shm uid={} pid={}", who.uid, who.pid);
    return s;
  }
  set_no_delay(s.get());
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  ::getnameinfo(from.get(), from.length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  peer_name = fmt::format("tcp {}:{}", host, port);
  return s;
}

// One buffer alone goes by send and recv, which copy no header of a message from the caller.
io_result send_some(int socket, std::span<const iovec> from, int fd) noexcept {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(from.data());
  m.msg_iovlen = from.size();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
  for (;;) {
    const ssize_t n = from.size() == 1 && fd < 0 ? ::send(socket, from[0].iov_base, from[0].iov_len, flags)
                                                 : ::sendmsg(socket, &m, flags);
    if (n >= 0) return {std::size_t(n), io_result::progress};
    if (errno == EINTR) continue;
    return {0, errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? io_result::again : io_result::gone};
  }
}

namespace {

io_result receive(int socket, std::span<const iovec> to, std::vector<int>* fds, int flags) noexcept {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(to.data());
  m.msg_iovlen = to.size();
  alignas(cmsghdr) char control[CMSG_SPACE(descriptors_at_once * sizeof(int))];
  if (fds) {
    m.msg_control = control;
    m.msg_controllen = sizeof control;
  }
  FM_ASSERT(!fds || fds->capacity() - fds->size() >= descriptors_at_once,
            "descriptors are not lost for want of memory");
  const bool plain = to.size() == 1 && fds == nullptr;
  ssize_t n;
  do n = plain ? ::recv(socket, to[0].iov_base, to[0].iov_len, flags) : ::recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return {0, errno == EAGAIN || errno == EWOULDBLOCK ? io_result::again : io_result::gone};
  if (fds)
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        fds->push_back(fd);
      }
    }
  return {std::size_t(n), n == 0 ? io_result::gone : io_result::progress};
}

}  // namespace

io_result receive_some(int socket, std::span<const iovec> to, std::vector<int>* fds) noexcept {
  return receive(socket, to, fds, MSG_DONTWAIT);
}

io_result receive_asleep(int socket, std::span<const iovec> to, std::vector<int>* fds) noexcept {
  return receive(socket, to, fds, 0);
}

bool may_sleep_in_receive(int socket, duration at_most) noexcept {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(at_most).count();
  const timeval t{us / 1'000'000, us % 1'000'000};
  if (::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0) return false;
  const int flags = ::fcntl(socket, F_GETFL);
  return flags >= 0 && ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

bool wait_socket(int socket, short events, time_point deadline) noexcept {
  pollfd p{socket, events, 0};
  return wait_sockets({&p, 1}, deadline);
}

bool wait_sockets(std::span<pollfd> sockets, time_point deadline) noexcept {
  for (;;) {
    timespec left{};
    timespec* left_p = nullptr;
    if (deadline != time_point::max()) {
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - clock::now()).count();
      if (ns <= 0) return false;
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
      left_p = &left;
    }
    const int n = ::ppoll(sockets.data(), sockets.size(), left_p, nullptr);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // the next call on the socket reports it
  }
}

errc send_all(int socket, std::span<const std::byte> bytes, time_point deadline) noexcept {
  while (!bytes.empty()) {
    const iovec v{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const io_result r = send_some(socket, {&v, 1});
    if (r.outcome == io_result::gone) return errc::unreachable;
    if (r.outcome == io_result::again && !wait_socket(socket, POLLOUT, deadline)) return errc::timed_out;
    bytes = bytes.subspan(r.bytes);
  }
  return errc::ok;
}

errc receive_all(int socket, std::span<std::byte> bytes, time_point deadline) noexcept {
  while (!bytes.empty()) {
    const iovec v{bytes.data(), bytes.size()};
    const io_result r = receive_some(socket, {&v, 1}, nullptr);
    if (r.outcome == io_result::gone) return errc::unreachable;
    if (r.outcome == io_result::again && !wait_socket(socket, POLLIN, deadline)) return errc::timed_out;
    bytes = bytes.subspan(r.bytes);
  }
  return errc::ok;
}

}  // namespace fm::fabric
