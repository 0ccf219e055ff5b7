// Counting home copies by type, a step of slots a message.
#include "fixture.h"

using namespace store_test;

namespace {

struct sums {  // a census_record is packed: its fields cannot be referred to
  std::uint64_t objects = 0, bytes = 0;
};
struct counted {
  std::vector<std::uint64_t> stored;
  std::map<std::uint32_t, sums> types;
};

counted census(owner& o, std::uint64_t first, std::uint32_t count) {
  const reply a = o.send(message_type::census, census_body{first, count, 0});
  REQUIRE(a.ok());
  const std::string body = a.text();
  counted c;
  c.stored.resize(count / 64);
  REQUIRE(body.size() >= c.stored.size() * 8);
  std::memcpy(c.stored.data(), body.data(), c.stored.size() * 8);
  for (std::size_t at = c.stored.size() * 8; at < body.size(); at += sizeof(census_record)) {
    census_record r;
    REQUIRE(body.size() - at >= sizeof r);
    std::memcpy(&r, body.data() + at, sizeof r);
    c.types[r.type] = {r.objects, r.bytes};
  }
  return c;
}

}  // namespace

TEST_CASE("home copies are counted by type, and their slots named", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const auto r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8).object(type_word, 2, 1).array(type_bytes, 3, 16, 2).object(type_word, 600, 1);
  REQUIRE(o.append(b, r, 0).ok());
  batch_builder again;
  again.object(type_word, 2, 1);  // the copy before is garbage
  REQUIRE(o.append(again, r, b.bytes.size()).ok());
  const counted c = census(o, 0, 1024);
  CHECK(c.stored[0] == 0b1110);
  CHECK(c.stored[600 / 64] == std::uint64_t{1} << (600 % 64));
  CHECK(c.types.size() == 3);
  CHECK(c.types.at(type_word).objects == 2);
  CHECK(c.types.at(type_word).bytes == 2 * 16);
  CHECK(c.types.at(type_line).objects == 1);
  CHECK(c.types.at(type_bytes).bytes == 8 + 8 + 16);
  CHECK(census(o, 512, 512).types.size() == 1);
  CHECK(census(o, 1024, census_slots_max).types.empty());
}

TEST_CASE("a census is refused where no correct owner asks, and ends at damage with an answer", "[store]") {
  auto s = fm::agent::store::create(small());
  for (const census_body bad : {census_body{1, 512, 0}, census_body{0, 0, 0}, census_body{0, 500, 0},
                                census_body{0, census_slots_max + 512, 0}, census_body{detail::slot_limit, 512, 0},
                                census_body{detail::tablet_slots - 512, 1024, 0}, census_body{0, 512, 1}}) {
    owner fresh(*s);
    fresh.open_ready();
    CHECK(fresh.send(message_type::census, bad).returned == errc::bad_frame);
  }
  owner o(*s);
  o.open_ready();
  CHECK(o.send(message_type::census, census_body{std::uint64_t{500} * detail::tablet_slots, 512, 0}).code ==
        errc::not_found);
  const auto r = o.open_region();
  batch_builder b;
  b.object(type_word, 2, 1);
  REQUIRE(o.append(b, r, 0).ok());
  std::byte* p = s->memory(*o.peer, {r.region, r.generation, b.offsets[2]}, 8, fabric::access::read);
  REQUIRE(p);
  const std::uint64_t damaged = detail::header::pack(type_word, 3);
  std::memcpy(p, &damaged, sizeof damaged);
  s->memory_done(*o.peer, r.region);
  CHECK(o.send(message_type::census, census_body{0, 512, 0}).code == errc::corrupt);
}
