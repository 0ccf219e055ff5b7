// Segments that several bumps fill: pieces, tails and fillers. A segment that enters its queue is frames and nothing
// else, whatever came back in which order.
#include "cache/frames/shared_segments.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace fm;
using namespace fm::detail;

namespace {

constexpr std::uint64_t segment_bytes = 64 << 10;

// As bump_frame writes it.
void put_frame(piece& p, std::uint64_t bytes) {
  make_filler(p.at, bytes);
  p.at += bytes;
}

// The bytes of frames in segments that are in a queue; all of them are tiled.
std::uint64_t tiled(arena& a) {
  std::uint64_t sum = 0;
  a.for_each([&](segment& s) {
    if (s.state.load() == segment_state::filling) return;
    const char* const end = s.base + s.used;
    char* at = s.base + 8;
    while (at < end) {
      const std::uint64_t total = frame::total_bytes_of(at + sizeof(frame_prefix));
      REQUIRE(total != 0);
      at += total;
    }
    REQUIRE(at == end);
    sum += s.used - 8 - s.filler;
  });
  return sum;
}

}  // namespace

TEST_CASE("a bump that is alone goes on in the same piece, and fills its segment") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  shared_segments shared(a, {});
  piece p;
  REQUIRE(shared.exchange(p, fill_kind::made, 240, 1024, 0) == shared_segments::got::segment);
  const segment* const first = p.seg;
  std::uint64_t frames = 0;
  while (p.seg == first) {
    put_frame(p, 240);
    ++frames;
    if (p.room() < 240) shared.exchange(p, fill_kind::made, 240, 1024, 0);
  }
  REQUIRE(frames == (segment_bytes - 16) / 240);
  REQUIRE(first->filler == 0);
  REQUIRE(tiled(a) == frames * 240);
}

TEST_CASE("what one piece does not use is the next piece's") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  shared_segments shared(a, {});
  piece idle, busy;
  shared.exchange(idle, fill_kind::made, 48, 4096, 0);
  put_frame(idle, 48);
  shared.exchange(busy, fill_kind::made, 48, 4096, 0);
  put_frame(busy, 48);
  char* const left = idle.at;
  shared.give_back(idle);
  REQUIRE(idle.seg == nullptr);
  piece next;
  REQUIRE(shared.exchange(next, fill_kind::made, 1000 / 16 * 16, 0, 0) == shared_segments::got::room);
  REQUIRE(next.at == left);
  REQUIRE(a.available() == 63);
}

TEST_CASE("a bump that may wait takes nothing of what another one has opened that may not") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  shared_segments shared(a, {});
  while (a.available() > 10) a.take(1, 0);
  piece urgent, patient;
  REQUIRE(shared.exchange(patient, fill_kind::made, 240, 1024, 10) == shared_segments::got::nothing);
  REQUIRE(shared.exchange(urgent, fill_kind::made, 240, 1024, 0) == shared_segments::got::segment);
  REQUIRE(shared.exchange(patient, fill_kind::made, 240, 1024, 10) == shared_segments::got::nothing);
  REQUIRE(shared.exchange(patient, fill_kind::made, 240, 1024, 9) == shared_segments::got::room);
}

TEST_CASE("one object of each of thousands of bumps costs what the objects cost") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  shared_segments shared(a, {});
  for (int i = 0; i < 5000; ++i) {
    piece p;
    REQUIRE(shared.exchange(p, fill_kind::made, 48, 4096, 0) != shared_segments::got::nothing);
    put_frame(p, 48);
    shared.give_back(p);
  }
  REQUIRE(64 - a.available() == (5000 * 48 + segment_bytes - 1) / segment_bytes);
}

TEST_CASE("segments are tiled by frames, whatever pieces came back in which order") {
  std::mt19937_64 random(11);
  for (int world = 0; world < 20; ++world) {
    arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
    shared_segments shared(a, {});
    std::array<std::vector<piece>, 3> pieces;
    for (auto& of_kind : pieces) of_kind.resize(1 + random() % 12);
    std::uint64_t written = 0;
    for (int step = 0; step < 3000; ++step) {
      const std::size_t kind = random() % 3;
      piece& p = pieces[kind][random() % pieces[kind].size()];
      if (random() % 8 == 0) {
        shared.give_back(p);
        continue;
      }
      if (random() % 400 == 0) shared.close();
      const std::uint64_t bytes = 32 + random() % 64 * 16 + (random() % 50 == 0 ? 32 << 10 : 0);
      if (p.room() < bytes) {
        const std::uint64_t wish = random() % 3 == 0 ? 0 : random() % 8192 / 16 * 16;
        if (shared.exchange(p, static_cast<fill_kind>(kind), bytes, wish, 0) == shared_segments::got::nothing) break;
      }
      REQUIRE(p.room() >= bytes);
      put_frame(p, bytes);
      written += bytes;
      REQUIRE(shared.lingering() <= 64 / limits::filling_share + pieces[0].size() * 2);
    }
    for (auto& of_kind : pieces)
      for (piece& p : of_kind) shared.give_back(p);
    shared.close();
    REQUIRE(shared.lingering() == 0);
    REQUIRE(tiled(a) == written);
  }
}
