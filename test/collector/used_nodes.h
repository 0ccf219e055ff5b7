// Nodes that several threads make, read and write at random, each its own, and what they should hold.
#pragma once

#include "fixture.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace gc_test {

class used_nodes {
 public:
  static constexpr std::size_t threads = 4;
  static constexpr std::uint64_t each = 15'000;

  explicit used_nodes(fm::heap& h) : heap_(h), mine_(threads), values_(threads) {
    for (std::size_t t = 0; t < threads; ++t)
      for (std::uint64_t i = 0; i < each; ++i) {
        mine_[t].push_back(h.make<gc_node>({.id = i}));
        values_[t].push_back(i);
      }
  }
  void use(std::size_t t, std::uint64_t random) {
    const std::uint64_t i = (random >> 33) % each;
    switch (random >> 61) {
      case 0:
        mine_[t][i] = heap_.make<gc_node>({.id = i});
        values_[t][i] = i;
        break;
      case 1:
      case 2:
        mine_[t][i].write()->id = values_[t][i] + each;
        values_[t][i] += each;
        break;
      case 3: {
        // A scope that holds an object cannot be left: whoever waits in it waits inside.
        fm::scope s;
        const gc_node* const held = mine_[t][i].get(s);
        const std::uint64_t other = (i + 7919) % each;
        if (mine_[t][other].get(s)->id != values_[t][other] || held->id != values_[t][i]) ++wrong;
        break;
      }
      default:
        if (mine_[t][i]->id != values_[t][i]) ++wrong;
    }
  }
  [[nodiscard]] const std::vector<std::vector<fm::ptr<gc_node>>>& nodes() const noexcept { return mine_; }
  [[nodiscard]] const std::vector<std::vector<std::uint64_t>>& values() const noexcept { return values_; }

  std::atomic<std::uint64_t> wrong{0};

 private:
  fm::heap& heap_;
  std::vector<std::vector<fm::ptr<gc_node>>> mine_;
  std::vector<std::vector<std::uint64_t>> values_;
};

}  // namespace gc_test
