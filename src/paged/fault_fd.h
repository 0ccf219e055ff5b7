// A userfaultfd over one range of a memory file: what the kernel offers, as calls that either do what they say or give
// a typed error.
//
// Invariant: the calls that faults make allocate nothing, so they may run within a handler of SIGBUS. Nothing here
// knows blocks, agents or policies. The files of paged_core call it.
#pragma once

#include "os/os.h"
#include <farmem/paged/options.h>
#include <span>

namespace fm::detail {

/// A run of bytes of the range, relative to its start.
struct byte_run {
  std::uint64_t from;
  std::uint64_t bytes;
};

class fault_fd {
 public:
  /// A range of `bytes` with unmapped pages before and behind it. Throws fm::error: access_denied naming what gives
  /// leave; unsupported naming the kernel that is needed; out_of_memory.
  fault_fd(std::uint64_t bytes, fault_mode mode, dirty_tracking tracking);
  ~fault_fd();
  fault_fd(const fault_fd&) = delete;
  fault_fd& operator=(const fault_fd&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Whether an access can be made to fail without ending the process.
  [[nodiscard]] bool can_poison() const noexcept { return can_poison_; }

  // What follows makes no allocations, and may be called within a handler of SIGBUS. Threads that wait for a page are
  // woken when it becomes present.

  /// Fills absent pages from `source` and maps them, read-only if `protect`. ok or out_of_memory; then some may be
  /// present.
  errc fill(std::uint64_t from, const void* source, std::uint64_t bytes, bool protect) noexcept;
  /// In a child, which has a hole where the range is: nothing else is mapped there.
  void take_place() const noexcept;
  /// Fills absent pages without mapping them.
  errc fill_unmapped(std::uint64_t from, const void* source, std::uint64_t bytes) noexcept;
  /// Maps present pages. Those that are mapped already stay as they are, and who waits for one of them is not woken.
  errc map(std::uint64_t from, std::uint64_t bytes, bool protect) noexcept {
    errc e = errc::ok;
    map(from, bytes, protect, e);
    return e;
  }
  /// The same; gives whether one was not mapped before.
  bool map(std::uint64_t from, std::uint64_t bytes, bool protect, errc& e) noexcept;
  /// Makes mapped pages writable.
  void unprotect(std::uint64_t from, std::uint64_t bytes) noexcept;
  /// Lets threads that wait for one of these pages try again.
  void wake(std::uint64_t from, std::uint64_t bytes) noexcept;
  /// Makes accesses to an absent page fail with SIGBUS. False when the kernel does not do it.
  [[nodiscard]] bool poison(std::uint64_t from, std::uint64_t bytes) noexcept;
  /// Unmaps pages; they stay present. Runs of one call cost one system call where the kernel allows it.
  void unmap(std::span<const byte_run> runs) noexcept;
  /// Makes pages absent and gives their memory back.
  void remove(std::span<const byte_run> runs) noexcept;
  /// Copies present pages out. Unmapped pages stay unmapped.
  void read(std::uint64_t from, void* to, std::uint64_t bytes) const noexcept;
  /// Bytes that are present. A system call.
  [[nodiscard]] std::uint64_t present_bytes() const noexcept;

 private:
  void open(fault_mode mode, dirty_tracking tracking);
  void release() noexcept;
  /// The same advice for many runs.
  void advise(std::span<const byte_run> runs, int advice) noexcept;

  std::byte* reserved_ = nullptr;  ///< guard pages included
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  int memory_ = -1;  ///< the memory file
  int fd_ = -1;
  int self_ = -1;  ///< pidfd of this process
  bool can_poison_ = false;
  bool wakes_ = false;        ///< somebody waits for pages: fault_mode::threads
  bool tracks_ = false;       ///< pages can be write-protected
  bool writes_huge_ = false;  ///< what is written to the file may become more than the pages that were written
};

}  // namespace fm::detail
