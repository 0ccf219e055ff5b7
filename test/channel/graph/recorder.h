// Keeps the stream that a graph_writer makes, as words. For tests that change streams, and for the fuzzer.
#pragma once

#include "channel/graph/graph_writer.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace channel_test {

class recorder final : public fm::detail::part_sink {
 public:
  std::span<char> next(std::size_t used) override {
    keep(used);
    return buffer_;
  }
  /// So many bytes of the last part belong to the stream.
  void keep(std::size_t used) {
    if (used == 0) return;
    const std::size_t at = all.size();
    all.resize(at + used / 8);
    std::memcpy(all.data() + at, buffer_.data(), used);
  }
  std::vector<std::uint64_t> all;

 private:
  std::vector<char> buffer_ = std::vector<char>(1024);
};

}  // namespace channel_test
