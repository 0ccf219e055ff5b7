// Memory cgroups of both versions; see limits.h.
#include "base/base.h"
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

namespace fm::bench {
namespace {

struct hierarchy {
  std::string root;
  int version = 0;
};

bool has_word(const std::string& path, const std::string& wanted) {
  std::ifstream in(path);
  for (std::string w; in >> w;) {
    if (w == wanted) return true;
  }
  return false;
}

// Where memory cgroups are made, from the mount table: version 1 if its controller is mounted, else version 2.
hierarchy find_hierarchy() {
  std::ifstream mounts("/proc/self/mounts");
  hierarchy unified;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream in(line);
    std::string device, path, type, options;
    in >> device >> path >> type >> options;
    if (type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) return {path, 1};
    if (type == "cgroup2" && has_word(path + "/cgroup.controllers", "memory")) unified = {path, 2};
  }
  if (unified.version == 0) throw error(errc::unsupported, "no memory cgroup controller is mounted");
  return unified;
}

void write_file(const std::string& path, const std::string& value, bool required) {
  std::ofstream out(path);
  out << value << std::flush;
  if (!out && required) throw error(errc::unsupported, path + ": cannot write " + value + ": " + std::strerror(errno));
}

std::uint64_t read_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t n = 0;
  in >> n;
  return n;
}

// A group can be removed once its last process is reaped, which happens just after the benchmark's own end.
void remove_group(const char* path) {
  for (int attempt = 0; attempt < 500; ++attempt) {
    if (rmdir(path) == 0 || errno == ENOENT) return;
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

memory_cgroup::memory_cgroup(const std::string& name, std::uint64_t limit_bytes) {
  const hierarchy h = find_hierarchy();
  version_ = h.version;
  if (version_ == 2) write_file(h.root + "/cgroup.subtree_control", "+memory", false);
  path_ = h.root + "/farmem-bench-" + std::to_string(getpid()) + "-" + name;
  if (mkdir(path_.c_str(), 0755) != 0)
    throw error(errc::unsupported, "memory cgroup " + path_ + ": " + std::strerror(errno));
  guard_ = guard([path = path_] { remove_group(path.c_str()); });
  const std::string limit = std::to_string(limit_bytes);
  if (version_ == 1) {
    write_file(path_ + "/memory.limit_in_bytes", limit, true);
    write_file(path_ + "/memory.swappiness", "100", false);
  } else {
    write_file(path_ + "/memory.max", limit, true);
    write_file(path_ + "/memory.swap.max", "max", false);
  }
}

std::uint64_t memory_cgroup::used_bytes() const {
  return read_number(path_ + (version_ == 1 ? "/memory.usage_in_bytes" : "/memory.current"));
}

std::uint64_t memory_cgroup::peak_bytes() const {
  return read_number(path_ + (version_ == 1 ? "/memory.max_usage_in_bytes" : "/memory.peak"));
}

}  // namespace fm::bench
