// The system calls behind reservations and memory files; see memory.h.
//
// Invariant: a mapping that fails is an fm::error that names the size; advice that the kernel does not take is no
// error.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"
#include <cerrno>
#include <cstring>
#include <fstream>

namespace fm::os {

reservation::reservation(std::uint64_t bytes, std::uint64_t alignment) {
  bytes = detail::round_up(bytes, detail::page_bytes);
  if (alignment < detail::page_bytes) alignment = detail::page_bytes;
  const std::uint64_t slack = alignment == detail::page_bytes ? 0 : alignment;
  void* p = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw error(errc::out_of_memory,
                fmt::format("reserving {} bytes of address space: {}", bytes, std::strerror(errno)));
  auto* raw = static_cast<std::byte*>(p);
  auto* aligned = reinterpret_cast<std::byte*>(detail::round_up(reinterpret_cast<std::uintptr_t>(raw), alignment));
  if (aligned != raw) ::munmap(raw, std::size_t(aligned - raw));
  if (const auto tail = std::size_t(raw + bytes + slack - (aligned + bytes)); tail != 0)
    ::munmap(aligned + bytes, tail);
  set_dumped(aligned, bytes, false);
  keep_small_pages(aligned, bytes);
  base_ = aligned;
  bytes_ = bytes;
}

reservation::~reservation() {
  if (base_) ::munmap(base_, bytes_);
}

void reservation::discard(void* from, std::uint64_t bytes) noexcept {
  const auto begin = detail::round_up(reinterpret_cast<std::uintptr_t>(from), detail::page_bytes);
  const auto end = detail::round_down(reinterpret_cast<std::uintptr_t>(from) + bytes, detail::page_bytes);
  if (end > begin) FM_CHECK(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) == 0, "madvise");
}

void reservation::prefer_huge_pages(void* from, std::uint64_t bytes) noexcept {
  [[maybe_unused]] const int done = ::madvise(from, bytes, MADV_HUGEPAGE);  // a wish
}

void reservation::keep_small_pages(void* from, std::uint64_t bytes) noexcept {
  // A kernel without huge pages refuses, and has done what was asked.
  [[maybe_unused]] const int done = ::madvise(from, bytes, MADV_NOHUGEPAGE);
}

void reservation::set_dumped(void* from, std::uint64_t bytes, bool dumped) noexcept {
  // A kernel that has no room for another mapping refuses: a dump then has more, or less, than was asked for.
  [[maybe_unused]] const int done = ::madvise(from, bytes, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

bool map_pages(std::byte* base, std::uint64_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  constexpr int populate_write = MADV_POPULATE_WRITE;
#else
  constexpr int populate_write = 23;
#endif
  return ::madvise(base, bytes, populate_write) == 0;
}

bool shared_huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string choices;  // "always within_size advise [never] deny force"
  return std::getline(in, choices) && choices.find("[never]") == std::string::npos &&
         choices.find("[deny]") == std::string::npos;
}

namespace {

#ifdef F_SEAL_FUTURE_WRITE
constexpr int seal_writes = F_SEAL_FUTURE_WRITE;
#else
constexpr int seal_writes = 0x10;
#endif

}  // namespace

memory_file::memory_file(const char* name, std::uint64_t bytes, written_by who) {
  bytes = detail::round_up(bytes, detail::page_bytes);
  const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int e = errno;
    if (fd >= 0) ::close(fd);
    throw error(errc::out_of_memory, fmt::format("memory file {} of {} bytes: {}", name, bytes, std::strerror(e)));
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    const int e = errno;
    ::close(fd);
    throw error(errc::out_of_memory,
                fmt::format("mapping memory file {} of {} bytes: {}", name, bytes, std::strerror(e)));
  }
  // Its own mapping is there, and stays writable. A kernel before 5.1 refuses the seal, and is_sealed() says so.
  if (who == written_by::maker) ::fcntl(fd, F_ADD_SEALS, seal_writes);
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  base_ = static_cast<std::byte*>(p);
  bytes_ = bytes;
  fd_ = fd;
}

memory_file memory_file::unshared(std::uint64_t bytes) {
  bytes = detail::round_up(bytes, detail::page_bytes);
  const bool huge = bytes >= huge_page_bytes;
  reservation space(bytes, huge ? huge_page_bytes : detail::page_bytes);
  if (huge) reservation::prefer_huge_pages(space.base(), bytes);
  if (!map_pages(space.base(), bytes)) {
    if (errno != EINVAL)
      throw error(errc::out_of_memory, fmt::format("memory of {} bytes: {}", bytes, std::strerror(errno)));
    for (std::uint64_t at = 0; at < bytes; at += detail::page_bytes)  // Linux before 5.14
      *static_cast<volatile std::byte*>(space.base() + at) = std::byte{};
  }
  memory_file f;
  f.base_ = space.base();
  f.bytes_ = bytes;
  space.abandon();
  return f;
}

bool memory_file::is_sealed() const noexcept {
  const int seals = ::fcntl(fd_, F_GET_SEALS);
  return seals >= 0 && (seals & (seal_writes | F_SEAL_WRITE)) != 0;
}

memory_file memory_file::adopt(int fd, std::uint64_t bytes, written_by who) {
  memory_file f;
  f.fd_ = fd;
  struct stat st {};
  if (fd < 0 || ::fstat(fd, &st) != 0 || st.st_size < 0 || static_cast<std::uint64_t>(st.st_size) != bytes)
    throw error(errc::invalid_argument, fmt::format("descriptor {} is no memory file of {} bytes", fd, bytes));
  if (const int seals = ::fcntl(fd, F_GET_SEALS); seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    throw error(errc::invalid_argument, fmt::format("memory file {} can shrink: not sealed", fd));
  if (who == written_by::all && f.is_sealed())
    throw error(errc::invalid_argument, fmt::format("memory file {} cannot be written: sealed", fd));
  void* p = ::mmap(nullptr, bytes, who == written_by::all ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    throw error(errc::out_of_memory, fmt::format("mapping {} bytes: {}", bytes, std::strerror(errno)));
  f.base_ = static_cast<std::byte*>(p);
  f.bytes_ = bytes;
  return f;
}

void memory_file::drop_pages() noexcept {
  // The kernel refuses that for a sealed file, which keeps its pages as long as it is mapped.
  if (fd_ >= 0)
    static_cast<void>(::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_)));
}

bool memory_file::forget_file() noexcept {
  if (!base_ || ::mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                       -1, 0) == MAP_FAILED)
    return false;
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  return true;
}

memory_file::~memory_file() {
  if (base_) ::munmap(base_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

resident_memory resident_memory_of(int pid) {
  std::ifstream in(pid == 0 ? std::string("/proc/self/status") : fmt::format("/proc/{}/status", pid));
  resident_memory m;
  std::string key;
  while (in >> key) {
    std::uint64_t kib = 0;
    if (key == "VmRSS:" && in >> kib) m.total_bytes = kib << 10;
    if (key == "RssShmem:" && in >> kib) m.shared_bytes = kib << 10;
    in.ignore(4096, '\n');
  }
  return m;
}

}  // namespace fm::os
