// Regions: quota, a full agent, one-sided access, retirement, reuse, generations, and memory that changes owner.
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"

#include "fixture.h"

using namespace store_test;

namespace {

/// A sealed region whose one object has been superseded elsewhere: it must retire.
region_name retire_one(owner& o, const region_answer& r, const region_answer& elsewhere, std::uint64_t& at) {
  batch_builder first, second;
  first.object(type_line, 1, 8, 1);
  second.object(type_line, 1, 8, 2);
  REQUIRE(o.append(first, r, 0).ok());
  REQUIRE(o.seal(r).ok());
  CHECK(o.peer->retirements().empty());
  REQUIRE(o.append(second, elsewhere, at).ok());
  at += second.bytes.size();
  const auto notices = o.peer->retirements();
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].region == r.region);
  CHECK(notices[0].generation == r.generation);
  return notices[0];
}

std::uint64_t inode_of(int fd) {
  struct stat st {};
  REQUIRE(fstat(fd, &st) == 0);
  return st.st_ino;
}

}  // namespace

TEST_CASE("regions are given until the quota is used up", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready(3 * 64_KiB);
  const region_answer first = o.open_region();
  o.open_region();
  o.open_region();
  const reply refused = o.send(message_type::open_region);
  CHECK(refused.code == errc::quota_exceeded);
  CHECK(refused.text().find("heap-1") != std::string::npos);
  REQUIRE(o.seal(first).ok());  // empty: retires at once
  const auto notices = o.peer->retirements();
  REQUIRE(notices.size() == 1);
  const reply agreed = o.agree(notices[0]);
  REQUIRE(agreed.ok());
  CHECK(agreed.as<retired_answer>().left == 2);  // one, and one more
  CHECK(o.send(message_type::open_region).ok());
}

TEST_CASE("a full agent says so, and keeps a reserve for its cleaner", "[store]") {
  auto s = fm::agent::store::create(small(8));
  owner a(*s, 1), b(*s, 2);
  a.open_ready();
  b.open_ready();
  for (int i = 0; i < 4; ++i) a.open_region();
  for (int i = 0; i < 3; ++i) b.open_region();
  CHECK(b.send(message_type::open_region).code == errc::agent_full);
  REQUIRE(a.send(message_type::close_heap).ok());
  CHECK(b.send(message_type::open_region).ok());
}

TEST_CASE("a region's memory is all there when it is given, whoever touches it first", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const reply r = o.send(message_type::open_region);
  REQUIRE(r.ok());
  struct stat st {};
  REQUIRE(fstat(r.fd, &st) == 0);
  CHECK(std::uint64_t(st.st_blocks) * 512 >= 64_KiB);
}

