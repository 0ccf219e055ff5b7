// The findings of `farmem-agent --doctor` that need no rdma-core: kernel modules, device files, locked memory and huge
// pages; see doctor.h. The devices themselves are examined by the verbs transport, if it can be opened. Nothing on the
// machine is changed.
#include "fabric/doctor.h"
#include "base/limits.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "fabric/transport_table.h"
#include "os/memlock.h"

namespace fm::fabric {
namespace {

using level = finding::level;

std::vector<std::string> names_in(const char* folder) {
  std::vector<std::string> names;
  if (DIR* d = ::opendir(folder)) {
    while (const dirent* e = ::readdir(d))
      if (e->d_name[0] != '.') names.emplace_back(e->d_name);
    ::closedir(d);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// "HugePages_Total" of /proc/meminfo, or another line of it.
std::uint64_t meminfo(std::string_view name) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.size() > name.size() && line.compare(0, name.size(), name) == 0 && line[name.size()] == ':')
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
  return 0;
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void examine_kernel(std::vector<finding>& out) {
  const auto devices = names_in("/sys/class/infiniband");
  if (devices.empty())
    out.push_back(
        {level::wrong, "the kernel has no RDMA device",
         "load the driver of the card (mlx5_ib, irdma, ...), or for trying things out use soft-RoCE: modprobe "
         "rdma_rxe; rdma link add rxe0 type rxe netdev eth0"});
  else
    out.push_back({level::good, fmt::format("RDMA devices: {}", fmt::join(devices, ", ")), {}});
  const auto nodes = names_in("/dev/infiniband");
  const bool has_verbs = std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.starts_with("uverbs"); });
  const bool has_manager = std::find(nodes.begin(), nodes.end(), "rdma_cm") != nodes.end();
  if (!devices.empty() && !has_verbs)
    out.push_back({level::wrong, "/dev/infiniband/uverbs* is missing", "modprobe ib_uverbs"});
  if (!has_manager)
    out.push_back(
        {devices.empty() ? level::note : level::wrong, "/dev/infiniband/rdma_cm is missing", "modprobe rdma_ucm"});
  else if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0)
    out.push_back({level::wrong, "/dev/infiniband/rdma_cm may not be opened by this user",
                   "the package rdma-core has udev rules that allow it; or change its mode"});
}

void examine_memory(std::vector<finding>& out) {
  const os::memlock m = os::memlock_now();
  if (m.unlimited)
    out.push_back({level::good, "locked memory is not limited for this process", {}});
  else
    out.push_back({m.limit_bytes < fabric_limits::locked_bytes_enough ? level::wrong : level::note,
                   fmt::format("locked memory is limited to {} KiB; an agent locks all of its regions that are in use",
                               m.limit_bytes >> 10),
                   os::memlock_fix});
  const std::uint64_t pages = meminfo("HugePages_Total");
  const std::string transparent = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string shared = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (transparent.empty() || transparent.find("[never]") != std::string::npos)
    out.push_back({level::note, "transparent huge pages are off: devices and processors keep more translations",
                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  else
    out.push_back({level::good, fmt::format("transparent huge pages: {}; {} reserved", transparent, pages), {}});
  if (!shared.empty() && shared.find("[never]") != std::string::npos)
    out.push_back({level::note, "regions of an agent that serves shm:// have no transparent huge pages here",
                   "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, and give the agent --huge-pages"});
}

}  // namespace

std::vector<finding> doctor() {
  std::vector<finding> out;
  examine_kernel(out);
  try {
    const transport& verbs = transport_for("verbs", "verbs:");
    out.push_back({level::good, "libfarmem-verbs.so and rdma-core are installed", {}});
    if (verbs.examine) verbs.examine(out);
  } catch (const error& e) {
    out.push_back({level::wrong, "verbs:// cannot be opened", e.what()});
  }
  examine_memory(out);
  return out;
}

bool is_healthy(const std::vector<finding>& findings) noexcept {
  return std::none_of(findings.begin(), findings.end(), [](const finding& f) { return f.is == level::wrong; });
}

std::string readable(const std::vector<finding>& findings) {
  std::string text;
  for (const finding& f : findings) {
    constexpr const char* marks[] = {"ok   ", "note ", "WRONG"};
    text += fmt::format("{}  {}\n", marks[std::size_t(f.is)], f.what);
    if (!f.fix.empty()) text += fmt::format("         {}\n", f.fix);
  }
  text += is_healthy(findings) ? "verbs:// can be used\n" : "verbs:// cannot be used until what is wrong is changed\n";
  return text;
}

}  // namespace fm::fabric
