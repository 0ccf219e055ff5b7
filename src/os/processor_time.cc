// Processor time by /proc and the process's clock; see processor_time.h.
#include "os/processor_time.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <dirent.h>
#include <memory>
#include <sched.h>
#include <thread>

namespace fm::os {

namespace {

struct closes_file {
  void operator()(std::FILE* f) const noexcept { (void)std::fclose(f); }
};
struct closes_folder {
  void operator()(DIR* d) const noexcept { (void)::closedir(d); }
};
using file = std::unique_ptr<std::FILE, closes_file>;

/// "ran waited times"; a kernel without scheduler statistics has no such file, or zeros in it.
std::uint64_t waited_by(const char* thread) noexcept {
  char path[64];
  if (std::snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread) >= static_cast<int>(sizeof path))
    return 0;
  const file f(std::fopen(path, "re"));
  unsigned long long ran = 0, waited = 0;
  return f != nullptr && std::fscanf(f.get(), "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

}  // namespace

processor_times processor_times_of_process() noexcept {
  processor_times t;
  timespec ran{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ran) == 0)
    t.ran_ns = static_cast<std::uint64_t>(ran.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(ran.tv_nsec);
  const std::unique_ptr<DIR, closes_folder> threads(::opendir("/proc/self/task"));
  while (const dirent* one = threads != nullptr ? ::readdir(threads.get()) : nullptr)
    if (one->d_name[0] != '.') t.waited_ns += waited_by(one->d_name);
  return t;
}

double usable_processors() noexcept {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  double n = ::sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : std::thread::hardware_concurrency();
  unsigned long long quota = 0, period = 0;  // "max 100000" where there is no limit
  const file f(std::fopen("/sys/fs/cgroup/cpu.max", "re"));
  if (f != nullptr && std::fscanf(f.get(), "%llu %llu", &quota, &period) == 2 && quota != 0 && period != 0)
    n = std::min(n, static_cast<double>(quota) / static_cast<double>(period));
  return n > 0 ? n : 1;
}

}  // namespace fm::os
