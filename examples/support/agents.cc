// Starting, awaiting and stopping agents; see agents.h.
#include "agents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <farmem/base.h>
#include <filesystem>
#include <sstream>

#ifndef FARMEM_AGENT_BESIDE
#define FARMEM_AGENT_BESIDE "../farmem-agent"
#endif

namespace fm::example {

namespace {

using namespace std::chrono_literals;
constexpr auto ready_within = 20s;
constexpr auto end_within = 10s;

int milliseconds_until(time_point t) {
  return int(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(t - clock::now()).count()));
}

std::string find_program(const std::string& wanted) {
  std::vector<std::string> candidates;
  if (!wanted.empty()) {
    candidates = {wanted};
  } else {
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec).parent_path();
    if (!ec) {
      candidates.push_back((self / FARMEM_AGENT_BESIDE).string());
      candidates.push_back((self / "farmem-agent").string());
    }
    std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
    for (std::string part; std::getline(path, part, ':');) candidates.push_back(part + "/farmem-agent");
  }
  for (const std::string& c : candidates)
    if (::access(c.c_str(), X_OK) == 0) return c;
  throw error(errc::not_found,
              wanted.empty() ? "the program farmem-agent, beside this one or in PATH; name it with --agent" : wanted);
}

/// Reads one line from `fd`, which the agent closes after it; empty when the agent ended before.
std::string read_line(int fd, time_point deadline) {
  std::string text;
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    const int left = milliseconds_until(deadline);
    if (left == 0) throw error(errc::timed_out, "an agent that does not say that it is ready");
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

agent_processes::agent_processes(const agent_options& options) {
  const std::string program = find_program(options.program);
  const char* base = std::getenv("TMPDIR");
  directory_ = fmt::format("{}/farmem-{}-XXXXXX", base != nullptr && *base != 0 ? base : "/tmp", options.owner);
  if (::mkdtemp(directory_.data()) == nullptr)
    throw error(errc::refused, fmt::format("a directory {}: {}", directory_, std::strerror(errno)));
  try {
    for (unsigned i = 0; i < options.count; ++i) {
      const std::string url = options.transport == "shm" ? fmt::format("shm://{}/agent-{}.sock", directory_, i)
                                                         : fmt::format("{}://{}:0", options.transport, options.address);
      start(program, url, options, i);
    }
  } catch (...) {
    stop();
    throw;
  }
}

agent_processes::~agent_processes() { stop(); }

void agent_processes::start(const std::string& program, const std::string& url, const agent_options& options,
                            unsigned number) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) throw error(errc::out_of_memory, fmt::format("a pipe: {}", std::strerror(errno)));
  std::vector<std::string> words = {program,
                                    "--listen",
                                    url,
                                    "--memory",
                                    std::to_string(options.memory_bytes),
                                    "--admin",
                                    fmt::format("{}/admin-{}.sock", directory_, number),
                                    "--name",
                                    fmt::format("{}-{}", options.owner, number),
                                    "--log-level",
                                    "warning",
                                    "--ready-fd",
                                    "3"};
  if (options.transport == "verbs") words.emplace_back("--insecure");  // an address of RDMA is never a loopback one
  if (options.region_bytes != 0) {
    words.emplace_back("--region");
    words.push_back(std::to_string(options.region_bytes));
  }
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {  // only system calls from here to exec
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    ::setpgid(0, 0);  // Ctrl-C is for the program that started it
    if (ready[1] == 3)
      ::fcntl(3, F_SETFD, 0);
    else if (::dup2(ready[1], 3) != 3)
      ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ready[1]);
  if (pid < 0) {
    ::close(ready[0]);
    throw error(errc::out_of_memory, fmt::format("starting {}: {}", program, std::strerror(errno)));
  }
  pids_.push_back(pid);
  std::string served;
  try {
    served = read_line(ready[0], clock::now() + ready_within);
  } catch (...) {
    ::close(ready[0]);
    throw;
  }
  ::close(ready[0]);
  if (served.empty()) throw error(errc::refused, fmt::format("{} for {} ended before it was ready", program, url));
  urls_.push_back(served);
}

void agent_processes::stop() noexcept {
  for (const pid_t pid : pids_) ::kill(pid, SIGTERM);
  const time_point deadline = clock::now() + end_within;
  for (const pid_t pid : pids_) {
    const int fd = int(::syscall(SYS_pidfd_open, pid, 0));
    pollfd p{fd, POLLIN, 0};
    if (fd < 0 || ::poll(&p, 1, milliseconds_until(deadline)) <= 0) ::kill(pid, SIGKILL);
    if (fd >= 0) ::close(fd);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pids_.clear();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  directory_.clear();
}

}  // namespace fm::example
