// The real agent program as a test has it: started in a directory of its own, waited for by the file that it announces
// itself with, ended by a signal. Every wait has a deadline; whatever a test does, the process is gone afterwards.
#pragma once

#include "support/temporary_folder.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern char** environ;

namespace agent_test {

inline constexpr int wait_ms = 600'000;

/// A program of ours and how it ended. Its standard output and error go to a file.
class process {
 public:
  process(const std::vector<std::string>& arguments, const std::string& output) {
    std::vector<char*> argv, env;
    for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    for (char** e = environ; *e; ++e)  // the machine's own settings are no part of a test
      if (std::strncmp(*e, "FARMEM_AGENT_", 13) != 0 && std::strncmp(*e, "XDG_RUNTIME_DIR=", 16) != 0)
        env.push_back(*e);
    env.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::posix_spawn_file_actions_adddup2(&files, 1, 2);
    REQUIRE(::posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), env.data()) == 0);
    ::posix_spawn_file_actions_destroy(&files);
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process() {
    if (pid_ > 0) end(SIGKILL);
  }
  [[nodiscard]] pid_t id() const { return pid_; }
  /// Only sends it; for a child of the process that started it, which cannot wait for it.
  void send(int signal) const { ::kill(pid_, signal); }
  /// Stops it until SIGCONT; when this returns, none of its threads runs. By the process that started it.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
    REQUIRE(WIFSTOPPED(status));
  }
  /// Waits for its end after sending `signal` (0: none). Its exit code, minus the signal that killed it, or -1000 when it
  /// would not end (it is killed then).
  int end(int signal = 0) {
    if (signal != 0) ::kill(pid_, signal);
    const int fd = int(::syscall(SYS_pidfd_open, pid_, 0));
    pollfd p{fd, POLLIN, 0};
    const bool over = fd >= 0 && ::poll(&p, 1, wait_ms) == 1;
    if (fd >= 0) ::close(fd);
    if (!over) ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (!over) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

inline std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// An agent that serves tcp:// and, unless it is not to, shm://, and has an admin socket.
class live_agent {
 public:
  explicit live_agent(std::vector<std::string> more = {}, bool serves_shm = true)
      : more_(std::move(more)), serves_shm_(serves_shm) {
    start(host() + "0");
  }
  /// Starts the program after its end. It serves the same addresses.
  void start_again() { start(std::string(url("tcp"))); }
  [[nodiscard]] std::string shm() const { return "shm://" + (where / "agent.sock"); }
  [[nodiscard]] std::string admin() const { return where / "admin.sock"; }
  [[nodiscard]] std::string log() const { return where / "log"; }
  [[nodiscard]] const std::string& url(const std::string& scheme) const { return urls.at(scheme == "tcp" ? 0 : 1); }
  /// What `farmem-agent --status --json` prints.
  [[nodiscard]] std::string status() const {
    const std::string to = where / "status";
    ::unlink(to.c_str());
    process p({FARMEM_AGENT, "--status", "--json", "--admin", admin()}, to);
    CHECK(p.end() == 0);
    return text_of(to);
  }

  fm::test::temporary_folder where;
  std::vector<std::string> urls;  ///< tcp, shm if it serves that
  std::unique_ptr<process> program;

 private:
  void start(const std::string& tcp) {
    const int notify = ::inotify_init1(IN_CLOEXEC);
    REQUIRE(notify >= 0);
    REQUIRE(::inotify_add_watch(notify, where.path().c_str(), IN_MOVED_TO) >= 0);
    std::vector<std::string> a{FARMEM_AGENT, "--listen", tcp,           "--ready-file", where / "ready",
                               "--admin",    admin(),    "--log-level", "info"};
    if (serves_shm_) a.insert(a.end(), {"--listen", shm()});
    a.insert(a.end(), more_.begin(), more_.end());
    program = std::make_unique<process>(a, log());
    const int ended = int(::syscall(SYS_pidfd_open, program->id(), 0));
    pollfd either[]{{notify, POLLIN, 0}, {ended, POLLIN, 0}};
    ::poll(either, 2, wait_ms);
    ::close(notify);
    ::close(ended);
    INFO(text_of(log()));
    REQUIRE((either[0].revents & POLLIN) != 0);
    urls.clear();
    std::ifstream in(where / "ready");
    for (std::string line; std::getline(in, line);) urls.push_back(line);
    REQUIRE(urls.size() == (serves_shm_ ? 2 : 1));
  }
  /// An address of this host that nothing else uses, so that the agent finds its port free when it starts again: between
  /// two lives of an agent, the system gives a port of 127.0.0.1 to whoever asks for any.
  static std::string host() {
    static std::atomic<unsigned> agents = 0;
    const auto pid = unsigned(::getpid());
    return "tcp://127." + std::to_string(1 + agents++ % 254) + "." + std::to_string(pid >> 8 & 255) + "." +
           std::to_string(pid & 255) + ":";
  }

  std::vector<std::string> more_;
  bool serves_shm_;
};

}  // namespace agent_test
