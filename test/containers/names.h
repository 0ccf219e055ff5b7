// Keys that are short names, and are looked up as text.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace fm::test {

/// A name of at most 15 bytes.
struct name {
  std::array<char, 16> text{};
  static name of(std::string_view s) {
    name n;
    std::copy(s.begin(), s.end(), n.text.begin());
    return n;
  }
  [[nodiscard]] constexpr std::string_view view() const { return text.data(); }
};

}  // namespace fm::test
