// Copies of all sizes and places: the same bytes, and none beside them.
#include "base/base.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

using namespace fm::detail;

TEST_CASE("copy_bytes copies exactly what it is asked for, wherever both lie in their pages") {
  constexpr std::size_t room = 4 * page_bytes;
  std::vector<unsigned char> from(room), to(room);
  for (std::size_t i = 0; i < room; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
  const auto begin_of_page = [](std::vector<unsigned char>& v) {
    const auto at = reinterpret_cast<std::uintptr_t>(v.data());
    return v.data() + (round_up(at, page_bytes) - at);
  };
  unsigned char *const source = begin_of_page(from), *const target = begin_of_page(to);
  std::size_t wrong = 0;
  for (const std::size_t at : {0, 8, 40})
    for (const std::size_t further : {0, 1, 8, 24, 63, 64, 2048})
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, std::size_t{64}, limits::copy_piece, limits::copy_piece + 1,
            2 * limits::copy_piece, 2 * limits::copy_piece + 5, page_bytes + 3}) {
        std::fill(to.begin(), to.end(), 0);
        unsigned char* const where = target + at + further;
        copy_bytes(where, source + at, n);
        const auto expected = [&](const unsigned char* p) -> unsigned char {
          return p >= where && p < where + n ? source[at + static_cast<std::size_t>(p - where)] : 0;
        };
        for (std::size_t i = 0; i < room; ++i) wrong += to[i] != expected(&to[i]);
      }
  CHECK(wrong == 0);
}
