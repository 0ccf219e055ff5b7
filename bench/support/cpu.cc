// CPU time and pinning; see cpu.h.
#include "cpu.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace fm::bench {
namespace {

double seconds(const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; }

double usage(int who) {
  rusage u{};
  getrusage(who, &u);
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

}  // namespace

double cpu_seconds(pid_t pid) {
  if (pid == 0) return usage(RUSAGE_SELF) + usage(RUSAGE_CHILDREN);
  // The process's CPU clock has nanoseconds where /proc/PID/stat has ticks of 10 ms.
  clockid_t clock_of_process;
  timespec t{};
  if (clock_getcpuclockid(pid, &clock_of_process) != 0 || clock_gettime(clock_of_process, &t) != 0) return 0;
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

double cpu_seconds_with(const std::vector<pid_t>& others) {
  double sum = cpu_seconds(0);
  for (const pid_t pid : others) sum += cpu_seconds(pid);
  return sum;
}

bool pin_to_core(pid_t pid, int core) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(pid, sizeof set, &set) == 0;
}

void use_all_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core = 0; core < core_count(); ++core) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

int core_count() noexcept { return int(sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace fm::bench
