// The line protocol between a benchmark and its workers; see process.h.
#include "base/base.h"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"

namespace fm::bench {
namespace {

constexpr const char* worker_flag = "--worker";

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

void answer(const figures& f) {
  std::string line = "ok";
  char text[64];
  for (const auto& [key, value] : f) {
    std::snprintf(text, sizeof text, "=%.9g", value);
    line += " " + key + text;
  }
  std::cout << line << std::endl;
}

}  // namespace

worker::worker(const std::string& name, const std::vector<std::string>& args, int core, const std::string& cgroup_procs,
               std::chrono::seconds ready_within)
    : name_(name) {
  spawn_options o;
  o.argv = {"/proc/self/exe", worker_flag, name};
  o.argv.insert(o.argv.end(), args.begin(), args.end());
  o.core = core;
  o.cgroup_procs = cgroup_procs;
  o.pipes = true;
  child_ = child(o);
  ready_ = answer("start", ready_within);
}

void worker::finish(std::chrono::milliseconds within) noexcept {
  child_.close_in();
  int status = 0;
  child_.wait(within, status);
}

void worker::post(const std::string& command) {
  const std::string line = command + "\n";
  if (send(child_.in(), line.data(), line.size(), MSG_NOSIGNAL) != ssize_t(line.size()))
    throw error(errc::disconnected, "worker " + name_ + " is gone before '" + command + "'");
}

figures worker::answer(const std::string& what, std::chrono::seconds within) {
  const auto until = std::chrono::steady_clock::now() + within;
  std::size_t end;
  while ((end = buffered_.find('\n')) == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd p{child_.out(), POLLIN, 0};
    const int n = left > 0 ? poll(&p, 1, int(left)) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw error(errc::timed_out, "worker " + name_ + " during '" + what + "'");
    char chunk[4096];
    const ssize_t got = read(child_.out(), chunk, sizeof chunk);
    if (got <= 0) {
      int status = 0;
      child_.wait(std::chrono::seconds(5), status);
      throw error(errc::disconnected,
                  "worker " + name_ + " ended during '" + what + "', wait status " + std::to_string(status));
    }
    buffered_.append(chunk, std::size_t(got));
  }
  const std::string line = buffered_.substr(0, end);
  buffered_.erase(0, end + 1);
  const std::vector<std::string> words = words_of(line);
  if (words.empty() || words[0] != "ok")
    throw error(errc::refused, "worker " + name_ + " during '" + what + "': " + line);
  figures f;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t eq = words[i].find('=');
    if (eq != std::string::npos) f[words[i].substr(0, eq)] = std::strtod(words[i].c_str() + eq + 1, nullptr);
  }
  return f;
}

void become_worker_if_asked(int argc, char** argv, const std::vector<std::pair<std::string, worker_main>>& workers) {
  if (argc < 3 || std::strcmp(argv[1], worker_flag) != 0) return;
  for (const auto& [name, run] : workers) {
    if (name != argv[2]) continue;
    try {
      std::exit(run(std::vector<std::string>(argv + 3, argv + argc)));
    } catch (const std::exception& e) {
      std::cout << "error " << e.what() << std::endl;
      std::exit(1);
    }
  }
  std::fprintf(stderr, "no worker named %s\n", argv[2]);
  std::exit(2);
}

int serve_commands(const figures& ready, const std::function<figures(const std::vector<std::string>&)>& handle) {
  answer(ready);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(handle(words_of(line)));
    } catch (const std::exception& e) {
      std::cout << "error " << e.what() << std::endl;
    }
  }
  return 0;
}

}  // namespace fm::bench
