// The audit finds what was planted. Bytes are damaged through the reading side of one-sided access, the way an owner
// with the region mapped could do it.
#include "fixture.h"

using namespace store_test;

namespace {

struct planted {
  std::unique_ptr<fm::agent::store> s = fm::agent::store::create(small());
  owner o{*s};
  region_answer r{};
  batch_builder b;
  planted() {
    o.open_ready();
    r = o.open_region();
    b.object(type_line, 1, 8).object(type_word, 2, 1).array(type_bytes, 3, 16, 2).object(type_word, 4, 1);
    REQUIRE(o.append(b, r, 0).ok());
    batch_builder second;
    second.object(type_word, 4, 1);
    REQUIRE(o.append(second, r, b.bytes.size()).ok());
    o.audit();
  }
  void damage(std::uint64_t offset, std::uint64_t word) {
    std::byte* p = s->memory(*o.peer, {r.region, r.generation, offset}, 8, fabric::access::read);
    REQUIRE(p != nullptr);
    std::memcpy(p, &word, 8);
    s->memory_done(*o.peer, r.region);
  }
  std::pair<std::uint64_t, std::string> faults() {
    const reply a = o.send(message_type::audit);
    REQUIRE(a.ok());
    return {a.as<audit_answer>().faults, a.text().substr(sizeof(audit_answer))};
  }
};

}  // namespace

TEST_CASE("the audit finds a copy that names another slot", "[store]") {
  planted p;
  p.damage(p.b.offsets[2], detail::header::pack(type_word, 1));
  const auto [n, text] = p.faults();
  CHECK(n > 0);
  CHECK(text.find("slot 2: the copy at region 0") != std::string::npos);
}

TEST_CASE("the audit finds a copy of an unknown type", "[store]") {
  planted p;
  p.damage(p.b.offsets[2], detail::header::pack(77, 2));
  const auto [n, text] = p.faults();
  CHECK(n > 0);
  CHECK(text.find("no known type") != std::string::npos);
}

TEST_CASE("the audit finds an array whose length has changed", "[store]") {
  planted p;
  p.damage(p.b.offsets[3] + 8, 3);
  const auto [n, text] = p.faults();
  CHECK(n > 0);
  CHECK(text.find("slot 3: 24 bytes") != std::string::npos);
}

TEST_CASE("the audit finds a damaged batch header", "[store]") {
  planted p;
  p.damage(p.b.bytes.size(), 0);
  const auto [n, text] = p.faults();
  CHECK(n > 0);
  CHECK(text.find("no batch at offset") != std::string::npos);
}

TEST_CASE("the audit finds garbage that has come to look alive", "[store]") {
  planted p;
  // The old copy of slot 4 now claims to be slot 1, whose entry names another place: the sums must not move.
  p.damage(p.b.offsets[4], detail::header::pack(type_line, 1));
  CHECK(p.faults().first > 0);
}

TEST_CASE("metadata is at most 24 bytes an object with its header", "[store]") {
  store_options options;
  options.memory_bytes = 64_MiB;
  options.region_bytes = 16_MiB;
  options.hooks.background = false;
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready(0, 4);
  const region_answer r = o.open_region();
  slot_t slot = 1;
  std::uint64_t at = 0;
  while (at + 256_KiB <= 15_MiB) {
    batch_builder b;
    while (b.bytes.size() + 72 <= 256_KiB) b.object(type_line, slot++, 8);
    REQUIRE(o.append(b, r, at).ok());
    at += b.bytes.size();
  }
  const audit_answer a = o.audit();
  REQUIRE(a.objects == slot - 1);
  const double payload = double(a.objects) * 64;
  const double beyond = double(at + a.metadata_bytes) - payload;
  INFO(a.metadata_bytes << " bytes of metadata for " << a.objects << " objects");
  CHECK(beyond / double(a.objects) <= 24.0);
}
