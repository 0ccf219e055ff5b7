// Cleaning: sparse regions are emptied when memory is short, the owner's batch always wins, nothing is lost.
#include "fixture.h"

using namespace store_test;

TEST_CASE("sparse regions are cleaned when memory is short, and everything is still there", "[store]") {
  auto s = fm::agent::store::create(small(10));
  owner o(*s);
  o.open_ready();
  std::vector<region_answer> sparse;
  for (slot_t i = 0; i < 4; ++i) sparse.push_back(fill(o, 1 + i * per_region, 100 + i));
  region_answer to = o.open_region();
  std::uint64_t at = 0;
  for (slot_t i = 0; i < 4; ++i) supersede(o, to, at, 1 + i * per_region, 4, 200 + i);
  settle(*s);
  CHECK(o.peer->retirements().empty());  // there is memory enough
  std::vector<region_answer> open;
  while (true) {
    const reply r = o.send(message_type::open_region);
    if (!r.ok()) {
      CHECK(r.code == errc::agent_full);
      break;
    }
    open.push_back(r.as<region_answer>());
  }
  settle(*s);
  const auto notices = o.peer->retirements();
  CHECK(notices.size() == sparse.size());
  o.audit();
  for (slot_t i = 0; i < 4 * per_region; ++i) {
    const std::uint64_t region = i / per_region;
    if (o.value(1 + i) != (i % per_region % 4 == 0 ? 100 + region : 200 + region))
      FAIL("slot " << 1 + i << " has " << o.value(1 + i));
  }
  SECTION("the owner learns of the cleaner's region from a hint and may read all of it that is complete") {
    const home_address moved = home_address::unpack(o.entry(1));
    CHECK(std::none_of(sparse.begin(), sparse.end(), [&](const region_answer& r) { return r.region == moved.region; }));
    const auto info = o.info(moved.region).as<region_answer>();
    CHECK(info.generation == moved.generation);
    CHECK(info.readable_bytes >= moved.offset + 72);
    CHECK(o.seal(info).code == errc::access_denied);
    CHECK(s->memory(*o.peer, {info.region, info.generation, 60_KiB}, 8, fabric::access::write) == nullptr);
  }
  SECTION("memory comes back as the owner agrees") {
    CHECK_FALSE(o.send(message_type::open_region).ok());
    for (const region_name& n : notices) REQUIRE(o.agree(n).ok());
    CHECK(o.send(message_type::open_region).ok());
    o.audit();
  }
}

namespace {

/// Overwrites objects between the cleaner's copying and its publishing.
struct interference {
  owner* o = nullptr;
  region_answer to{};
  std::uint64_t at = 0;
  std::uint64_t written = 0;
  static void run(void* self) noexcept {
    auto& me = *static_cast<interference*>(self);
    if (me.o == nullptr) return;
    batch_builder b;
    for (slot_t i = 0; i < per_region; i += 8) b.object(type_word, 1 + i, 1, 300);
    REQUIRE(me.o->append(b, me.to, me.at).ok());
    me.at += b.bytes.size();
    me.o = nullptr;
    ++me.written;
  }
};

}  // namespace

TEST_CASE("a batch that comes while an object is being copied wins over the copy", "[store]") {
  interference between;
  store_options options = small(6);
  options.hooks.cleaner_copied = interference::run;
  options.hooks.context = &between;
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready();
  fill(o, 1, 100);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  supersede(o, to, at, 1, 4, 200);
  between.to = to;
  between.at = at;
  while (o.send(message_type::open_region).ok()) {
  }
  between.o = &o;
  settle(*s);
  REQUIRE(between.written == 1);
  CHECK(o.peer->retirements().size() == 1);
  for (slot_t i = 0; i < per_region; ++i) {
    const std::uint64_t expected = i % 8 == 0 ? 300 : i % 4 == 0 ? 100 : 200;
    if (o.value(1 + i) != expected) FAIL("slot " << 1 + i << " has " << o.value(1 + i) << " instead of " << expected);
  }
  CHECK(s->statistics().find("\"cleaner_lost\":100") != std::string::npos);
  o.audit();
}

