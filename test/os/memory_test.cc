// Reservations, memory files and what is refused when a descriptor comes from elsewhere.
#include "os/os.h"
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

using fm::os::memory_file;
using fm::os::reservation;
using namespace fm::literals;

namespace {

// The code of the error that `call` throws, and its message; ok when it throws nothing.
template <class F>
std::pair<fm::errc, std::string> error_of(F&& call) {
  try {
    call();
  } catch (const fm::error& e) {
    return {e.code(), e.what()};
  }
  return {fm::errc::ok, ""};
}

// A memfd of `bytes` bytes with `seals`, as a peer would send it.
int peer_memfd(std::uint64_t bytes, int seals) {
  const int fd = ::memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

// What the kernel says of the mapping that an address is in: two letters for each flag, as in "VmFlags: rd wr nh".
std::string flags_of(const void* address) {
  std::ifstream in("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(in, line);) {
    if (is_it && line.starts_with("VmFlags:")) return line + ' ';
    unsigned long long from = 0, end = 0;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &end) == 2) is_it = from <= at && at < end;
  }
  return {};
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0 || errno != EBADF; }

}  // namespace

TEST_CASE("a reservation is aligned, page-rounded and reads as zero") {
  for (const std::uint64_t alignment : {std::uint64_t{1}, 4_KiB, 2_MiB, 1_GiB}) {
    const reservation r(3 * 4_KiB - 5, alignment);
    CAPTURE(alignment);
    CHECK(r.bytes() == 3 * 4_KiB);
    CHECK(reinterpret_cast<std::uintptr_t>(r.base()) % std::max<std::uint64_t>(alignment, 4_KiB) == 0);
    CHECK(r.base()[0] == std::byte{0});
    CHECK(r.base()[r.bytes() - 1] == std::byte{0});
  }
}

TEST_CASE("address space costs no memory until it is touched") {
  const std::uint64_t before = fm::os::resident_memory_of().total_bytes;
  const reservation r(64_GiB, 4_KiB);
  CHECK(fm::os::resident_memory_of().total_bytes < before + 16_MiB);
}

TEST_CASE("a reservation is in small pages until it is asked for huge ones") {
  if (::access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) return;  // this kernel has none
  const reservation r(64_MiB, 2_MiB);
  CHECK(flags_of(r.base()).find(" nh") != std::string::npos);
  reservation::prefer_huge_pages(r.base(), r.bytes());
  CHECK(flags_of(r.base()).find(" nh") == std::string::npos);
  CHECK(flags_of(r.base()).find(" hg") != std::string::npos);
  reservation::keep_small_pages(r.base(), r.bytes());
  CHECK(flags_of(r.base()).find(" nh") != std::string::npos);
}

TEST_CASE("discarded pages read as zero and their neighbours keep their bytes") {
  const reservation r(4 * 4_KiB, 4_KiB);
  std::memset(r.base(), 0x5a, r.bytes());
  reservation::discard(r.base() + 4_KiB, 2 * 4_KiB);
  CHECK(r.base()[4_KiB - 1] == std::byte{0x5a});
  CHECK(r.base()[4_KiB] == std::byte{0});
  CHECK(r.base()[3 * 4_KiB - 1] == std::byte{0});
  CHECK(r.base()[3 * 4_KiB] == std::byte{0x5a});
}

TEST_CASE("discarding a span gives back only the pages that lie wholly in it") {
  const reservation r(3 * 4_KiB, 4_KiB);
  std::memset(r.base(), 0x5a, r.bytes());
  reservation::discard(r.base() + 1, 4_KiB);
  CHECK(r.base()[0] == std::byte{0x5a});
  CHECK(r.base()[4_KiB] == std::byte{0x5a});
  reservation::discard(r.base() + 1, 2 * 4_KiB);
  CHECK(r.base()[4_KiB - 1] == std::byte{0x5a});
  CHECK(r.base()[4_KiB] == std::byte{0});
  CHECK(r.base()[2 * 4_KiB] == std::byte{0x5a});
}

TEST_CASE("discard gives the memory back to the system") {
  const reservation r(64_MiB, 4_KiB);
  std::memset(r.base(), 1, r.bytes());
  const std::uint64_t full = fm::os::resident_memory_of().total_bytes;
  reservation::discard(r.base(), r.bytes());
  CHECK(fm::os::resident_memory_of().total_bytes + 48_MiB < full);
}

