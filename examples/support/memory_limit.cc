// Memory cgroups of both versions; see memory_limit.h.
#include "memory_limit.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace fm::example {

namespace {

bool write_file(const std::string& path, const std::string& value) {
  std::ofstream out(path);
  out << value << std::flush;
  return bool(out);
}

bool has_controller(const std::string& root) {
  std::ifstream in(root + "/cgroup.controllers");
  for (std::string w; in >> w;)
    if (w == "memory") return true;
  return false;
}

/// Where this process is in the hierarchy of `version`, as a path below the mount; empty when unknown.
std::string own_group(int version) {
  std::ifstream in("/proc/self/cgroup");  // lines like 4:memory:/a/b (version 1) and 0::/a/b (version 2)
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (version == 2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos)
      return line.substr(second + 1);
  }
  return {};
}

/// Removes the groups of runs that were killed before they could: empty, and named after a process that is gone.
void remove_leftovers(const std::string& root, const std::string& group_prefix) {
  DIR* d = ::opendir(root.c_str());
  if (d == nullptr) return;
  while (const dirent* e = ::readdir(d)) {
    if (std::strncmp(e->d_name, group_prefix.c_str(), group_prefix.size()) != 0) continue;
    const int pid = std::atoi(e->d_name + group_prefix.size());
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) ::rmdir((root + '/' + e->d_name).c_str());
  }
  ::closedir(d);
}

}  // namespace

memory_limit::memory_limit(const std::string& owner, std::uint64_t bytes) {
  const std::string group_prefix = "farmem-" + owner + '-';
  std::ifstream mounts("/proc/self/mounts");
  std::string unified;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream in(line);
    std::string device, path, type, options;
    in >> device >> path >> type >> options;
    if (type == "cgroup" && (',' + options + ',').find(",memory,") != std::string::npos) {
      root_ = path;
      version_ = 1;
    } else if (type == "cgroup2" && has_controller(path)) {
      unified = path;
    }
  }
  if (version_ == 0 && !unified.empty()) {
    root_ = unified;
    version_ = 2;
  }
  if (version_ == 0) {
    why_ = "no memory cgroup controller is mounted";
    return;
  }
  remove_leftovers(root_, group_prefix);
  if (version_ == 2) write_file(root_ + "/cgroup.subtree_control", "+memory");
  const std::string group = root_ + '/' + group_prefix + std::to_string(::getpid());
  if (::mkdir(group.c_str(), 0755) != 0) {
    why_ = fmt::format("mkdir {}: {}{}", group, std::strerror(errno),
                       ::geteuid() == 0 ? "" : " (only root can make a cgroup there)");
    return;
  }
  const bool limited = version_ == 1 ? write_file(group + "/memory.limit_in_bytes", std::to_string(bytes))
                                     : write_file(group + "/memory.max", std::to_string(bytes));
  // Without swap: memory that the limit pushes out is not to come back from a disk. Not every kernel counts swap.
  if (version_ == 1)
    write_file(group + "/memory.memsw.limit_in_bytes", std::to_string(bytes)),
        write_file(group + "/memory.swappiness", "0");
  else
    write_file(group + "/memory.swap.max", "0");
  before_ = root_ + own_group(version_) + "/cgroup.procs";
  if (!limited || !write_file(group + "/cgroup.procs", std::to_string(::getpid()))) {
    why_ = fmt::format("{} refuses {}", group, limited ? "the process" : "a limit");
    ::rmdir(group.c_str());
    return;
  }
  group_ = group;
}

memory_limit::~memory_limit() { end(); }

void memory_limit::end() {
  if (group_.empty()) return;
  peak_ = peak_bytes();
  const std::string self = std::to_string(::getpid());
  if (!write_file(before_, self)) write_file(root_ + "/cgroup.procs", self);
  ::rmdir(group_.c_str());
  group_.clear();
}

std::uint64_t memory_limit::peak_bytes() const {
  std::uint64_t n = peak_;
  if (!group_.empty()) std::ifstream(group_ + (version_ == 1 ? "/memory.max_usage_in_bytes" : "/memory.peak")) >> n;
  return n;
}

}  // namespace fm::example
