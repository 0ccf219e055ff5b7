// A child process that is to end with a message: the mistakes that a debug build ends the program for. Not under the thread
// sanitizer, which does not follow a fork of a process with threads.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <string>

namespace fm::test {

struct ended_child {
  bool by_signal = false;
  std::string text;  ///< what it has said on stderr
};

/// Runs `f` in a child and waits for its end. A child in which `f` returns ends by itself, without a signal.
template <class F>
ended_child run_in_child(F&& f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    ::signal(SIGABRT, SIG_DFL);
    f();
    ::_exit(0);
  }
  ::close(ends[1]);
  ended_child out;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) out.text.append(buffer, std::size_t(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  out.by_signal = WIFSIGNALED(status);
  return out;
}

}  // namespace fm::test
