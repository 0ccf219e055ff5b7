// A document as the program hands it in and gets it back, whatever keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::example {

struct document {
  std::uint64_t id = 0;
  std::uint32_t year = 0;
  std::string author;
  std::string text;
  std::vector<std::string> tags;
  friend bool operator==(const document&, const document&) = default;
};

}  // namespace fm::example
