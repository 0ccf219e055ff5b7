// A limit on this process's own memory, enforced by the kernel: a memory cgroup (version 1 or 2) that the process moves
// into. Its agents stay outside: they stand for other machines. What the kernel counts is private memory, page tables,
// and the page cache of what was read (which it drops first). Regions that an agent shares over shm:// are charged to the
// agent, which commits them.
#pragma once

#include <cstdint>
#include <string>

namespace fm::example {

class memory_limit {
 public:
  /// Makes the group and moves the process in. When the machine does not allow that, enforced() is false and why() says what
  /// was missing; nothing is thrown, because the heap keeps to its cache size by itself.
  /// `owner` is the program's name, a part of the group's.
  memory_limit(const std::string& owner, std::uint64_t bytes);
  ~memory_limit();
  memory_limit(const memory_limit&) = delete;
  memory_limit& operator=(const memory_limit&) = delete;

  [[nodiscard]] bool enforced() const noexcept { return !group_.empty(); }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] const std::string& group() const noexcept { return group_; }
  [[nodiscard]] int version() const noexcept { return version_; }
  /// Moves the process back and removes the group: what follows is not limited. Idempotent.
  void end();

  /// The most that the kernel has charged to the process so far, bytes; 0 when it does not say.
  [[nodiscard]] std::uint64_t peak_bytes() const;

 private:
  std::string root_, group_, before_, why_;
  int version_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace fm::example
