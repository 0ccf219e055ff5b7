// Reading the limit on locked memory and its use from the kernel; see memlock.h. Keeps no state.
#include "memlock.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fm::os {
namespace {

/// A line of /proc/self/status: a number in the given base, 0 when it is not there.
std::uint64_t status_value(const char* name, int base) noexcept {
  std::FILE* f = std::fopen("/proc/self/status", "re");
  if (f == nullptr) return 0;
  char line[256];
  std::uint64_t value = 0;
  const std::size_t n = std::strlen(name);
  while (std::fgets(line, sizeof line, f) != nullptr)
    if (std::strncmp(line, name, n) == 0 && line[n] == ':') value = std::strtoull(line + n + 1, nullptr, base);
  std::fclose(f);
  return value;
}

constexpr int capability_ipc_lock = 14;

}  // namespace

memlock memlock_now() noexcept {
  memlock m;
  rlimit limit{};
  m.unlimited = (status_value("CapEff", 16) >> capability_ipc_lock & 1) != 0 ||
                ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  m.limit_bytes = std::uint64_t(limit.rlim_cur);
  m.locked_bytes = (status_value("VmLck", 10) + status_value("VmPin", 10)) << 10;
  return m;
}

}  // namespace fm::os