TEST_CASE("one-sided access is held to bounds, generation, owner and state", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s), other(*s, 2), stranger(*s, 3);
  o.open_ready();
  other.open_ready();
  const region_answer r = o.open_region();
  const auto may = [&](owner& who, std::uint64_t offset, std::uint64_t bytes, fabric::access how,
                       std::uint32_t generation = 1) {
    const bool yes = s->memory(*who.peer, {r.region, generation, offset}, bytes, how) != nullptr;
    if (yes) s->memory_done(*who.peer, r.region);
    return yes;
  };
  using fabric::access;
  CHECK(may(o, 0, 64_KiB, access::read));
  CHECK(may(o, 0, 64_KiB, access::write));
  CHECK(may(o, 64_KiB, 0, access::read));
  CHECK_FALSE(may(o, 1, 64_KiB, access::read));
  CHECK_FALSE(may(o, 64_KiB, 1, access::read));
  CHECK_FALSE(may(o, ~std::uint64_t{0}, 2, access::read));
  CHECK_FALSE(may(o, 8, ~std::uint64_t{0}, access::read));
  CHECK_FALSE(may(o, 0, 8, access::read, 2));
  CHECK_FALSE(may(o, 0, 8, access::read, 0));
  CHECK_FALSE(may(other, 0, 8, access::read));
  CHECK_FALSE(may(stranger, 0, 8, access::read));
  CHECK(s->memory(*o.peer, {250'000, 1, 0}, 8, access::read) == nullptr);
  CHECK(s->memory(*o.peer, {~0u, 1, 0}, 8, access::read) == nullptr);

  batch_builder b;
  b.object(type_line, 1, 8);
  REQUIRE(o.append(b, r, 0).ok());
  CHECK_FALSE(may(o, 0, 8, access::write));
  CHECK_FALSE(may(o, b.bytes.size() - 8, 16, access::write));
  CHECK(may(o, b.bytes.size(), 16, access::write));
  CHECK(may(o, 0, 8, access::read));
  REQUIRE(o.seal(r).ok());
  CHECK_FALSE(may(o, b.bytes.size(), 16, access::write));
  CHECK(may(o, 0, 64_KiB, access::read));
  CHECK_FALSE(other.info(r.region).ok());
}

TEST_CASE("a region without live objects retires, and is freed when the owner agrees", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region(), elsewhere = o.open_region();
  CHECK(o.agree({r.region, r.generation}).code == errc::access_denied);  // nobody asked
  std::uint64_t at = 0;
  const region_name name = retire_one(o, r, elsewhere, at);
  // Until the owner agrees, its reads go on.
  CHECK(s->memory(*o.peer, {r.region, r.generation, 0}, 96, fabric::access::read) != nullptr);
  s->memory_done(*o.peer, r.region);
  o.audit();
  REQUIRE(o.agree(name).ok());
  CHECK(s->memory(*o.peer, {r.region, r.generation, 0}, 96, fabric::access::read) == nullptr);
  CHECK(o.info(r.region, r.generation).code == errc::not_found);
  CHECK(o.agree(name).code == errc::not_found);  // the answer was lost, the owner says it again
  const region_answer again = o.open_region();
  CHECK(again.region == r.region);
  CHECK(again.generation == r.generation + 1);
  CHECK(o.info(r.region, r.generation).code == errc::stale);
  o.audit();
}

TEST_CASE("memory that somebody reads stays until the reader is done", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region(), elsewhere = o.open_region();
  std::uint64_t at = 0;
  const region_name name = retire_one(o, r, elsewhere, at);
  const std::byte* p = s->memory(*o.peer, {r.region, r.generation, 0}, 96, fabric::access::read);
  REQUIRE(p != nullptr);
  REQUIRE(o.agree(name).ok());
  std::uint32_t magic = 0;
  std::memcpy(&magic, p, sizeof magic);
  CHECK(magic == batch_magic);
  CHECK(o.open_region().region != r.region);
  CHECK(s->statistics().find("\"regions_in_use\":3,") != std::string::npos);
  s->memory_done(*o.peer, r.region);
  CHECK(s->statistics().find("\"regions_in_use\":2,") != std::string::npos);
  CHECK(o.open_region().region == r.region);
}

TEST_CASE("closing a heap waits for nobody and takes no memory from a reader", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  std::byte* p = s->memory(*o.peer, {r.region, r.generation, 0}, 64, fabric::access::write);
  REQUIRE(p != nullptr);
  REQUIRE(o.send(message_type::close_heap).ok());
  p[63] = std::byte{1};
  s->memory_done(*o.peer, r.region);
  CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
}

TEST_CASE("the memory that an answer names is its own, whatever happens to the region before it is sent", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s), other(*s, 2);
  o.open_ready();
  other.open_ready();
  const reply first = o.send(message_type::open_region);
  const std::uint64_t inode = inode_of(first.fd);
  REQUIRE(o.send(message_type::close_heap).ok());
  settle(*s);
  std::vector<reply> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(other.send(message_type::open_region));
    CHECK(inode_of(others.back().fd) != inode);
  }
  CHECK(inode_of(first.fd) == inode);
}

TEST_CASE("a closed heap's memory goes back in steps, and who needs it sooner has it", "[store]") {
  auto s = fm::agent::store::create(small(40));
  owner o(*s), other(*s, 2);
  o.open_ready();
  other.open_ready();
  std::uint64_t had = 0;
  for (; o.send(message_type::open_region).ok(); ++had) {
  }
  REQUIRE(o.send(message_type::close_heap).ok());
  CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
  CHECK(s->maintain());  // not all at once
  for (std::uint64_t i = 0; i < had; ++i) REQUIRE(other.send(message_type::open_region).ok());
  CHECK_FALSE(other.send(message_type::open_region).ok());
  settle(*s);
}

