// The agent's half of a pool in a test's hands: frames over regions of its own, blocks in them.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agent/pools/blocks/blocks.h"

namespace blocks_test {

using namespace fm;
using namespace fm::literals;
using fm::agent::pool_blocks;
using fm::agent::pool_frames;
using fm::protocol::audit_answer;
using fm::protocol::blocks::fallback;
using fm::protocol::blocks::naming;
using fm::protocol::blocks::place;
using where = pool_blocks::where;

struct settings {
  std::uint32_t block = 4096;
  std::uint32_t versions_upto = 0;
  std::uint32_t arenas = 1;
  naming wanted = naming::birth;
  fallback otherwise = fallback::birth;
  pool_blocks::names names{};  ///< of single classes, in place of `wanted`
  void (*in_frame)(void* context, std::uint32_t frame) = nullptr;
  void* context = nullptr;
  const fm::agent::environment* agent = nullptr;  ///< by whose clock objects expire

  [[nodiscard]] pool_blocks::options options(std::uint64_t region, std::uint32_t first_generation) const {
    pool_blocks::options o{
        {region, block, versions_upto}, arenas, names, otherwise, first_generation, in_frame, context, agent};
    for (naming& n : o.wanted)
      if (n == naming::birth) n = wanted;
    return o;
  }
};

struct world {
  static constexpr std::uint64_t region = 256_KiB;
  fm::agent::region_pool regions{16 * region, region, 0.0, false};
  const fm::agent::owner_key key{{1, 2}, 3};
  pool_frames frames{regions, key, this, 12 * region};
  pool_blocks blocks;

  explicit world(const settings& s = {}, std::uint32_t first_generation = 1)
      : blocks(frames, s.options(region, first_generation)) {}

  /// An object of 24 bytes whose words are all `value`.
  where make(std::uint64_t value, std::uint32_t arena = 0, std::uint64_t expires_ms = 0) {
    const std::array<std::uint64_t, 3> words{value, value, value};
    where at;
    REQUIRE(blocks.allocate(std::as_bytes(std::span(words)), arena, at, fm::agent::held::exclusive, expires_ms) ==
            errc::ok);
    return at;
  }
  std::uint64_t value(where& at) {
    std::vector<std::byte> out;
    REQUIRE(blocks.read(at, out) == errc::ok);
    REQUIRE(out.size() == 24);
    std::array<std::uint64_t, 3> words;
    std::memcpy(words.data(), out.data(), 24);
    REQUIRE((words[0] == words[1] && words[1] == words[2]));
    return words[0];
  }
  std::uint64_t value(const where& at) {
    where copy = at;
    return value(copy);
  }
  errc code(where at) {
    std::vector<std::byte> out;
    return blocks.read(at, out);
  }
  void write(where& at, std::uint64_t value) {
    const std::array<std::uint64_t, 3> words{value, value, value};
    std::uint32_t bytes = 0;
    REQUIRE(blocks.write(at, std::as_bytes(std::span(words)), bytes) == errc::ok);
  }
  /// One round of compaction; how many steps it took.
  int compact() {
    blocks.begin_round();
    int steps = 1;
    while (blocks.compact_step()) ++steps;
    return steps;
  }
  std::byte* memory_of(const where& at) const {
    using namespace fm::protocol::blocks;
    return frames.memory(place_of(at.word)) + std::size_t{at.slot} * slot_bytes(class_of(at.word));
  }
  std::byte* word_of(const where& at) const {
    using namespace fm::protocol::blocks;
    return frames.memory(blocks.chunk(at.id.vblock / chunk_words)) + at.id.vblock % chunk_words * 8;
  }
  /// The class of make()'s objects.
  [[nodiscard]] std::uint32_t size_class() const { return blocks.layout().class_for(24); }
  [[nodiscard]] std::uint32_t slots() const { return blocks.layout().slots(size_class()); }
  void check() const {
    std::string text;
    const audit_answer a = blocks.audit(text);
    INFO(text);
    CHECK(a.faults == 0);
  }
};

}  // namespace blocks_test
