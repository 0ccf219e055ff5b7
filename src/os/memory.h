// Address space and memory files. A reservation is address space without memory; pages appear when touched and go
// back with discard. A memory_file is a memfd: memory that can be shared with another process by its descriptor.
//
// Invariant: both own what they have mapped and unmap it in their destructors. A memory_file that came from another
// process is sealed against shrinking, so that its mapping cannot be made to fault. Any layer above may use both.
#pragma once

#include "base/base.h"
#include <utility>

namespace fm::os {

/// Reserved address space, zero-filled on first touch, not counted against overcommit. In small pages until huge ones are asked
/// for, whatever the system's default is: who touches a little here and there would have 2 MiB for each place.
class reservation {
 public:
  reservation() = default;
  /// Reserves `bytes`, rounded up to pages, aligned to `alignment` (a power of two). Throws fm::error
  /// (out_of_memory) naming the size.
  reservation(std::uint64_t bytes, std::uint64_t alignment);
  ~reservation();
  reservation(reservation&& o) noexcept : base_(std::exchange(o.base_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  reservation& operator=(reservation&& o) noexcept {
    std::swap(base_, o.base_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// The mapping stays until the process ends; this names nothing afterwards.
  void abandon() noexcept { base_ = nullptr; }

  /// Gives whole pages back; they read as zero afterwards. O(pages), a system call.
  static void discard(void* from, std::uint64_t bytes) noexcept;
  /// Asks the kernel to back the range with huge pages where it can.
  static void prefer_huge_pages(void* from, std::uint64_t bytes) noexcept;
  /// Asks the kernel not to back the range with huge pages, where it knows of them: as at first.
  static void keep_small_pages(void* from, std::uint64_t bytes) noexcept;
  /// Whether core dumps have the range. A reservation is in none until it is asked for.
  static void set_dumped(void* from, std::uint64_t bytes, bool dumped) noexcept;

 private:
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

constexpr std::uint64_t huge_page_bytes = 2ull << 20;
/// Whether the kernel backs shared memory with huge pages where it is asked to. Reads /sys.
bool shared_huge_pages();

/// Maps whole pages for writing ahead of use; their bytes stay as they are. A hint: false on kernels before 5.14.
bool map_pages(std::byte* base, std::uint64_t bytes) noexcept;

/// Who writes a memory file: all who have it, or only the mapping of its maker.
enum class written_by : std::uint8_t { all, maker };

/// A memfd and its mapping in this process; or such memory without a file.
class memory_file {
 public:
  memory_file() = default;
  /// Creates one of `bytes`. If only its maker may write it, nobody who gets the descriptor can write the file or map it
  /// for writing; needs Linux 5.1, see is_sealed(). Throws fm::error (out_of_memory) naming `name` and the size.
  memory_file(const char* name, std::uint64_t bytes, written_by who = written_by::all);
  /// Maps a descriptor that came from elsewhere and takes it over, for reading only if its maker alone writes it.
  /// Checks that the file really has `bytes`, and that it is sealed against shrinking, so that the mapping cannot be made
  /// to fault. Throws fm::error (invalid_argument), also when `who` is all and the file cannot be written.
  static memory_file adopt(int fd, std::uint64_t bytes, written_by who = written_by::all);
  /// Memory that no other process can map, so it needs no file: fd() is -1. The kernel backs it with huge pages where it
  /// does so on request, which it seldom does for a file. All of its pages are there, and zero. Throws fm::error
  /// (out_of_memory) naming the size. O(pages).
  static memory_file unshared(std::uint64_t bytes);
  ~memory_file();
  memory_file(memory_file&& o) noexcept
      : base_(std::exchange(o.base_, nullptr)), bytes_(std::exchange(o.bytes_, 0)), fd_(std::exchange(o.fd_, -1)) {}
  memory_file& operator=(memory_file&& o) noexcept {
    std::swap(base_, o.base_);
    std::swap(bytes_, o.bytes_);
    std::swap(fd_, o.fd_);
    return *this;
  }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Lets go of the file. Its addresses stay as they are, with memory that is zero and nobody else's, so whoever still
  /// reads or writes there does no harm. False: the system cannot, and nothing has changed.
  bool forget_file() noexcept;
  /// Gives its pages back to the system, also those that others have mapped: it is zero from here on. A file that only its
  /// maker may write keeps them.
  void drop_pages() noexcept;
  /// Nobody but who has mapped it for writing already can write it.
  [[nodiscard]] bool is_sealed() const noexcept;

 private:
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  int fd_ = -1;
};

/// Resident bytes of this process (VmRSS), and of shared file mappings alone (RssShmem). Reads /proc.
struct resident_memory {
  std::uint64_t total_bytes = 0;
  std::uint64_t shared_bytes = 0;
};
resident_memory resident_memory_of(int pid = 0);

}  // namespace fm::os