TEST_CASE("a retirement notice that was lost is sent again", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region(), elsewhere = o.open_region();
  std::uint64_t at = 0;

  SECTION("when the owner's queue was full") {
    o.peer->accept(false);
    REQUIRE(o.seal(r).ok());
    settle(*s);
    CHECK(o.peer->retirements().empty());
    o.peer->accept(true);
    settle(*s);
    CHECK(o.peer->retirements().size() == 1);
    settle(*s);
    CHECK(o.peer->retirements().empty());
  }
  SECTION("when the connection broke after it") {
    const region_name name = retire_one(o, r, elsewhere, at);
    o.disconnect();
    settle(*s);
    o.connect();
    REQUIRE(o.open(0, true).ok());
    settle(*s);
    const auto again = o.peer->retirements();
    REQUIRE(again.size() == 1);
    CHECK(again[0].region == name.region);
    CHECK(o.agree(again[0]).ok());
  }
}

TEST_CASE("a region whose opening was never heard of is given again", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer used = o.open_region();
  const region_answer lost = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8);
  REQUIRE(o.append(b, used, 0).ok());
  o.disconnect();
  o.connect();
  REQUIRE(o.open(0, true).ok());
  const region_answer r = o.open_region();
  CHECK(r.region == lost.region);
  CHECK(r.generation == lost.generation);
  const region_answer fresh = o.open_region();
  CHECK(fresh.region != lost.region);
  CHECK(fresh.region != used.region);
}

TEST_CASE("another owner gets other memory, zeroed, and never a file that was handed out", "[store]") {
  auto s = fm::agent::store::create(small(2));  // one region for owners, one for the cleaner
  std::uint64_t first_file = 0;
  {
    owner o(*s, 1);
    o.open_ready();
    const reply r = o.send(message_type::open_region);
    first_file = inode_of(r.fd);
    batch_builder b;
    b.object(type_line, 1, 8, 0x5ec7e7);
    REQUIRE(o.append(b, r.as<region_answer>(), 0).ok());
    REQUIRE(o.seal(r.as<region_answer>()).ok());
    REQUIRE(o.send(message_type::close_heap).ok());
  }
  owner o(*s, 2);
  o.open_ready();
  const reply r = o.send(message_type::open_region);
  REQUIRE(r.ok());
  CHECK(inode_of(r.fd) != first_file);
  const auto a = r.as<region_answer>();
  const std::byte* p = s->memory(*o.peer, {a.region, a.generation, 0}, 64_KiB, fabric::access::read);
  REQUIRE(p != nullptr);
  CHECK(std::all_of(p, p + 64_KiB, [](std::byte x) { return x == std::byte{0}; }));
  s->memory_done(*o.peer, a.region);
}

TEST_CASE("kept memory of a retired region goes to another owner as a new file", "[store]") {
  auto s = fm::agent::store::create(small(4));
  owner first(*s, 1), second(*s, 2);
  first.open_ready();
  second.open_ready();
  const reply r = first.send(message_type::open_region);
  const std::uint64_t file = inode_of(r.fd);
  const auto mapped = fm::os::memory_file::adopt(::dup(r.fd), 64_KiB);  // the owner may keep that
  mapped.base()[4096] = std::byte{1};
  REQUIRE(first.seal(r.as<region_answer>()).ok());
  REQUIRE(first.agree(first.peer->retirements().at(0)).ok());
  const reply more = first.send(message_type::open_region);  // has the kept memory
  CHECK(inode_of(more.fd) == file);
  const reply again = first.send(message_type::open_region);
  for (const reply* of : {&more, &again}) {  // so that there is too much of it
    REQUIRE(first.seal(of->as<region_answer>()).ok());
    REQUIRE(first.agree(first.peer->retirements().back()).ok());
  }
  CHECK(mapped.base()[4096] == std::byte{1});
  for (int i = 0; i < 3; ++i) {
    const reply theirs = second.send(message_type::open_region);
    REQUIRE(theirs.ok());
    CHECK(inode_of(theirs.fd) != file);
  }
  CHECK(mapped.base()[4096] == std::byte{0});
}

TEST_CASE("a region number whose generations are used up is never opened again", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  constexpr std::uint32_t last = home_address::generation_limit - 1;
  region_answer r{};
  for (std::uint32_t g = 1; g <= last; ++g) {
    r = o.open_region();
    if (r.region != 0 || r.generation != g)
      FAIL("region " << r.region << " generation " << r.generation << " instead of " << g);
    o.seal(r);
    if (!o.agree(o.peer->retirements().at(0)).ok()) FAIL("not retired");
  }
  const region_answer next = o.open_region();
  CHECK(next.region == 1);
  CHECK(next.generation == 1);
  CHECK(o.info(0).code == errc::not_found);
}
