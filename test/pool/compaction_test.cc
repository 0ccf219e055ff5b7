// Compaction of a pool's blocks, without clients: what it guarantees, where it puts objects, and that what is changed between its
// steps is not lost.
#include "pool/agent/blocks_fixture.h"

namespace {

using namespace blocks_test;

/// What is promised after a round: no two blocks of a class whose objects fit into one.
void check_packed(const world& w) {
  std::vector<std::uint32_t> fill = w.blocks.fill(w.size_class());
  std::sort(fill.begin(), fill.end());
  CAPTURE(w.slots());
  if (!fill.empty()) CHECK(fill.front() > 0);
  if (fill.size() >= 2) CHECK(fill[0] + fill[1] > w.slots());
  CHECK(std::count_if(fill.begin(), fill.end(), [&](std::uint32_t n) { return n * 2 <= w.slots(); }) <= 1);
}

/// The same threshold for every class.
pool_blocks::thresholds above(std::uint32_t share) {
  pool_blocks::thresholds all{};
  all.fill(share);
  return all;
}

}  // namespace

TEST_CASE("after a round of compaction no two blocks have objects that fit into one") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    world w({.versions_upto = seed % 2 == 0 ? 0u : ~0u, .arenas = 1 + static_cast<std::uint32_t>(seed % 3)});
    std::map<std::uint64_t, where> all;
    const std::uint64_t keep = 1 + random() % 9;
    for (std::uint64_t i = 0; i < 4000; ++i) all[i] = w.make(i, static_cast<std::uint32_t>(random()));
    for (std::uint64_t i = 0; i < 4000; ++i)
      if (random() % 10 >= keep) {
        REQUIRE(w.blocks.free(all[i]) == errc::ok);
        all.erase(i);
      }
    w.compact();
    check_packed(w);
    w.check();
    for (auto& [i, at] : all) CHECK(w.value(at) == i);
    // Fewer blocks than two for each that the objects would fill.
    CHECK(w.blocks.fill(w.size_class()).size() <= 2 * (all.size() / w.slots() + 1));
    CHECK(w.compact() > 0);
    check_packed(w);
    for (auto& [i, at] : all) REQUIRE(w.blocks.free(at) == errc::ok);
    w.compact();
    CHECK(w.blocks.fill(w.size_class()).empty());
    w.check();
  }
}

TEST_CASE("an object keeps its slot in a merge, or goes to the next free one") {
  world w;
  const std::uint32_t slots = w.slots();
  std::vector<where> all;
  for (std::uint64_t i = 0; i < std::uint64_t{2} * slots; ++i) all.push_back(w.make(i));
  // In the first block slots 0 to 9 live, in the second 5 to 14.
  std::map<std::uint64_t, where> kept;
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const std::uint64_t block = i / slots, slot = i % slots;
    REQUIRE(all[i].slot == slot);
    if (block == 0 ? slot < 10 : slot >= 5 && slot < 16)
      kept[i] = all[i];
    else
      REQUIRE(w.blocks.free(all[i]) == errc::ok);
  }
  w.compact();
  CHECK(w.blocks.counts(w.size_class()).merges_made == 1);
  for (auto& [i, at] : kept) {
    where now = at;
    CHECK(w.value(now) == i);
    if (i >= slots) {
      CHECK(now.slot == at.slot);  // the fuller block's stay
    } else if (at.slot < 5) {
      CHECK(now.slot == at.slot);
    } else {
      CHECK(now.slot >= 16);
      CHECK(now.slot < 21);
    }
  }
  CHECK(w.blocks.counts(w.size_class()).slots_kept == 5);
  w.check();
}

