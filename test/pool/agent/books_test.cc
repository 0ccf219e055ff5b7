// What the agent keeps of a pool beside its frames: how much that is, that it goes back, and that it leads to objects.
#include <random>
#include <unordered_map>

#include "pool/agent/blocks_fixture.h"

namespace {

using namespace blocks_test;
using fm::agent::bitmap;
using fm::agent::slot_index;

/// A pool of 64 MiB in blocks of 64 KiB, as they are by default, and objects of 32 bytes.
struct large {
  static constexpr std::uint64_t region = 1_MiB;
  fm::agent::region_pool regions{64 * region, region, 0.0, false};
  const fm::agent::owner_key key{{1, 2}, 3};
  pool_frames frames{regions, key, this, 64 * region};
  pool_blocks blocks{frames, settings{.block = 64_KiB}.options(region, 1)};

  std::vector<where> make(std::size_t n) {
    const std::array<std::byte, 32> payload{};
    std::vector<where> all(n);
    for (where& at : all) REQUIRE(blocks.allocate(payload, 0, at) == errc::ok);
    return all;
  }
  void compact() {
    blocks.begin_round();
    while (blocks.compact_step()) {
    }
    while (blocks.reclaim(blocks.epoch())) {
    }
  }
  [[nodiscard]] std::uint64_t faults() const {
    std::string text;
    const audit_answer a = blocks.audit(text);
    INFO(text);
    CHECK(a.metadata_bytes == blocks.books_bytes());
    return a.faults;
  }
};

}  // namespace

TEST_CASE("a pool's books are a few bytes an object, also after most were freed and the rest was compacted") {
  large w;
  const std::uint64_t empty = w.blocks.books_bytes();
  std::vector<where> all = w.make(600'000);
  // A bit a slot, and the frames' records.
  CHECK((w.blocks.books_bytes() - empty) * 8 < all.size() * 4);
  std::mt19937_64 random(3);
  std::size_t live = 0;
  for (where& at : all)
    if (random() % 10 == 0)
      all[live++] = at;
    else
      REQUIRE(w.blocks.free(at) == errc::ok);
  all.resize(live);
  const std::uint64_t frames_before = w.frames.used_bytes();
  w.compact();
  CHECK(w.frames.used_bytes() < frames_before / 5);
  CAPTURE(live, w.blocks.books_bytes(), empty);
  CHECK(w.blocks.books_bytes() - empty <= 4 * live);
  CHECK(w.faults() == 0);
  for (const where& at : all) {
    where old = at;  // its slot is the one it was born in
    std::vector<std::byte> out;
    REQUIRE(w.blocks.read(old, out) == errc::ok);
    REQUIRE(w.blocks.free(at) == errc::ok);
  }
  w.compact();
  CHECK(w.faults() == 0);
  // Blocks that there were once: what generations go on from, and numbers.
  CHECK(w.blocks.books_bytes() - empty <= 600'000 / 1024 * 64);
}

TEST_CASE("an index of slots finds what is in it and nothing else, and shrinks with it") {
  std::mt19937_64 random(7);
  slot_index index;
  std::unordered_map<std::uint16_t, std::uint32_t> inside;  // slot, hash
  const auto hash_of = [&](std::uint16_t slot) { return inside.at(slot); };
  std::size_t most = 0;
  for (int round = 0; round < 40'000; ++round) {
    const std::size_t wanted = round / 5'000 % 2 == 0 ? 3'000 : 10;  // it grows and shrinks
    const auto slot = static_cast<std::uint16_t>(random() % 4096);
    const auto known = inside.find(slot);
    if (known == inside.end() && inside.size() < wanted) {
      // Few different hashes, so that many are in each other's way.
      const auto hash = static_cast<std::uint32_t>(random() % 64 << 26 | random() % 2);
      inside[slot] = hash;
      index.add(hash, slot, hash_of);
    } else if (known != inside.end() && (inside.size() > wanted || random() % 2 == 0)) {
      index.remove(known->second, slot, hash_of);
      inside.erase(known);
    }
    most = std::max(most, inside.size());
    REQUIRE(index.size() == inside.size());
    REQUIRE(index.bytes() <= 4 * inside.size() + 32);
    const auto other = static_cast<std::uint16_t>(random() % 4096);
    const auto at = inside.find(other);
    const std::uint32_t hash = at == inside.end() ? static_cast<std::uint32_t>(random() % 64 << 26) : at->second;
    const std::uint16_t found = index.find(hash, [&](std::uint16_t s) { return s == other; });
    REQUIRE(found == (at == inside.end() ? slot_index::no_slot : other));
  }
  CHECK(most > 1'000);
  while (!inside.empty()) {
    const auto [slot, hash] = *inside.begin();
    index.remove(hash, slot, hash_of);
    inside.erase(slot);
  }
  CHECK(index.bytes() == 0);
}
