// What some numbers of a graph reach, for the shadows that tests keep of their objects. 0 is no node.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace fm::test {

class reached {
 public:
  /// Where to start; as often as is needed.
  void from(std::uint64_t id) {
    if (id != 0 && seen_.insert(id).second) open_.push_back(id);
  }
  /// Everything from there on; `edges(id)` is a range of numbers.
  template <class Edges>
  const std::set<std::uint64_t>& along(Edges&& edges) {
    while (!open_.empty()) {
      const std::uint64_t id = open_.back();
      open_.pop_back();
      for (const std::uint64_t next : edges(id)) from(next);
    }
    return seen_;
  }

 private:
  std::set<std::uint64_t> seen_;
  std::vector<std::uint64_t> open_;
};

}  // namespace fm::test
