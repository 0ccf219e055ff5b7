// Starting, awaiting and ending a process; see process.h.
#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

namespace fm::example {

namespace {

constexpr int ready_descriptor = 3;
constexpr auto child_ends_within = std::chrono::seconds(10);

int milliseconds_until(time_point t) {
  return int(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(t - clock::now()).count()));
}

/// Reads one line from `fd`, which the process closes after it; empty when it ended before.
std::string read_line(int fd, time_point deadline) {
  std::string text;
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    const int left = milliseconds_until(deadline);
    if (left == 0) throw error(errc::timed_out, "a process that does not say that it is ready");
    if (::poll(&p, 1, left) <= 0) continue;
    char buffer[512];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, std::size_t(n));
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

process::process(const std::vector<std::string>& words, duration ready_within) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) throw error(errc::out_of_memory, fmt::format("a pipe: {}", std::strerror(errno)));
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {  // only system calls from here to exec
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);  // an agent's memory is not under this process's limit
    if (::getppid() != parent) ::_exit(126);
    ::setpgid(0, 0);  // Ctrl-C is for the program that started it
    if (ready[1] == ready_descriptor)
      ::fcntl(ready_descriptor, F_SETFD, 0);
    else if (::dup2(ready[1], ready_descriptor) != ready_descriptor)
      ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  const int failed = errno;
  ::close(ready[1]);
  try {
    if (pid_ < 0)
      throw error(errc::out_of_memory, fmt::format("starting {}: {}", words.front(), std::strerror(failed)));
    line_ = read_line(ready[0], clock::now() + ready_within);
    if (line_.empty()) throw error(errc::refused, fmt::format("{} ended before it was ready", words.front()));
  } catch (...) {
    ::close(ready[0]);
    ask_to_end();
    wait(clock::now());
    throw;
  }
  ::close(ready[0]);
}

process::process(process&& o) noexcept : pid_(std::exchange(o.pid_, -1)), line_(std::move(o.line_)) {}

process::~process() {
  ask_to_end();
  wait(clock::now() + child_ends_within);
}

void process::ask_to_end() const noexcept {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
}

int process::wait(time_point deadline) noexcept {
  if (pid_ <= 0) return 0;
  const int fd = int(::syscall(SYS_pidfd_open, pid_, 0));
  pollfd p{fd, POLLIN, 0};
  int ended = 0;
  while (fd >= 0 && (ended = ::poll(&p, 1, milliseconds_until(deadline))) < 0 && errno == EINTR) {
  }
  if (ended <= 0) ::kill(pid_, SIGKILL);
  if (fd >= 0) ::close(fd);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void say_ready(const std::string& line) {
  const std::string text = line + '\n';
  if (::fcntl(ready_descriptor, F_GETFD) < 0) return;
  (void)!::write(ready_descriptor, text.data(), text.size());
  ::close(ready_descriptor);
}

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  if (n > 0 && !words.empty()) words.front().assign(self, std::size_t(n));
  return words;
}

}  // namespace fm::example
