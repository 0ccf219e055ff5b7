// Mapped regions: which mapping a region has when it comes again, and how long mappings stay that nobody uses.
#include "fabric/client/region_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

using namespace fm::fabric;
using namespace fm::literals;
using fm::errc;
using fm::os::memory_file;
using fm::os::written_by;

namespace {

constexpr std::uint64_t bytes = 64_KiB;

errc attach(region_map& m, std::uint32_t region, std::uint32_t generation, const memory_file& f) {
  return m.attach(region, generation, f.bytes(), {.fd = ::dup(f.fd())});
}
std::byte* found(const region_map& m, std::uint32_t region, std::uint32_t generation) {
  return m.find({.region = region, .generation = generation, .offset = 0}, bytes, true);
}
bool is_mapped(const std::byte* at) {
  unsigned char resident = 0;
  return ::mincore(const_cast<std::byte*>(at), 4_KiB, &resident) == 0 || errno != ENOMEM;
}

}  // namespace

TEST_CASE("a region that comes back with its memory has its mapping back, and is not found meanwhile") {
  const memory_file f("region", bytes);
  region_map m(written_by::all);
  REQUIRE(attach(m, 3, 1, f) == errc::ok);
  std::byte* const at = found(m, 3, 1);
  REQUIRE(at != nullptr);
  m.detach(3);
  CHECK(found(m, 3, 1) == nullptr);
  CHECK(m.base(3) == nullptr);
  m.detach(3);  // does nothing
  REQUIRE(attach(m, 3, 2, f) == errc::ok);
  CHECK(found(m, 3, 1) == nullptr);
  CHECK(found(m, 3, 2) == at);
  f.base()[7] = std::byte{9};
  CHECK(at[7] == std::byte{9});
}

TEST_CASE("a region that comes back with other memory has a mapping of that, and the old one is gone") {
  const memory_file f("region", bytes), other("other", bytes);
  region_map m(written_by::all);
  REQUIRE(attach(m, 3, 1, f) == errc::ok);
  m.detach(3);
  REQUIRE(attach(m, 3, 2, other) == errc::ok);
  std::byte* const at = found(m, 3, 2);
  REQUIRE(at != nullptr);
  at[5] = std::byte{8};
  CHECK(other.base()[5] == std::byte{8});
  CHECK(f.base()[5] == std::byte{0});
  // Refused, and the mapping that waited for it goes.
  m.detach(3);
  CHECK(is_mapped(at));
  CHECK(m.attach(3, 3, 2 * bytes, {.fd = ::dup(f.fd())}) == errc::invalid_argument);
  CHECK_FALSE(is_mapped(at));
  CHECK(m.base(3) == nullptr);
}

TEST_CASE("of the mappings that nobody uses the oldest goes first") {
  region_map m(written_by::all);
  std::vector<memory_file> files;
  std::vector<std::byte*> at;
  constexpr auto most = static_cast<std::uint32_t>(fabric_limits::idle_mappings_max);
  for (std::uint32_t i = 0; i <= most; ++i) {
    files.emplace_back("region", bytes);
    REQUIRE(attach(m, i, 1, files.back()) == errc::ok);
    at.push_back(m.base(i));
  }
  for (std::uint32_t i = 0; i < most; ++i) m.detach(i);
  CHECK(is_mapped(at[0]));
  REQUIRE(attach(m, 0, 2, files[0]) == errc::ok);  // used again
  m.detach(most);
  CHECK(m.base(0) == at[0]);
  CHECK(is_mapped(at[1]));
  m.detach(0);
  CHECK_FALSE(is_mapped(at[1]));
  CHECK(is_mapped(at[0]));
}

TEST_CASE("memory that is forgotten is mapped no longer than it is used") {
  const memory_file used("used", bytes), idle("idle", bytes);
  region_map m(written_by::all);
  REQUIRE(attach(m, 1, 1, used) == errc::ok);
  REQUIRE(attach(m, 2, 1, idle) == errc::ok);
  std::byte* const a = m.base(1);
  std::byte* const b = m.base(2);
  m.detach(2);
  m.forget_memory();
  CHECK_FALSE(is_mapped(b));
  a[0] = std::byte{1};
  CHECK(used.base()[0] == std::byte{0});
  m.detach(1);
  CHECK_FALSE(is_mapped(a));
}
