#include "cache/frames/busy_word.h"

#include <catch2/catch.hpp>
#include <new>

TEST_CASE("a look at a cold frame that fails for want of memory leaves its word free") {
  alignas(16) static char frame[64];
  std::atomic<fm::detail::word_t> word{fm::detail::word::resident(frame + 32, fm::detail::word::cold_bit)};
  const auto before = word.load();
  REQUIRE_THROWS_AS(fm::detail::with_frame(word,
                                           [&](const fm::detail::held_frame& f) {
                                             REQUIRE(f.is_busy);
                                             REQUIRE(fm::detail::word::is_busy(word.load()));
                                             throw std::bad_alloc();
                                           }),
                    std::bad_alloc);
  REQUIRE(word.load() == before);
  int looks = 0;
  REQUIRE(fm::detail::with_frame(word, [&](const fm::detail::held_frame&) { ++looks; }));
  REQUIRE(looks == 1);
}
