// The blocks of a pool on its agent, without clients: births, identities, their end, frames, and what the audit finds.
#include "pool/agent/blocks_fixture.h"

namespace {

using namespace blocks_test;

}  // namespace

TEST_CASE("objects are found by what they were born as, and nothing else is") {
  world w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 500; ++i) all.push_back(w.make(i));
  for (std::uint64_t i = 0; i < 500; ++i) CHECK(w.value(all[i]) == i);
  where other = all[7];
  other.id.generation += 1;
  CHECK(w.code(other) == errc::not_found);
  other = all[7];
  other.id.index = 60'000;
  CHECK(w.code(other) == errc::not_found);
  other = all[7];
  other.id.vblock = 1u << 25;
  CHECK(w.code(other) == errc::not_found);
  other = all[7];
  other.id.generation = 0;
  CHECK(w.code(other) == errc::not_found);
  other = all[7];
  other.slot = 60'000;  // a hint, no more
  CHECK(w.value(other) == 7);
  CHECK(other.slot == all[7].slot);
  w.check();
}

TEST_CASE("an index that is given out again is of another generation") {
  world w;
  const where a = w.make(1);
  std::vector<where> dead;
  where now = a;
  for (int i = 0; i < 1000; ++i) {
    dead.push_back(now);
    REQUIRE(w.blocks.free(now) == errc::ok);
    now = w.make(i);
  }
  for (const where& d : dead) CHECK(w.code(d) == errc::not_found);
  CHECK(w.value(now) == 999);
  w.check();
}

TEST_CASE("a virtual block whose generations are used up has no births any more, and is never used again") {
  world w({}, 0xffffffffu - 10);  // eleven births a block
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 100; ++i) all.push_back(w.make(i));
  std::map<std::uint32_t, int> births;
  for (const where& a : all) ++births[a.id.vblock];
  CHECK(births.size() == 10);
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(w.value(all[i]) == i);
  w.check();
  for (const where& a : all) REQUIRE(w.blocks.free(a) == errc::ok);
  w.check();
  for (std::uint64_t i = 0; i < 50; ++i) {
    const where b = w.make(i);
    CHECK(births[b.id.vblock]++ < 11);
    CHECK(w.value(b) == i);
  }
  CHECK(w.blocks.vblocks_retired() > 7);
  w.check();
}

TEST_CASE("an empty block's frame is used again only when its epoch is passed") {
  world w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 2000; ++i) all.push_back(w.make(i));
  const std::uint64_t full = w.frames.used_bytes();
  for (const where& a : all) REQUIRE(w.blocks.free(a) == errc::ok);
  CHECK(w.frames.used_bytes() == full);
  CHECK(w.blocks.graves() > 10);
  w.check();
  CHECK_FALSE(w.blocks.reclaim(1));
  CHECK(w.frames.used_bytes() == full);
  CHECK(w.blocks.reclaim(w.blocks.epoch()));
  CHECK(w.blocks.graves() == 0);
  CHECK(w.frames.used_bytes() == 2 * 4096);  // an empty block that is kept, and the table
  w.check();
}

TEST_CASE("frames do not overlap, are given lowest first, and join when they come back") {
  world w;
  pool_frames& f = w.frames;
  std::vector<std::pair<place, std::uint64_t>> taken;
  std::mt19937_64 random(5);
  std::map<std::uint64_t, std::uint64_t> used;  // address, bytes
  const auto address = [](place p) { return std::uint64_t{p.ordinal} << 32 | p.offset; };
  for (int i = 0; i < 3000; ++i) {
    if (random() % 2 == 0 || taken.empty()) {
      const std::uint64_t bytes = 4096ull << random() % 6;
      place p;
      if (const errc e = f.take(bytes, p); e != errc::ok) {
        CHECK((e == errc::quota_exceeded || e == errc::agent_full));
        continue;
      }
      CHECK(p.offset % bytes == 0);
      const auto after = used.lower_bound(address(p));
      if (after != used.end()) REQUIRE(after->first >= address(p) + bytes);
      if (after != used.begin()) REQUIRE(std::prev(after)->first + std::prev(after)->second <= address(p));
      used[address(p)] = bytes;
      taken.emplace_back(p, bytes);
    } else {
      const std::size_t at = random() % taken.size();
      f.give_back(taken[at].first, taken[at].second);
      used.erase(address(taken[at].first));
      taken[at] = taken.back();
      taken.pop_back();
    }
  }
  for (const auto& [p, bytes] : taken) f.give_back(p, bytes);
  CHECK(f.used_bytes() == 0);
  CHECK(f.regions() == 1);  // one is kept for the next frame
  CHECK(f.gone() >= 1);
}