TEST_CASE("what is written, freed and released between the steps of a merge is as if nobody merged") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    world w({.versions_upto = seed % 2 == 0 ? 0u : ~0u,
             .wanted = seed % 3 == 0   ? naming::random_16
                       : seed % 3 == 1 ? naming::offset
                                       : naming::birth});
    std::map<std::uint64_t, std::pair<where, std::uint64_t>> all;  // id; value
    std::vector<where> dead;
    std::uint64_t next = 0;
    for (; next < 1500; ++next) all[next] = {w.make(next), next};
    while (all.size() > 400) {
      auto at = all.lower_bound(random() % next);
      if (at == all.end()) continue;
      REQUIRE(w.blocks.free(at->second.first) == errc::ok);
      all.erase(at);
    }
    w.blocks.begin_round();
    while (w.blocks.compact_step(1 + static_cast<std::uint32_t>(random() % 7))) {
      auto at = all.lower_bound(random() % next);
      if (at == all.end()) continue;
      where& o = at->second.first;
      switch (random() % 5) {
        case 0: w.write(o, ++at->second.second); break;
        case 1:
          REQUIRE(w.blocks.free(o) == errc::ok);
          dead.push_back(o);
          all.erase(at);
          break;
        case 2: {
          const where before = o;
          REQUIRE(w.blocks.release(o) == errc::ok);
          if (!(o.id == before.id)) dead.push_back(before);
          break;
        }
        case 3:
          all[next] = {w.make(next), next};
          ++next;
          break;
        default: CHECK(w.value(o) == at->second.second);
      }
      if (random() % 16 == 0) w.check();
    }
    w.check();
    for (auto& [id, o] : all) CHECK(w.value(o.first) == o.second);
    for (const where& d : dead) CHECK(w.code(d) == errc::not_found);
    w.blocks.reclaim(w.blocks.epoch());
    w.check();
  }
}

TEST_CASE("a step of compaction moves no more than it is told") {
  world w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 2000; ++i) all.push_back(w.make(i));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 4 != 0) REQUIRE(w.blocks.free(all[i]) == errc::ok);
  w.blocks.begin_round();
  int steps = 0;
  while (w.blocks.compact_step(2)) ++steps;
  CHECK(steps > 150);  // more than 300 objects move
  w.check();
}

TEST_CASE("a step of compaction looks at no more blocks than it is told, however many there are") {
  for (const naming wanted : {naming::birth, naming::offset}) {
    world w({.wanted = wanted});
    std::vector<where> all;
    for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(w.make(i));
    std::mt19937_64 random(4);
    for (const where& at : all)
      if (random() % (wanted == naming::birth ? 3 : 20) != 0) REQUIRE(w.blocks.free(at) == errc::ok);
    REQUIRE(w.blocks.fill(w.size_class()).size() >= 300);
    constexpr std::uint32_t looks = 16;
    w.blocks.begin_round();
    std::uint64_t before = w.blocks.looked_at(), most = 0;
    while (w.blocks.compact_step(256, 128_KiB, looks)) {
      most = std::max(most, w.blocks.looked_at() - before);
      before = w.blocks.looked_at();
    }
    CHECK(most >= looks);
    CHECK(most <= looks + (wanted == naming::birth ? 1 : fm::agent::limits::merge_tries_max * looks));
    CHECK(w.blocks.counts(w.size_class()).merges_made > 0);
    if (wanted == naming::birth) check_packed(w);
    w.check();
    // What was emptied comes back a few at a time as well.
    const std::uint64_t graves = w.blocks.graves();
    REQUIRE(graves > 50);
    CHECK(w.blocks.reclaim(w.blocks.epoch(), 10));
    CHECK(w.blocks.graves() == graves - 10);
    w.check();
  }
}

TEST_CASE("virtual blocks whose objects were released are used again") {
  world w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(w.make(i));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 8 != 0) REQUIRE(w.blocks.free(all[i]) == errc::ok);
  w.compact();
  const std::uint64_t mapped = w.blocks.vblocks_mapped(), blocks = w.blocks.fill(w.size_class()).size();
  CHECK(mapped > blocks);
  for (std::size_t i = 0; i < all.size(); i += 8) REQUIRE(w.blocks.release(all[i]) == errc::ok);
  CHECK(w.blocks.vblocks_mapped() == blocks);
  w.check();
  for (std::uint64_t i = 0; i < 1000; ++i) (void)w.make(i);
  CHECK(w.blocks.vblocks_reused() > 0);
  for (std::size_t i = 0; i < all.size(); i += 8) CHECK(w.value(all[i]) == i);
  w.check();
}

TEST_CASE("blocks with an id in common are not merged, and those without are") {
  world w({.wanted = naming::random_8});
  REQUIRE(w.blocks.naming(w.size_class()) == naming::random_8);
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 4000; ++i) all.push_back(w.make(i));
  std::map<std::uint64_t, where> kept;
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (i % 6 == 0)
      kept[i] = all[i];
    else
      REQUIRE(w.blocks.free(all[i]) == errc::ok);
  w.compact();
  const auto& c = w.blocks.counts(w.size_class());
  CHECK(c.merges_made > 0);
  CHECK(c.merges_in_conflict > 0);  // two times ten of 256 ids have one in common one time in three
  CHECK(c.ids_in_conflict >= c.merges_in_conflict);
  w.check();
  for (auto& [i, at] : kept) CHECK(w.value(at) == i);
}

