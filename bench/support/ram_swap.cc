// Swap on a RAM disk, made with the system calls behind losetup, mkswap and swapon; see limits.h.
//
// The file lies in a ramfs of its own, which is unmounted as soon as the file is open, and the loop device clears itself with
// its last user, so that swapoff is all that a guard has to do. Not in a tmpfs: its pages can themselves be swapped, by
// a kernel that reclaims of its own accord even into this very file, which then waits for itself.
#include "base/base.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/swap.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "limits.h"

namespace fm::bench {
namespace {

constexpr const char* page_cluster_file = "/proc/sys/vm/page-cluster";

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void refuse(const std::string& step) {
  throw error(errc::unsupported, "swap on a RAM disk: " + step + ": " + std::strerror(errno));
}

descriptor file_on_ramfs(std::uint64_t bytes) {
  std::string directory = "/tmp/farmem-bench-swap-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) refuse(directory);
  if (mount("ramfs", directory.c_str(), "ramfs", 0, nullptr) != 0) {
    const int why = errno;
    rmdir(directory.c_str());
    errno = why;
    refuse("mounting a ramfs");
  }
  descriptor file(open((directory + "/swap").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int why = errno;
  umount2(directory.c_str(), MNT_DETACH);
  rmdir(directory.c_str());
  errno = why;
  if (file.get() < 0) refuse("a file on ramfs");
  // All pages now: later they would be charged to whoever swaps, and allocated while it is measured.
  const std::vector<char> zeroes(1 << 20);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t n = write(file.get(), zeroes.data(), std::min<std::uint64_t>(zeroes.size(), bytes - at));
    if (n <= 0) refuse("a file of " + std::to_string(bytes) + " bytes on ramfs");
    at += std::uint64_t(n);
  }
  return file;
}

// The header that mkswap writes: version 1, the number of the last page, no bad pages, the signature.
void write_swap_header(int device, std::uint64_t bytes) {
  alignas(8) unsigned char page[4096] = {};
  const std::uint32_t info[3] = {1, std::uint32_t(bytes / sizeof page - 1), 0};
  std::memcpy(page + 1024, info, sizeof info);
  std::memcpy(page + sizeof page - 10, "SWAPSPACE2", 10);
  if (pwrite(device, page, sizeof page, 0) != ssize_t(sizeof page) || fsync(device) != 0) refuse("the swap header");
}

std::pair<std::string, descriptor> attach_loop(int file) {
  const descriptor control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (control.get() < 0) refuse("/dev/loop-control");
  for (int attempt = 0; attempt < 16; ++attempt) {  // another process may take the free device first
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) refuse("a free loop device");
    const std::string path = "/dev/loop" + std::to_string(number);
    descriptor d(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (d.get() < 0) refuse(path);
    loop_config config{};
    config.fd = __u32(file);
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(d.get(), LOOP_CONFIGURE, &config) == 0) return {path, std::move(d)};
    if (errno != EBUSY) refuse(path);
  }
  refuse("a free loop device");
}

int exchange_page_cluster(int value) {
  std::ifstream in(page_cluster_file);
  int before = 3;
  in >> before;
  std::ofstream out(page_cluster_file);
  out << value << std::flush;
  if (!out) refuse(page_cluster_file);
  return before;
}

}  // namespace

ram_swap::ram_swap(std::uint64_t bytes, int page_cluster) {
  if (geteuid() != 0) {
    errno = EPERM;
    refuse("swapon needs root");
  }
  const descriptor file = file_on_ramfs(bytes);
  const auto [path, device] = attach_loop(file.get());
  write_swap_header(device.get(), bytes);
  const int before = exchange_page_cluster(page_cluster);
  guard_ = guard([device_path = path, before] {
    // Its pages belong to processes that die with the benchmark; until they have, swapoff has to read them back.
    for (int attempt = 0; attempt < 8 && swapoff(device_path.c_str()) != 0 && errno != EINVAL; ++attempt) {
    }
    std::ofstream(page_cluster_file) << before << std::flush;
  });
  // After any other swap there may be, priority 100 makes this one the first.
  if (swapon(path.c_str(), SWAP_FLAG_PREFER | 100) != 0) refuse("swapon " + path);
}

}  // namespace fm::bench
