// What the operating system enforces or lends for a comparison: a memory limit on a process, and swap on a RAM disk.
//
// Both outlive neither the benchmark nor its crash: a guard process, which only waits for the benchmark to end in
// whatever way, undoes them. Create them before the first thread and before large data, because guards are forked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

namespace fm::bench {

/// Runs `undo` in a process of its own when the guard is destroyed or this process is gone, even by SIGKILL.
class guard {
 public:
  guard() = default;
  explicit guard(const std::function<void()>& undo);
  ~guard() { release(); }
  guard(guard&& o) noexcept;
  guard& operator=(guard&& o) noexcept;
  /// Undoes now and waits until it is done.
  void release() noexcept;

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

/// A memory cgroup (version 1 or 2, whichever the machine has) with a limit on memory and none on swap.
class memory_cgroup {
 public:
  /// Throws fm::error (unsupported) naming what is missing: a controller, or the right to create a group.
  memory_cgroup(const std::string& name, std::uint64_t limit_bytes);
  memory_cgroup(memory_cgroup&&) noexcept = default;

  /// The file that a child writes itself into; for spawn_options::cgroup_procs.
  [[nodiscard]] std::string procs() const { return path_ + "/cgroup.procs"; }
  [[nodiscard]] int version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t used_bytes() const;
  [[nodiscard]] std::uint64_t peak_bytes() const;

 private:
  std::string path_;
  int version_ = 0;
  guard guard_;
};

/// The kernel's swap on a RAM disk: a file on a ramfs, a loop device on it, swap on that. Read-ahead is set to
/// `page_cluster` (pages are 2 to that power) while it exists; 0 suits scattered accesses.
class ram_swap {
 public:
  /// Throws fm::error (unsupported) naming the step that this machine refuses.
  ram_swap(std::uint64_t bytes, int page_cluster);
  ram_swap(ram_swap&&) noexcept = default;

 private:
  guard guard_;
};

}  // namespace fm::bench
