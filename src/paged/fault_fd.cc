// The system calls behind fault_fd.h. Debian 12's headers are older than the kernels that this may run on, so what they
// lack is spelled out here.
#include "fault_fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace fm::detail {

namespace {

constexpr std::uint64_t feature_wp_unpopulated = 1u << 13;  // Linux 6.4, which also brought UFFDIO_CONTINUE_MODE_WP
constexpr std::uint64_t feature_poison = 1u << 14;          // Linux 6.6
constexpr std::uint64_t continue_mode_wp = 1u << 1;
constexpr std::uint64_t guard_bytes = page_bytes;

struct poison_call {
  uffdio_range range;
  std::uint64_t mode;
  std::int64_t updated;
};
const unsigned long poison_request = _IOWR(UFFDIO, 0x08, poison_call);

/// Opens a userfaultfd, by the system call or by the device; -1 with errno.
int open_userfaultfd(bool user_faults_only) {
  const int flags = O_CLOEXEC | O_NONBLOCK;
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
  int fd = static_cast<int>(::syscall(SYS_userfaultfd, flags | (user_faults_only ? UFFD_USER_MODE_ONLY : 0)));
  if (fd >= 0 || errno != EPERM) return fd;
  const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    errno = EPERM;
    return -1;
  }
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
  fd = ::ioctl(device, USERFAULTFD_IOC_NEW, flags);
  const int e = errno;
  ::close(device);
  errno = e;
  return fd;
}

/// Whether a page that is written to a memory file may get a huge one, which makes its neighbours present.
bool is_shmem_huge() noexcept {
  std::array<char, 128> text{};
  const int fd = ::open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;  // a kernel without them
  const ssize_t n = ::read(fd, text.data(), text.size() - 1);
  ::close(fd);
  const std::string_view now(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  return now.find("[never]") == now.npos && now.find("[advise]") == now.npos && now.find("[deny]") == now.npos;
}

}  // namespace

fault_fd::fault_fd(std::uint64_t bytes, fault_mode mode, dirty_tracking tracking) : bytes_(bytes) {
  try {
    open(mode, tracking);
  } catch (...) {
    release();
    throw;
  }
}

void fault_fd::open(fault_mode mode, dirty_tracking tracking) {
  wakes_ = mode == fault_mode::threads;
  tracks_ = tracking == dirty_tracking::write_protect;
  fd_ = open_userfaultfd(mode == fault_mode::sigbus);
  if (fd_ < 0 && errno == EPERM)
    throw error(
        errc::access_denied,
        "userfaultfd: this process may not use it. Let it open /dev/userfaultfd, or give it CAP_SYS_PTRACE, or set the "
        "sysctl vm.unprivileged_userfaultfd=1");
  if (fd_ < 0)
    throw error(errc::unsupported,
                fmt::format("userfaultfd: {}; Linux with CONFIG_USERFAULTFD is needed", std::strerror(errno)));

  // What there is can be asked only once for a descriptor, so another one is asked.
  std::uint64_t offered = 0;
  if (const int asked = open_userfaultfd(mode == fault_mode::sigbus); asked >= 0) {
    uffdio_api api{UFFD_API, 0, 0};
    if (::ioctl(asked, UFFDIO_API, &api) == 0) offered = api.features;
    ::close(asked);
  }
  std::uint64_t wanted = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM;
  if (mode == fault_mode::sigbus) wanted |= UFFD_FEATURE_SIGBUS;
  if ((offered & wanted) != wanted)
    throw error(errc::unsupported,
                fmt::format("userfaultfd offers the features {:#x}, {:#x} are needed: Linux 5.14", offered, wanted));
  if (tracking == dirty_tracking::write_protect) {
    const std::uint64_t protecting = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    if ((offered & (protecting | feature_wp_unpopulated)) != (protecting | feature_wp_unpopulated))
      throw error(errc::unsupported,
                  "userfaultfd of this kernel cannot write-protect shared memory as is needed: Linux 6.4, or "
                  "dirty_tracking::none");
    wanted |= protecting;
  }
  can_poison_ = (offered & feature_poison) != 0;
  wanted |= offered & feature_poison;
  uffdio_api api{UFFD_API, wanted, 0};
  if (::ioctl(fd_, UFFDIO_API, &api) != 0)
    throw error(errc::unsupported,
                fmt::format("userfaultfd with the features {:#x}: {}", wanted, std::strerror(errno)));

  memory_ = ::memfd_create("farmem-paged", MFD_CLOEXEC);
  if (memory_ < 0 || ::ftruncate(memory_, static_cast<off_t>(bytes_)) != 0)
    throw error(errc::out_of_memory, fmt::format("a memory file of {} bytes: {}", bytes_, std::strerror(errno)));
  // Aligned, so that blocks of the range are blocks of the address space.
  constexpr std::uint64_t alignment = 2u << 20;
  void* const p =
      ::mmap(nullptr, bytes_ + 2 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw error(errc::out_of_memory, fmt::format("{} bytes of address space: {}", bytes_, std::strerror(errno)));
  auto* const all = static_cast<std::byte*>(p);
  base_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(all) + guard_bytes, alignment));
  reserved_ = base_ - guard_bytes;
  if (reserved_ != all) ::munmap(all, static_cast<std::size_t>(reserved_ - all));
  if (std::byte* const end = base_ + bytes_ + guard_bytes; end != all + bytes_ + 2 * alignment)
    ::munmap(end, static_cast<std::size_t>(all + bytes_ + 2 * alignment - end));
  if (::mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory_, 0) == MAP_FAILED)
    throw error(errc::out_of_memory, fmt::format("mapping {} bytes: {}", bytes_, std::strerror(errno)));
  // A child would see holes as zeroes, and its writes.
  if (::madvise(base_, bytes_, MADV_DONTFORK) != 0 || ::madvise(base_, bytes_, MADV_DONTDUMP) != 0)
    throw error(errc::unsupported, fmt::format("madvise: {}", std::strerror(errno)));
  ::madvise(base_, bytes_, MADV_NOHUGEPAGE);  // refused where there are no huge pages
  writes_huge_ = is_shmem_huge();
  uffdio_register r{};
  r.range = {reinterpret_cast<std::uintptr_t>(base_), bytes_};
  r.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR;
  if (tracking == dirty_tracking::write_protect) r.mode |= UFFDIO_REGISTER_MODE_WP;
  if (::ioctl(fd_, UFFDIO_REGISTER, &r) != 0)
    throw error(errc::unsupported, fmt::format("userfaultfd: registering {} bytes: {}", bytes_, std::strerror(errno)));
  self_ = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
}

