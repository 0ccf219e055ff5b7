// Starting farmem-agent and waiting until it serves; see process.h.
#include "base/base.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "process.h"

namespace fm::bench {
namespace {

constexpr auto agent_ready_within = std::chrono::seconds(10);

// Waits for `path` to appear in `directory`, watching it since before the agent was started.
void await_file(int watch, const std::string& path, child& c, const std::string& url) {
  const auto until = std::chrono::steady_clock::now() + agent_ready_within;
  for (;;) {
    if (access(path.c_str(), F_OK) == 0) return;
    int status = 0;
    if (c.wait(std::chrono::milliseconds(0), status))
      throw error(errc::refused, "farmem-agent for " + url + " ended at once, wait status " + std::to_string(status));
    if (std::chrono::steady_clock::now() >= until)
      throw error(errc::timed_out, "farmem-agent for " + url + " is not ready");
    pollfd p{watch, POLLIN, 0};
    char events[4096];
    if (poll(&p, 1, 100) > 0 && read(watch, events, sizeof events) < 0 && errno != EAGAIN)
      throw error(errc::not_found, path + ": " + std::strerror(errno));
  }
}

}  // namespace

std::string agent_binary(const std::string& wanted) {
  std::vector<std::string> candidates{wanted};
  if (const char* named = std::getenv("FARMEM_AGENT")) candidates.emplace_back(named);
  candidates.push_back(own_directory() + "/farmem-agent");
  candidates.push_back(own_directory() + "/../farmem-agent");
  for (const std::string& c : candidates) {
    if (!c.empty() && access(c.c_str(), X_OK) == 0) return c;
  }
  return {};
}

agent::agent(const std::string& binary, const std::string& url, int core, const std::vector<std::string>& more_args)
    : url_(url) {
  const std::string path = agent_binary(binary);
  if (path.empty()) throw error(errc::not_found, "farmem-agent; name it with --agent or FARMEM_AGENT");
  char directory[] = "/tmp/farmem-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr)
    throw error(errc::not_found, std::string("a directory in /tmp: ") + std::strerror(errno));
  directory_ = directory;
  if (url_ == "shm://") url_ = "shm://" + directory_ + "/agent.sock";
  const std::string ready = directory_ + "/ready";
  const int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch < 0 || inotify_add_watch(watch, directory, IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE) < 0)
    throw error(errc::unsupported, std::string("inotify on ") + directory + ": " + std::strerror(errno));
  spawn_options o;
  o.argv = {path, "--listen", url_, "--ready-file", ready, "--admin", directory_ + "/admin.sock"};
  o.argv.insert(o.argv.end(), more_args.begin(), more_args.end());
  o.core = core >= 0 ? core : -2;
  child_ = child(o);
  try {
    await_file(watch, ready, child_, url_);
  } catch (...) {
    close(watch);
    throw;
  }
  close(watch);
  std::ifstream served(
      ready);  // the file is complete when it appears; its first line is the address with the real port
  if (!std::getline(served, url_) || url_.empty()) throw error(errc::refused, ready + " names no address");
}

agent::~agent() {
  if (directory_.empty()) return;
  child_.stop(std::chrono::seconds(5));
  unlink((directory_ + "/ready").c_str());
  unlink((directory_ + "/agent.sock").c_str());
  unlink((directory_ + "/admin.sock").c_str());
  rmdir(directory_.c_str());
}

}  // namespace fm::bench
