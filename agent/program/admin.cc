// The admin socket, both ends; see admin.h.
// Invariant owned here: one client is served at a time and has a deadline, so that a stuck one delays the others for a
// moment only.
// The server is main's; the clients are the program's `--status` and `--drain`.
#include "admin.h"

#include "base/log.h"
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/base/limits.h"
#include "os/os.h"
#include <cerrno>
#include <cstring>

namespace fm::agent {

namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof a.sun_path)
    throw error(errc::invalid_argument,
                fmt::format("admin socket '{}': a path of 1 to {} characters is needed", path, sizeof a.sun_path - 1));
  std::memcpy(a.sun_path, path.data(), path.size());
  return a;
}

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// Waits until `fd` is ready for `events`; false on the deadline.
bool ready(int fd, short events, time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
    if (left <= 0) return false;
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, int(left));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

/// Sends everything, or gives up at the deadline.
bool send_all(int fd, std::string_view data, time_point deadline) {
  while (!data.empty()) {
    if (!ready(fd, POLLOUT, deadline)) return false;
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) data.remove_prefix(std::size_t(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
  }
  return true;
}

bool somebody_serves(const sockaddr_un& a) {
  const descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe.get() >= 0 && ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
}

}  // namespace

admin_server::admin_server(std::string path, std::function<std::string(std::string_view)> answer)
    : path_(std::move(path)), answer_(std::move(answer)) {
  const sockaddr_un a = address_of(path_);
  const auto failed = [&](const char* what) {
    const int e = errno;
    if (listen_fd_ >= 0) ::close(listen_fd_);
    if (stop_fd_ >= 0) ::close(stop_fd_);
    throw error(errc::refused, fmt::format("admin socket {}: {}: {}", path_, what, std::strerror(e)));
  };
  struct stat st {};
  if (::lstat(path_.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode))
      throw error(errc::refused, fmt::format("admin socket {}: something else is there", path_));
    if (somebody_serves(a)) throw error(errc::refused, fmt::format("admin socket {}: another agent serves it", path_));
    ::unlink(path_.c_str());  // left by an agent that was killed
  }
  listen_fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listen_fd_ < 0 || stop_fd_ < 0) failed("socket");
  // The mode of the socket's file comes from the descriptor, so nobody can connect in between.
  if (::fchmod(listen_fd_, 0600) != 0) failed("fchmod");
  if (::bind(listen_fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) failed("bind");
  if (::listen(listen_fd_, 8) != 0) failed("listen");
  thread_ = std::thread([this] { run(); });
}

admin_server::~admin_server() {
  const std::uint64_t one = 1;
  FM_CHECK(::write(stop_fd_, &one, sizeof one) == sizeof one, "waking the admin thread");
  thread_.join();
  ::unlink(path_.c_str());
  ::close(listen_fd_);
  ::close(stop_fd_);
}

void admin_server::run() {
  os::name_thread("fm-admin");
  for (;;) {
    pollfd p[2] = {{listen_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (::poll(p, 2, -1) < 0) {
      if (errno == EINTR) continue;
      log::error("admin socket {}: poll: {}", path_, std::strerror(errno));
      return;
    }
    if (p[1].revents != 0) return;
    const descriptor client(::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.get() >= 0) {
      serve(client.get());
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The client stays in the queue, and would be reported at once and again.
      if (ready(stop_fd_, POLLIN, clock::now() + limits::accept_retry)) return;
    }
  }
}

void admin_server::serve(int fd) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || (who.uid != 0 && who.uid != ::geteuid())) {
    log::warn("admin socket {}: refused pid {} of uid {}", path_, who.pid, who.uid);
    return;
  }
  const time_point deadline = clock::now() + limits::admin_deadline;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    char buffer[64];
    if (line.size() > sizeof buffer || !ready(fd, POLLIN, deadline)) return;
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (n > 0) line.append(buffer, std::size_t(n));
  }
  line.resize(line.find('\n'));
  try {
    const std::string document = answer_(line);
    send_all(fd, !document.empty() ? document : "error: unknown command\n", deadline);
  } catch (const std::exception& e) {
    log::error("admin socket {}: {}", path_, e.what());
  }
}

std::string ask_agent(const std::string& path, std::string_view command) {
  const sockaddr_un a = address_of(path);
  const descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0 || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0)
    throw error(errc::unreachable, fmt::format("admin socket {}: {}", path, std::strerror(errno)));
  const time_point deadline = clock::now() + 2 * limits::admin_deadline;
  if (!send_all(fd.get(), std::string(command) + '\n', deadline))
    throw error(errc::timed_out, fmt::format("admin socket {}", path));
  std::string document;
  for (;;) {
    if (!ready(fd.get(), POLLIN, deadline)) throw error(errc::timed_out, fmt::format("admin socket {}", path));
    char buffer[16384];
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    document.append(buffer, std::size_t(n));
    if (document.size() > limits::document_max)
      throw error(errc::too_large, fmt::format("admin socket {}: the answer has no end", path));
  }
  if (document.empty() || document.front() != '{')
    throw error(
        errc::refused,
        fmt::format("admin socket {}: {}", path,
                    document.empty() ? "the agent said nothing; only its own user and root may ask" : document));
  return document;
}

std::string readable(const std::string& json) {
  std::string out;
  std::size_t depth = 0;
  bool in_string = false;
  const auto new_line = [&] {
    while (!out.empty() && out.back() == ' ') out.pop_back();
    if (!out.empty() && out.back() != '\n') out += '\n';
    if (depth > 1) out.append((depth - 1) * 2, ' ');
  };
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\' && i + 1 < json.size())
        out += json[++i];
      else if (c == '"')
        in_string = false;
      else
        out += c;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
      new_line();
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      new_line();
    } else {
      out += c;
      if (c == ':') out += ' ';
    }
  }
  return out + '\n';
}

}  // namespace fm::agent
