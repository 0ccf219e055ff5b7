// The process that undoes what outlives a process; see limits.h.
#include "base/base.h"
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "limits.h"

namespace fm::bench {

guard::guard(const std::function<void()>& undo) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw error(errc::out_of_memory, "a pipe for a guard process");
  pid_ = fork();
  if (pid_ < 0) {
    close(ends[0]);
    close(ends[1]);
    throw error(errc::out_of_memory, "a guard process");
  }
  if (pid_ == 0) {
    // Out of reach of the terminal's signals, and without any descriptor but the pipe: the write ends of other guards
    // that were inherited would keep those from seeing the end of this program.
    setsid();
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) signal(s, SIG_IGN);
    dup2(ends[0], 0);
    syscall(SYS_close_range, 1U, ~0U, 0U);
    char byte;
    ssize_t n;
    do n = read(0, &byte, 1);
    while (n < 0 && errno == EINTR);
    undo();
    _exit(0);
  }
  close(ends[0]);
  fd_ = ends[1];
}

guard::guard(guard&& o) noexcept : pid_(std::exchange(o.pid_, -1)), fd_(std::exchange(o.fd_, -1)) {}

guard& guard::operator=(guard&& o) noexcept {
  if (this != &o) {
    release();
    pid_ = std::exchange(o.pid_, -1);
    fd_ = std::exchange(o.fd_, -1);
  }
  return *this;
}

void guard::release() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (pid_ > 0) {
    int status;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
}

}  // namespace fm::bench
