// Reading /proc/self/status now and then; see memory_watch.h.
#include "memory_watch.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <fstream>
#include <string>

#include "machine.h"

namespace fm::example {

namespace {

using namespace fm::literals;

constexpr std::int64_t interval_ns = 5'000'000;
/// What may be used between two looks, and what the kernel charges for pages that the process shares.
constexpr std::uint64_t margin_bytes = 6_MiB;

}  // namespace

std::uint64_t used_bytes() {
  std::ifstream in("/proc/self/status");
  std::uint64_t bytes = 0;
  for (std::string key; in >> key; in.ignore(4096, '\n')) {
    std::uint64_t kib = 0;
    if ((key == "RssAnon:" || key == "VmPTE:") && in >> kib) bytes += kib << 10;
  }
  return bytes;
}

void memory_watch::check() const {
  const std::int64_t now = clock::now().time_since_epoch().count();
  std::int64_t next = next_ns_.load(std::memory_order_relaxed);
  if (now < next || !next_ns_.compare_exchange_strong(next, now + interval_ns, std::memory_order_relaxed)) return;
  std::uint64_t used = used_bytes();
  if (local_bytes_ != 0 && used + margin_bytes > local_bytes_) {
    ::malloc_trim(0);
    used = used_bytes();
  }
  if (used > most_.load(std::memory_order_relaxed)) most_.store(used, std::memory_order_relaxed);
  if (local_bytes_ != 0 && used + margin_bytes > local_bytes_)
    throw error(
        errc::out_of_memory,
        fmt::format("{} of {} of local memory are in use, which is more than was planned: give it --local {}MiB",
                    mib(used), mib(local_bytes_), (used + used / 4) / 1_MiB + 1));
}

}  // namespace fm::example