TEST_CASE("a reservation that moved away is empty and its address space lives on") {
  reservation a(4_KiB, 4_KiB);
  std::byte* const base = a.base();
  base[7] = std::byte{9};
  reservation b(std::move(a));
  CHECK(a.base() == nullptr);
  CHECK(a.bytes() == 0);
  CHECK(b.base() == base);
  reservation c;
  c = std::move(b);
  CHECK(c.base() == base);
  CHECK(c.base()[7] == std::byte{9});
}

TEST_CASE("a reservation larger than the address space is a typed error that names its size") {
  const auto [code, what] = error_of([] { reservation(1_TiB << 8, 4_KiB); });
  CHECK(code == fm::errc::out_of_memory);
  CHECK_THAT(what, Catch::Contains(std::to_string(1_TiB << 8)));
}

TEST_CASE("what is written into a memory file is seen through an adopted descriptor") {
  const memory_file ours("shared", 3 * 4_KiB);
  const memory_file theirs = memory_file::adopt(::dup(ours.fd()), ours.bytes());
  CHECK(theirs.bytes() == 3 * 4_KiB);
  CHECK(theirs.base() != ours.base());
  ours.base()[5000] = std::byte{0x77};
  CHECK(theirs.base()[5000] == std::byte{0x77});
  theirs.base()[3 * 4_KiB - 1] = std::byte{0x78};
  CHECK(ours.base()[3 * 4_KiB - 1] == std::byte{0x78});
}

