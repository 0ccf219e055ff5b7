// Starting and stopping children; see process.h.
#include "process.h"

#include "base/base.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fm::bench {
namespace {

// Everything that the child needs, prepared before vfork: the child may only make system calls. vfork, because fork
// would leave the pages of a large parent write-protected, and its next turn would be measured while it pays for that.
struct prepared {
  std::vector<char*> argv;
  const char* cgroup_procs = nullptr;
  int core = -1;
  int in = -1, out = -1;
  pid_t parent = 0;
};

[[noreturn]] void run_child(const prepared& p) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != p.parent) _exit(126);
  if (p.cgroup_procs != nullptr) {
    const int fd = open(p.cgroup_procs, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) _exit(125);
    close(fd);
  }
  if (p.core != -1) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (p.core >= 0) {
      CPU_SET(p.core, &set);
    } else {
      for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
    }
    sched_setaffinity(0, sizeof set, &set);
  }
  if (p.in >= 0 && (dup2(p.in, 0) < 0 || dup2(p.out, 1) < 0)) _exit(124);
  execv(p.argv[0], p.argv.data());
  _exit(127);
}

__attribute__((noinline)) pid_t vfork_child(const prepared& p) {
  const pid_t pid = vfork();
  if (pid == 0) run_child(p);
  return pid;
}

void close_if_open(int& fd) noexcept {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

child::child(const spawn_options& options) {
  prepared p;
  for (const std::string& a : options.argv) p.argv.push_back(const_cast<char*>(a.c_str()));
  p.argv.push_back(nullptr);
  if (!options.cgroup_procs.empty()) p.cgroup_procs = options.cgroup_procs.c_str();
  p.core = options.core;
  p.parent = getpid();
  int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
  if (options.pipes) {
    // A socket towards the child, so that writing to one that died is an error and not a SIGPIPE.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to_child) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
      throw error(errc::out_of_memory, "pipes for " + options.argv[0]);
    p.in = to_child[0];
    p.out = from_child[1];
  }
  pid_ = vfork_child(p);
  const int why = errno;
  close_if_open(to_child[0]);
  close_if_open(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
  if (pid_ < 0) {
    close_if_open(in_);
    close_if_open(out_);
    throw error(errc::out_of_memory, "starting " + options.argv[0] + ": " + std::strerror(why));
  }
  pidfd_ = int(syscall(SYS_pidfd_open, pid_, 0));
}

child& child::operator=(child&& o) noexcept {
  if (this != &o) {
    stop(std::chrono::seconds(5));
    pid_ = std::exchange(o.pid_, -1);
    pidfd_ = std::exchange(o.pidfd_, -1);
    in_ = std::exchange(o.in_, -1);
    out_ = std::exchange(o.out_, -1);
  }
  return *this;
}

bool child::wait(std::chrono::milliseconds within, int& status) noexcept {
  if (pid_ < 0) return true;
  pollfd p{pidfd_, POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + within;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int n = poll(&p, 1, left > 0 ? int(left) : 0);
    if (n > 0) break;
    if (n == 0) return false;
    if (errno != EINTR) return false;
  }
  waitpid(pid_, &status, 0);
  pid_ = -1;
  close_if_open(pidfd_);
  return true;
}

void child::close_in() noexcept { close_if_open(in_); }

void child::stop(std::chrono::milliseconds grace) noexcept {
  close_if_open(in_);
  int status = 0;
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    if (!wait(grace, status)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      pid_ = -1;
      close_if_open(pidfd_);
    }
  }
  close_if_open(out_);
}

std::string own_directory() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || std::size_t(n) >= sizeof path) throw error(errc::not_found, "/proc/self/exe");
  const std::string text(path, std::size_t(n));
  return text.substr(0, text.rfind('/'));
}

}  // namespace fm::bench