TEST_CASE("a heap closed while the cleaner works on it is simply gone", "[store]") {
  struct closing {
    owner* o = nullptr;
    static void run(void* self) noexcept {
      auto& me = *static_cast<closing*>(self);
      if (me.o != nullptr) REQUIRE(me.o->send(message_type::close_heap).ok());
      me.o = nullptr;
    }
  } closes;
  store_options options = small(6);
  options.hooks.cleaner_copied = closing::run;
  options.hooks.context = &closes;
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready();
  fill(o, 1, 100);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  supersede(o, to, at, 1, 4, 200);
  while (o.send(message_type::open_region).ok()) {
  }
  closes.o = &o;
  settle(*s);
  CHECK(closes.o == nullptr);
  CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
}

TEST_CASE("no memory goes into copies for an owner that is away or never agrees", "[store]") {
  auto s = fm::agent::store::create(small(24));
  owner away(*s, 1), other(*s, 2);
  away.open_ready();
  other.open_ready();
  constexpr slot_t regions = 12;
  for (slot_t i = 0; i < regions; ++i) fill(away, 1 + i * per_region, 100);
  for (slot_t i = 0; i < regions;) {
    const region_answer to = away.open_region();
    std::uint64_t at = 0;
    for (const slot_t end = i + regions / 2; i < end; ++i) supersede(away, to, at, 1 + i * per_region, 4, 200);
  }
  const auto takes_all = [&] {
    std::uint64_t n = 0;
    for (; other.send(message_type::open_region).ok(); ++n) settle(*s);
    return n;
  };
  SECTION("away") {
    away.disconnect();
    CHECK(takes_all() == 24 - regions - 2 - 1);  // one is the reserve
  }
  SECTION("never agrees") {
    (void)takes_all();
    const std::size_t asked = away.peer->retirements().size();
    CHECK(asked != 0);
    CHECK(asked < regions);
    settle(*s);
    CHECK(away.peer->retirements().empty());
    CHECK(away.audit().objects == regions * per_region);
  }
}

TEST_CASE("objects that fill regions badly are moved once, and not for ever", "[store]") {
  auto s = fm::agent::store::create(small(16));
  owner o(*s);
  o.open_ready();
  constexpr std::uint64_t bytes = 22'000;  // two to a region of 64 KiB
  for (slot_t i = 0; i < 8; i += 2) {
    const region_answer r = o.open_region();
    batch_builder b;
    for (slot_t k = 0; k < 2; ++k) b.array(type_bytes, 1 + i + k, bytes, bytes / 8);
    REQUIRE(o.append(b, r, 0).ok());
    REQUIRE(o.seal(r).ok());
  }
  while (o.send(message_type::open_region).ok()) {
  }
  for (int round = 0; round < 4; ++round) {
    settle(*s);
    for (const region_name& n : o.peer->retirements()) REQUIRE(o.agree(n).ok());
  }
  settle(*s);
  CHECK(o.peer->retirements().empty());
  CHECK(o.audit().objects == 8);
}

TEST_CASE("an owner that damages its own region only loses its cleaning", "[store]") {
  auto s = fm::agent::store::create(small(6));
  owner o(*s);
  o.open_ready();
  const region_answer r = fill(o, 1, 100);
  const region_answer to = o.open_region();
  std::uint64_t at = 0;
  supersede(o, to, at, 1, 4, 200);
  // Over shm:// an owner has its regions mapped and can write where it must not.
  std::byte* p = s->memory(*o.peer, {r.region, r.generation, 0}, 64_KiB, fabric::access::read);
  REQUIRE(p != nullptr);
  const int which = GENERATE(range(0, 3));
  const std::uint64_t garbage = ~std::uint64_t{0} - 8;
  if (which == 0) std::memcpy(p, &garbage, 8);                              // the batch header
  if (which == 1) std::memcpy(p + sizeof(batch_header) + 72, &garbage, 8);  // an object's header
  if (which == 2) {                                                         // a length beyond the region
    const batch_header h{batch_magic, 0, 1, 0xfffffff8, 800};
    std::memcpy(p, &h, sizeof h);
  }
  s->memory_done(*o.peer, r.region);
  while (o.send(message_type::open_region).ok()) {
  }
  settle(*s);
  CHECK(o.peer->retirements().empty());
  CHECK(s->statistics().find("\"regions_unwalkable\":1") != std::string::npos);
  CHECK(o.value(1 + 400) == 100);  // undamaged objects are still read
}
