// Reading and writing the socket that a program has handed over; see socket_transport.h.
#include "socket_transport.h"
#include "base/channel_limits.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "endpoint.h"

namespace fm::detail {

using namespace channel_wire;

namespace {

constexpr std::size_t message_bytes_max = sizeof(head) + std::max(part_bytes_max, text_bytes_max);

std::string name_of_peer(int fd) {
  sockaddr_storage a{};
  socklen_t bytes = sizeof a;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) != 0)
    throw error(errc::invalid_argument,
                fmt::format("descriptor {} is no connected socket: {}", fd, std::strerror(errno)));
  char text[INET6_ADDRSTRLEN] = "";
  if (a.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&a);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    return fmt::format("adopted tcp {}:{}", text, ntohs(in->sin_port));
  }
  if (a.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&a);
    ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
    return fmt::format("adopted tcp [{}]:{}", text, ntohs(in->sin6_port));
  }
  return fmt::format("adopted socket {}", fd);
}

void prepare(int fd) {
  int type = 0;
  socklen_t bytes = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_STREAM)
    throw error(errc::invalid_argument, fmt::format("descriptor {} is no stream socket", fd));
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    throw error(errc::invalid_argument, fmt::format("descriptor {}: {}", fd, std::strerror(errno)));
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // of a Unix socket it is refused
}

int milliseconds_until(time_point t) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(t - clock::now()).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

socket_transport::socket_transport(os::descriptor socket, channel_terms& terms, time_point deadline)
    : socket_(std::move(socket)), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), in_(message_bytes_max) {
  name_ = name_of_peer(socket_.get());
  prepare(socket_.get());
  if (!bell_) throw error(errc::out_of_memory, "no descriptor for a channel's bell");
  introduce(terms, deadline);
}

void socket_transport::wait_for(short events, time_point deadline) const {
  for (;;) {
    pollfd p{socket_.get(), events, 0};
    const int n = ::poll(&p, 1, milliseconds_until(deadline));
    if (n > 0) return;
    if (clock::now() >= deadline)
      throw error(errc::timed_out, fmt::format("{}: the other end has not introduced itself as a channel", name_));
  }
}

void socket_transport::introduce(channel_terms& terms, time_point deadline) {
  head mine = terms.hello(), theirs{};
  const auto all_of = [&](auto move, void* bytes, short events) {
    for (std::size_t at = 0; at < sizeof(head);) {
      const ssize_t n = move(static_cast<char*>(bytes) + at, sizeof(head) - at);
      if (n > 0) {
        at += static_cast<std::size_t>(n);
      } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        wait_for(events, deadline);
      } else {
        throw error(errc::disconnected,
                    fmt::format("{}: the connection ended before the other end introduced itself", name_));
      }
    }
  };
  const int fd = socket_.get();
  all_of([fd](void* p, std::size_t n) { return ::send(fd, p, n, MSG_NOSIGNAL); }, &mine, POLLOUT);
  all_of([fd](void* p, std::size_t n) { return ::recv(fd, p, n, 0); }, &theirs, POLLIN);
  head h{};
  std::span<const std::byte> rest;
  errc e = decode(std::as_bytes(std::span(&theirs, 1)), h, rest);
  if (e == errc::ok && (h.kind != static_cast<std::uint8_t>(kind::hello) || h.flags != 0)) e = errc::bad_frame;
  if (e == errc::ok) e = channel_terms::agree(h, terms);
  if (e != errc::ok)
    throw error(e, fmt::format("{}: the other end does not introduce itself as a channel of this version", name_));
}

void socket_transport::start(endpoint& end) {
  end_ = &end;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw error(errc::out_of_memory, fmt::format("{}: no thread: {}", name_, e.what()));
  }
}

// ---- what the endpoint says ----

void socket_transport::push_locked(std::vector<std::byte>&& message) {
  out_bytes_ += message.size();
  out_.push_back(std::move(message));
}

std::span<std::byte> socket_transport::room(std::size_t bytes) {
  buffer_.resize(bytes);
  return buffer_;
}