TEST_CASE("a memory file can neither shrink nor grow under its mapping") {
  const memory_file f("sealed", 2 * 4_KiB);
  CHECK(::ftruncate(f.fd(), 4_KiB) != 0);
  CHECK(::ftruncate(f.fd(), 3 * 4_KiB) != 0);
  CHECK(::fcntl(f.fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("unshared memory is there, zero and writable, has no file, and asks for huge pages from 2 MiB on") {
  for (const std::uint64_t bytes : {64_KiB, 2_MiB, 6_MiB}) {
    CAPTURE(bytes);
    const auto before = fm::os::resident_memory_of();
    memory_file m = memory_file::unshared(bytes);
    const auto after = fm::os::resident_memory_of();
    REQUIRE(m.bytes() == bytes);
    CHECK(m.fd() == -1);
    CHECK_FALSE(m.is_sealed());
    CHECK(after.total_bytes >= before.total_bytes + bytes / 2);  // other tests' memory may go meanwhile
    CHECK(after.shared_bytes == before.shared_bytes);
    CHECK(std::all_of(m.base(), m.base() + bytes, [](std::byte b) { return b == std::byte{}; }));
    std::memset(m.base(), 1, bytes);
    m.drop_pages();  // there is nobody who could have mapped them
    CHECK(m.base()[bytes - 1] == std::byte{1});
    if (::access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0)
      CHECK((flags_of(m.base()).find(" hg") != std::string::npos) == (bytes >= 2_MiB));
    CHECK(flags_of(m.base()).find(" dd") != std::string::npos);  // no core dump has it
    const memory_file moved = std::move(m);
    CHECK(moved.base()[0] == std::byte{1});
  }
  CHECK(error_of([] { memory_file::unshared(1_TiB << 8); }).first == fm::errc::out_of_memory);
}

TEST_CASE("pages that a memory file drops are gone for all who have mapped it") {
  memory_file ours("dropped", 8_MiB);
  const memory_file theirs = memory_file::adopt(::dup(ours.fd()), ours.bytes());
  std::memset(theirs.base(), 1, theirs.bytes());
  const std::uint64_t before = fm::os::resident_memory_of().shared_bytes;
  ours.drop_pages();
  CHECK(before - fm::os::resident_memory_of().shared_bytes >= 8_MiB);
  CHECK(theirs.base()[4_MiB] == std::byte{0});
  // What only its maker writes stays as it is.
  memory_file sealed("sealed", 4_KiB, fm::os::written_by::maker);
  sealed.base()[0] = std::byte{1};
  sealed.drop_pages();
  CHECK(sealed.base()[0] == std::byte{1});
}

TEST_CASE("a memory file that only its maker writes is written by nobody else") {
  const memory_file ours("readers", 2 * 4_KiB, fm::os::written_by::maker);
  REQUIRE(ours.is_sealed());
  CHECK_FALSE(memory_file("writers", 4_KiB).is_sealed());
  CHECK(error_of([&] { memory_file::adopt(::dup(ours.fd()), ours.bytes()); }).first == fm::errc::invalid_argument);
  const memory_file theirs = memory_file::adopt(::dup(ours.fd()), ours.bytes(), fm::os::written_by::maker);
  ours.base()[4097] = std::byte{0x77};
  CHECK(theirs.base()[4097] == std::byte{0x77});
  CHECK(::mprotect(theirs.base(), theirs.bytes(), PROT_READ | PROT_WRITE) != 0);
  CHECK(::pwrite(ours.fd(), "x", 1, 0) < 0);
  // One that all may write can be had for reading alone.
  const memory_file open("writers", 4_KiB);
  CHECK(memory_file::adopt(::dup(open.fd()), open.bytes(), fm::os::written_by::maker).base() != nullptr);
}

TEST_CASE("adopting a descriptor of another size is refused, and the descriptor is closed") {
  for (const std::uint64_t claimed : {4_KiB, 3 * 4_KiB, std::uint64_t{0}, ~std::uint64_t{0}}) {
    const int fd = peer_memfd(2 * 4_KiB, F_SEAL_SHRINK);
    CAPTURE(claimed);
    const auto [code, what] = error_of([&] { memory_file::adopt(fd, claimed); });
    CHECK(code == fm::errc::invalid_argument);
    CHECK_THAT(what, Catch::Contains(std::to_string(fd)));
    CHECK_FALSE(is_open(fd));
  }
}

TEST_CASE("adopting a file that its sender could still shrink is refused") {
  const int fd = peer_memfd(2 * 4_KiB, 0);
  CHECK(error_of([&] { memory_file::adopt(fd, 2 * 4_KiB); }).first == fm::errc::invalid_argument);
  CHECK_FALSE(is_open(fd));
  const int grow_only = peer_memfd(2 * 4_KiB, F_SEAL_GROW);
  CHECK(error_of([&] { memory_file::adopt(grow_only, 2 * 4_KiB); }).first == fm::errc::invalid_argument);
  const int sealed = peer_memfd(2 * 4_KiB, F_SEAL_SHRINK);
  CHECK(error_of([&] { memory_file::adopt(sealed, 2 * 4_KiB); }).first == fm::errc::ok);
}

TEST_CASE("adopting what is no memory file is refused") {
  CHECK(error_of([] { memory_file::adopt(-1, 4_KiB); }).first == fm::errc::invalid_argument);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(error_of([&] { memory_file::adopt(ends[0], 4_KiB); }).first == fm::errc::invalid_argument);
  CHECK(error_of([&] { memory_file::adopt(ends[1], 0); }).first == fm::errc::invalid_argument);
  const int directory = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(directory >= 0);
  CHECK(error_of([&] { memory_file::adopt(directory, 4_KiB); }).first == fm::errc::invalid_argument);
}

TEST_CASE("resident memory counts private pages and shared pages apart") {
  const auto before = fm::os::resident_memory_of();
  REQUIRE(before.total_bytes > 0);
  const memory_file f("touched", 32_MiB);
  std::memset(f.base(), 1, f.bytes());
  const auto shared = fm::os::resident_memory_of();
  CHECK(shared.shared_bytes >= before.shared_bytes + 31_MiB);
  CHECK(shared.total_bytes >= before.total_bytes + 31_MiB);
  const reservation r(32_MiB, 4_KiB);
  std::memset(r.base(), 1, r.bytes());
  const auto both = fm::os::resident_memory_of(static_cast<int>(::getpid()));
  CHECK(both.total_bytes >= shared.total_bytes + 31_MiB);
  CHECK(both.shared_bytes < shared.shared_bytes + 4_MiB);
}

TEST_CASE("the resident memory of a process that does not exist is zero") {
  CHECK(fm::os::resident_memory_of(0x7fffffff).total_bytes == 0);
}