TEST_CASE("objects that keep their offsets are merged when no two have the same, and stay where they are") {
  world w({.wanted = naming::offset});
  const std::uint32_t slots = w.slots();
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 4 * std::uint64_t{slots}; ++i) all.push_back(w.make(i));
  std::map<std::uint64_t, where> kept;
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (i % slots % 4 == i / slots)  // of every block another quarter
      kept[i] = all[i];
    else
      REQUIRE(w.blocks.free(all[i]) == errc::ok);
  w.compact();
  const auto& c = w.blocks.counts(w.size_class());
  CHECK(w.blocks.fill(w.size_class()) == std::vector<std::uint32_t>{slots});
  CHECK(c.merges_made == 3);
  CHECK(c.slots_kept == c.objects_moved);
  w.check();
  for (auto& [i, at] : kept) {
    where now = at;
    CHECK(w.value(now) == i);
    CHECK(now.slot == at.slot);
  }
}

TEST_CASE("every class has the identities that were asked for it") {
  settings s{.wanted = naming::random_16};
  const std::uint32_t mine = world().size_class();
  s.names[mine] = naming::random_8;
  s.names[mine + 1] = naming::offset;
  const world w(s);
  CHECK(w.blocks.naming(mine) == naming::random_8);
  CHECK(w.blocks.naming(mine + 1) == naming::offset);
  CHECK(w.blocks.naming(mine + 2) == naming::random_16);
}

TEST_CASE("classes whose blocks have too many objects for random ids use birth, or are left alone") {
  // 16 KiB in slots of 64: 256 objects, which are more than 8 bits have room for.
  world births({.block = 16384, .wanted = naming::random_8});
  CHECK(births.blocks.naming(births.size_class()) == naming::birth);
  CHECK(births.blocks.compactable(births.size_class()));
  world hybrid({.block = 16384, .wanted = naming::random_8, .otherwise = fallback::offset});
  CHECK(hybrid.blocks.naming(hybrid.size_class()) == naming::offset);
  CHECK(hybrid.blocks.compactable(hybrid.size_class()));
  world corm({.block = 16384, .wanted = naming::random_8, .otherwise = fallback::none});
  CHECK_FALSE(corm.blocks.compactable(corm.size_class()));
  for (world* w : {&births, &hybrid, &corm}) {
    std::vector<where> all;
    for (std::uint64_t i = 0; i < 2000; ++i) all.push_back(w->make(i));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % 8 != 0) REQUIRE(w->blocks.free(all[i]) == errc::ok);
    w->compact();
    w->check();
    for (std::size_t i = 0; i < all.size(); i += 8) CHECK(w->value(all[i]) == i);
  }
  CHECK(births.blocks.counts(births.size_class()).merges_made > 0);
  // What was freed leaves the same slots of every block.
  CHECK(hybrid.blocks.counts(hybrid.size_class()).merges_made == 0);
  CHECK(hybrid.blocks.counts(hybrid.size_class()).merges_in_conflict > 0);
  CHECK(corm.blocks.counts(corm.size_class()).merges_made == 0);
}

TEST_CASE("a class is sparse when it has too many free slots and has lost a block's worth of objects") {
  world w;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(w.make(i));
  CHECK_FALSE(w.blocks.is_sparse(above(32768)));
  for (std::size_t i = 0; i < 700; ++i) REQUIRE(w.blocks.free(all[i / 10 * 10 + i % 10]) == errc::ok);
  for (std::size_t i = 700; i < all.size(); ++i)
    if (i % 8 != 0) REQUIRE(w.blocks.free(all[i]) == errc::ok);
  CHECK(w.blocks.is_sparse(above(32768)));
  CHECK_FALSE(w.blocks.is_sparse(above(0)));
  pool_blocks::thresholds own = above(0);
  own[w.size_class()] = 32768;
  CHECK(w.blocks.is_sparse(own));
  own = above(32768);
  own[w.size_class()] = 65536;
  CHECK_FALSE(w.blocks.is_sparse(own));
  w.blocks.begin_round(own);  // of no class
  while (w.blocks.compact_step()) {
  }
  CHECK(w.blocks.counts(w.size_class()).merges_tried == 0);
  w.compact();
  CHECK_FALSE(w.blocks.is_sparse(above(32768)));
  w.check();
}