errc socket_transport::send(std::size_t bytes, time_point deadline) noexcept {
  try {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return ended_ || out_bytes_ < channel_limits::adopted_parts_bytes; };
    if (!changed_.wait_until(lock, deadline, ready)) return errc::timed_out;
    if (ended_) return errc::disconnected;
    buffer_.resize(bytes);
    push_locked(std::move(buffer_));
    buffer_ = {};
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  ring();
  return errc::ok;
}

errc socket_transport::tell(std::span<const std::byte> message) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (ended_ || finish_by_ != time_point::max()) return errc::disconnected;
    if (out_bytes_ + message.size() > channel_limits::adopted_bytes_max) return errc::timed_out;
    push_locked({message.begin(), message.end()});
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  ring();
  return errc::ok;
}

void socket_transport::drain(time_point deadline) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return ended_ || out_.empty(); });
}

void socket_transport::drop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    finish_by_ = std::min(finish_by_, clock::now() + channel_limits::word_within);
  }
  ring();
}

void socket_transport::close() noexcept {
  if (!thread_.joinable()) return;
  drop();
  thread_.join();
}

// ---- the thread ----

void socket_transport::ring() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

time_point socket_transport::finish_by() noexcept {
  const std::lock_guard lock(mutex_);
  return finish_by_;
}

void socket_transport::run() noexcept {
  for (;;) {
    const time_point by = finish_by();
    const bool finishing = by != time_point::max();
    bool waits = false;
    {
      const std::lock_guard lock(mutex_);
      waits = !out_.empty();
    }
    if (finishing && !waits && !finished_) {
      finished_ = true;
      ::shutdown(socket_.get(), SHUT_WR);
    }
    if (finishing && clock::now() >= by) break;
    pollfd p[2] = {{socket_.get(), static_cast<short>(POLLIN | (waits ? POLLOUT : 0)), 0}, {bell_.get(), POLLIN, 0}};
    if (::poll(p, 2, milliseconds_until(by)) < 0 && errno != EINTR) break;
    if (p[1].revents != 0) {
      std::uint64_t rung = 0;
      (void)!::read(bell_.get(), &rung, sizeof rung);
    }
    if (waits && !write_some()) {
      (void)read_some(finishing);  // what came before the end may say why
      break;
    }
    if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !read_some(finishing)) break;
  }
  end();
}

bool socket_transport::write_some() noexcept {
  for (;;) {
    std::vector<std::byte>* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (out_.empty()) return true;
      first = &out_.front();  // only this thread takes it away, and it does not move meanwhile
    }
    const ssize_t n = ::send(socket_.get(), first->data() + written_, first->size() - written_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    written_ += static_cast<std::size_t>(n);
    if (written_ < first->size()) continue;
    written_ = 0;
    {
      const std::lock_guard lock(mutex_);
      out_bytes_ -= first->size();
      out_.pop_front();
    }
    changed_.notify_all();
  }
}

bool socket_transport::read_some(bool discard) noexcept {
  // Some at a time, so that what is to be written gets its turn.
  for (int i = 0; i < 16; ++i) {
    if (in_begin_ != 0) {
      std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
      in_end_ -= in_begin_;
      in_begin_ = 0;
    }
    const ssize_t n = ::recv(socket_.get(), in_.data() + in_end_, in_.size() - in_end_, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    in_end_ += static_cast<std::size_t>(n);
    if (discard)
      in_end_ = 0;
    else if (!hear_messages())
      return true;  // what broke the rules is not heard again: drop() has been called
  }
  return true;
}

bool socket_transport::hear_messages() noexcept {
  const auto broke = [&](errc e) {
    end_->broken(e, "the other end broke the rules");
    drop();
    in_begin_ = in_end_ = 0;
    return false;
  };
  while (in_end_ - in_begin_ >= sizeof(head)) {
    head h{};
    std::memcpy(&h, in_.data() + in_begin_, sizeof h);
    if (h.magic != magic || h.bytes > message_bytes_max - sizeof h) return broke(errc::bad_frame);
    const std::size_t bytes = sizeof h + h.bytes;
    if (in_end_ - in_begin_ < bytes) return true;
    const errc e = end_->arrived({in_.data() + in_begin_, bytes});
    if (e != errc::ok) return broke(e);
    in_begin_ += bytes;
  }
  return true;
}

void socket_transport::end() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  end_->broken(errc::disconnected, "the connection ended");
}

}  // namespace fm::detail