fault_fd::~fault_fd() { release(); }

void fault_fd::release() noexcept {
  if (reserved_) ::munmap(reserved_, bytes_ + 2 * guard_bytes);
  for (const int fd : {self_, fd_, memory_})
    if (fd >= 0) ::close(fd);
}

errc fault_fd::fill(std::uint64_t from, const void* source, std::uint64_t bytes, bool protect) noexcept {
  for (std::uint64_t done = 0; done < bytes;) {
    uffdio_copy c{};
    c.dst = reinterpret_cast<std::uintptr_t>(base_) + from + done;
    c.src = reinterpret_cast<std::uintptr_t>(source) + done;
    c.len = bytes - done;
    c.mode = protect ? UFFDIO_COPY_MODE_WP : 0;
    if (::ioctl(fd_, UFFDIO_COPY, &c) == 0) return errc::ok;
    const int e = errno;
    if (c.copy > 0) done += static_cast<std::uint64_t>(c.copy);
    if (e == ENOMEM || e == ENOSPC) return errc::out_of_memory;
    FM_CHECK(e == EAGAIN || e == EINTR, "userfaultfd refuses to fill a page that should be absent");
  }
  return errc::ok;
}

void fault_fd::take_place() const noexcept {
  (void)::mmap(base_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

// Where written pages may become huge ones they are copied and unmapped again. Nobody writes to them in between.
errc fault_fd::fill_unmapped(std::uint64_t from, const void* source, std::uint64_t bytes) noexcept {
  if (writes_huge_) {
    const errc e = fill(from, source, bytes, tracks_);
    const byte_run all{from, bytes};
    unmap({&all, 1});
    return e;
  }
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pwrite(memory_, static_cast<const std::byte*>(source) + done, bytes - done, static_cast<off_t>(from + done));
    if (n > 0) {
      done += static_cast<std::uint64_t>(n);
    } else if (errno == ENOMEM || errno == ENOSPC) {
      return errc::out_of_memory;
    } else {
      FM_CHECK(errno == EINTR || errno == EAGAIN, "writing to the memory file");
    }
  }
  return errc::ok;
}

bool fault_fd::map(std::uint64_t from, std::uint64_t bytes, bool protect, errc& result) noexcept {
  bool any = false;
  for (std::uint64_t done = 0; done < bytes;) {
    uffdio_continue c{};
    c.range = {reinterpret_cast<std::uintptr_t>(base_) + from + done, bytes - done};
    c.mode = protect ? continue_mode_wp : 0;
    if (::ioctl(fd_, UFFDIO_CONTINUE, &c) == 0) return true;
    const int e = errno;
    if (c.mapped > 0) {
      done += static_cast<std::uint64_t>(c.mapped);
      any = true;
    }
    if (e == ENOMEM) {
      result = errc::out_of_memory;
      return any;
    }
    if (e == EEXIST && c.mapped <= 0) done += page_bytes;
    FM_CHECK(e == EAGAIN || e == EINTR || e == EEXIST, "userfaultfd refuses to map a page that should be present");
  }
  return any;
}

void fault_fd::unprotect(std::uint64_t from, std::uint64_t bytes) noexcept {
  uffdio_writeprotect w{};
  w.range = {reinterpret_cast<std::uintptr_t>(base_) + from, bytes};
  while (::ioctl(fd_, UFFDIO_WRITEPROTECT, &w) != 0)
    FM_CHECK(errno == EAGAIN || errno == EINTR, "userfaultfd refuses to make pages writable");
}

void fault_fd::wake(std::uint64_t from, std::uint64_t bytes) noexcept {
  if (!wakes_) return;
  uffdio_range r{reinterpret_cast<std::uintptr_t>(base_) + from, bytes};
  FM_CHECK(::ioctl(fd_, UFFDIO_WAKE, &r) == 0, "userfaultfd refuses to wake");
}

// A page that was write-protected before it became absent has left a marker of that, which no poison replaces.
bool fault_fd::poison(std::uint64_t from, std::uint64_t bytes) noexcept {
  uffdio_writeprotect w{};
  w.range = {reinterpret_cast<std::uintptr_t>(base_) + from, bytes};
  w.mode = UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
  while (tracks_ && ::ioctl(fd_, UFFDIO_WRITEPROTECT, &w) != 0 && (errno == EAGAIN || errno == EINTR)) {
  }
  poison_call c{};
  c.range = {reinterpret_cast<std::uintptr_t>(base_) + from, bytes};
  int rc = 0;
  do rc = ::ioctl(fd_, poison_request, &c);
  while (rc != 0 && (errno == EAGAIN || errno == EINTR));
  return rc == 0;
}

void fault_fd::advise(std::span<const byte_run> runs, int advice) noexcept {
  constexpr std::size_t at_once = 64;
  std::array<iovec, at_once> v;
  for (std::size_t done = 0; done < runs.size();) {
    const std::size_t n = std::min(at_once, runs.size() - done);
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = {base_ + runs[done + i].from, runs[done + i].bytes};
      total += runs[done + i].bytes;
    }
    // For a process's own memory since Linux 6.13; before that, and when it stops half way, one by one.
    if (n > 1 && self_ >= 0 &&
        ::syscall(SYS_process_madvise, self_, v.data(), n, advice, 0) == static_cast<long>(total)) {
      done += n;
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) {
      int rc = 0;
      do rc = ::madvise(v[i].iov_base, v[i].iov_len, advice);
      while (rc != 0 && (errno == EAGAIN || errno == EINTR));
      FM_CHECK(rc == 0, "madvise on the range");
    }
    done += n;
  }
}

void fault_fd::unmap(std::span<const byte_run> runs) noexcept { advise(runs, MADV_DONTNEED); }

void fault_fd::remove(std::span<const byte_run> runs) noexcept {
  for (const byte_run& r : runs) {
    int rc = 0;
    do
      rc = ::fallocate(memory_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(r.from),
                       static_cast<off_t>(r.bytes));
    while (rc != 0 && errno == EINTR);
    FM_CHECK(rc == 0, "punching a hole into the memory file");
  }
}

void fault_fd::read(std::uint64_t from, void* to, std::uint64_t bytes) const noexcept {
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(memory_, static_cast<std::byte*>(to) + done, bytes - done, static_cast<off_t>(from + done));
    FM_CHECK(n > 0 || (n < 0 && errno == EINTR), "reading the memory file");
    if (n > 0) done += static_cast<std::uint64_t>(n);
  }
}

std::uint64_t fault_fd::present_bytes() const noexcept {
  struct stat st {};
  return ::fstat(memory_, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

}  // namespace fm::detail