TEST_CASE("a region's ordinal is used again when it is forgotten, and not before") {
  world w;
  pool_frames& f = w.frames;
  std::vector<place> held(3);
  std::set<std::uint32_t> seen;
  const auto turn_over = [&] {
    for (place& p : held) {
      REQUIRE(f.take(world::region, p) == errc::ok);
      seen.insert(p.ordinal);
    }
    for (const place& p : held) f.give_back(p, world::region);
  };
  for (int i = 0; i < 5; ++i) turn_over();
  CHECK(f.gone() == 10);     // one of three is kept
  CHECK(seen.size() == 11);  // no ordinal came twice
  for (int i = 0; i < 50; ++i) {
    f.forget_gone(f.gone());
    turn_over();
  }
  CHECK(f.gone() == 110);
  CHECK(seen.size() == 11);
}

TEST_CASE("the audit notices bytes that are not what they should be") {
  for (const std::uint32_t versions : {0u, ~0u}) {
    world w({.versions_upto = versions});
    const where a = w.make(1);
    (void)w.make(2);
    w.check();
    std::byte* const at = w.memory_of(a);
    const auto faults = [&] {
      std::string text;
      return w.blocks.audit(text).faults;
    };
    for (const std::size_t offset : {0, 4, 8, 12, 16}) {
      if (versions != 0 && offset == 12)
        continue;  // the version of an object of one line: there is no other to compare
      at[offset] ^= std::byte{1};
      CHECK(faults() > 0);
      at[offset] ^= std::byte{1};
    }
    CHECK(faults() == 0);
    if (versions == 0) {
      at[24] ^= std::byte{1};
      CHECK(faults() > 0);
      std::vector<std::byte> out;
      where b = a;
      CHECK(w.blocks.read(b, out) == errc::corrupt);
      at[24] ^= std::byte{1};
    }
    std::byte* const word = w.word_of(a);
    word[3] ^= std::byte{1};
    CHECK(faults() > 0);
    word[3] ^= std::byte{1};
    w.check();
  }
}

TEST_CASE("a checksum or a version tells every mixture of two states of an object") {
  using namespace fm::protocol::blocks;
  std::mt19937_64 random(9);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t bytes = 41 + static_cast<std::uint32_t>(random() % 400);
    std::vector<std::byte> before(bytes), after(bytes), mixed(bytes);
    for (std::uint32_t i = 0; i < bytes; ++i) {
      before[i] = static_cast<std::byte>(random());
      after[i] = static_cast<std::byte>(random());
    }
    object_header h{3, 4, 5, flag_live, 6, bytes, 0};
    h.crc = checksum(h, before.data());
    object_header g = h;
    g.version = 7;
    g.crc = checksum(g, after.data());
    CHECK(h.crc != g.crc);
    mixed = before;
    mixed[random() % bytes] ^= std::byte{64};
    CHECK(checksum(h, mixed.data()) != h.crc);
    CHECK(checksum(g, before.data()) != g.crc);

    const std::uint32_t n = occupied_bytes(bytes, consistency::versions);
    std::vector<std::byte> slot(n), newer(n), got(bytes);
    scatter_lines(slot.data(), 6, before.data(), bytes);
    scatter_lines(newer.data(), 7, after.data(), bytes);
    REQUIRE(gather_lines(slot.data(), 6, got.data(), bytes));
    CHECK(got == before);
    const std::uint32_t line = 64 * (1 + static_cast<std::uint32_t>(random() % ((n - 65) / 64 + 1)));
    std::copy_n(newer.begin() + line, std::min(64u, n - line), slot.begin() + line);
    CHECK_FALSE(gather_lines(slot.data(), 6, got.data(), bytes));
  }
}

TEST_CASE("size classes grow, hold what they say, and fit into their blocks") {
  using namespace fm::protocol::blocks;
  for (const std::uint64_t region : {64_KiB, 1_MiB, 32_MiB})
    for (const std::uint32_t block : {4096u, 65536u})
      for (const std::uint32_t versions : {0u, 500u, ~0u}) {
        const layout l{region, block, versions, versions == 0};
        CHECK(layout{region, block, versions}.class_for(30) == 1);
        std::uint32_t before = 0;  // capacity of the last class, by the size of slots
        for (const std::uint32_t c : classes_in_order) {
          if (!l.exists(c)) continue;
          CHECK(l.slots(c) >= 1);
          CHECK(l.slots(c) < 0xffff);
          CHECK(l.block(c) <= region);
          CHECK(occupied_bytes(l.capacity(c), l.mode(c)) <= slot_bytes(c));
          CHECK(l.class_for(l.capacity(c)) == c);
          CHECK(l.class_for(before + 1) == c);
          CHECK(slot_bytes(line_class(c)) >= slot_bytes(c));
          before = l.capacity(c);
          // A version stands at the beginning of each line.
          if (versions != 0) CHECK((slot_bytes(c) % 64 == 0 || 64 % slot_bytes(c) == 0));
          CHECK(slot_bytes(c) % 8 == 0);
        }
        CHECK(before == l.bytes_max());
        CHECK(l.class_for(l.bytes_max()) < class_count);
        CHECK(l.class_for(l.bytes_max() + 1) == class_count);
        CHECK(l.class_for(1) == 0);
      }
}
