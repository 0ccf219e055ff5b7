// The arena by itself: runs of segments for large objects, whose memory is kept, and segments that collections have emptied.
#include "cache/frames/arena.h"
#include "support/effort.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

using namespace fm;
using namespace fm::detail;

namespace {

constexpr std::uint64_t segment_bytes = 64 << 10;

segment* take(arena& a, std::uint32_t span) {
  segment* const s = a.take(span, 0);
  if (s != nullptr) s->used = 8;
  return s;
}

}  // namespace

TEST_CASE("a run that was released is taken again, the last one first") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  segment* const first = take(a, 4);
  segment* const second = take(a, 4);
  segment* const third = take(a, 7);
  a.release(*first);
  a.release(*third);
  a.release(*second);
  REQUIRE(take(a, 4) == second);
  REQUIRE(take(a, 4) == third);
  segment* const small = take(a, 3);  // what is left of it
  REQUIRE(small == third + 4);
  REQUIRE(take(a, 4) == first);
  REQUIRE(a.available() == 64 - 4 - 7 - 4);
}

TEST_CASE("a segment that a frame will be used in is swept after the section in which that happens") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  segment* const held = take(a, 1);
  segment* const other = take(a, 1);
  for (segment* s : {held, other}) a.retire(*s, 8, false);
  while (segment* s = a.next_to_cool()) a.enter_cooled(*s, epochs::stamp());
  const auto passed_below = [] {
    epochs::try_pass(epochs::current.load() - 1);
    return epochs::passed_.load();
  };
  std::atomic<int> step{0};
  const auto await = [&](int n) {
    while (step != n) std::this_thread::yield();
  };
  held->hold();  // by a thread that has bumped a frame, and waits outside of its section
  REQUIRE(a.next_to_sweep(passed_below(), false) == other);
  REQUIRE(a.next_to_sweep(passed_below(), false) == nullptr);
  REQUIRE(a.awaited_stamp() == 0);  // others that come are not held up by it
  std::thread enters_again([&] {
    {
      const section gives_the_frame_its_word;
      held->end_hold();
      step = 1;
      await(2);
    }
    step = 3;
  });
  await(1);
  for (int i = 0; i < 3; ++i) REQUIRE(a.next_to_sweep(passed_below(), false) == nullptr);
  step = 2;
  await(3);
  REQUIRE(a.next_to_sweep(passed_below(), false) == held);
  REQUIRE(a.queue_lengths().active == 0);
  enters_again.join();
}

TEST_CASE("single segments do not take runs apart while there are others") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  segment* const alone = take(a, 1);
  segment* const run = take(a, 8);
  a.release(*run);
  a.release(*alone);
  REQUIRE(take(a, 1) == alone);
  REQUIRE(take(a, 8) == run);
}

TEST_CASE("an empty arena has room for the largest run, whatever has become of its memory") {
  arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
  std::vector<segment*> kept;
  for (int round = 0; round < 25; ++round) {
    kept.push_back(take(a, 2));
    segment* const passing = take(a, 14);
    REQUIRE(kept.back() != nullptr);
    if (passing != nullptr) a.release(*passing);
  }
  for (segment* s : kept) a.release(*s);
  REQUIRE(a.available() == 64);
  for (const std::uint32_t span : {17u, 33u, 64u}) {
    segment* const large = take(a, span);
    REQUIRE(large != nullptr);
    a.release(*large);
    REQUIRE(a.available() == 64);
  }
}

TEST_CASE("runs of all lengths come and go, and what is available can be had") {
  std::mt19937_64 random(7);
  for (int world = 0; world < 20; ++world) {
    arena a(64 * segment_bytes, 64 * segment_bytes, segment_bytes, false);
    std::vector<segment*> held;
    std::uint32_t used = 0;
    for (std::uint64_t step = 0; step < fm::test::effort(2'000); ++step) {
      const auto span = static_cast<std::uint32_t>(random() % 3 == 0 ? 1 + random() % 20 : 1);
      if (segment* const s = random() % 2 == 0 ? take(a, span) : nullptr) {
        REQUIRE(s->span == span);
        used += span;
        for (const segment* o : held) REQUIRE((o + o->span <= s || s + span <= o));
        held.push_back(s);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        used -= held.back()->span;
        a.release(*held.back());
        held.pop_back();
      }
      REQUIRE(a.available() == 64 - used);
    }
    for (segment* s : held) a.release(*s);
    REQUIRE(take(a, 64) != nullptr);
  }
}
