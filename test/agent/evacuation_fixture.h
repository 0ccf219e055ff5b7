// What the tests of evacuation share: an owner that asks for evacuations, and what the order of copies in memory is.
#pragma once

#include "trace_fixture.h"

namespace store_test {

constexpr auto in_address_order = evacuation_order::address;
constexpr auto depth_first = evacuation_order::depth_first;
constexpr auto breadth_first = evacuation_order::breadth_first;

class evacuating_owner : public tracing_owner {
 public:
  explicit evacuating_owner(fm::agent::store& s, std::uint64_t id = 1) : tracing_owner(s, id), store_(s) {}

  reply ask(std::uint64_t number, evacuation_order order, std::uint32_t below = evacuation_whole) {
    return send(message_type::evacuate, evacuate_body{number, static_cast<std::uint32_t>(order), below});
  }
  /// The next evacuation, to its end.
  evacuate_answer evacuate(evacuation_order order, std::uint32_t below = evacuation_whole) {
    ++number_;
    const time_point give_up = clock::now() + std::chrono::minutes(10);
    for (;;) {
      const reply r = ask(number_, order, below);
      REQUIRE(r.ok());
      const auto a = r.as<evacuate_answer>();
      REQUIRE(r.body.size() == sizeof a);
      if (a.done == 1) return a;
      REQUIRE(clock::now() < give_up);
      store_.maintain();
    }
  }
  /// Agrees to whatever retires; how many regions that were.
  std::size_t agree_all() {
    const auto all = peer->retirements();
    for (const region_name& n : all) REQUIRE(agree(n).ok());
    return all.size();
  }
  home_address home(slot_t slot) { return home_address::unpack(entry(slot)); }
  /// These slots in the order in which their copies lie in memory. Regions are in the order of their first mention.
  std::vector<slot_t> by_address(const std::vector<slot_t>& slots) {
    std::map<std::uint32_t, std::map<std::uint32_t, slot_t>> regions;
    std::vector<std::uint32_t> mentioned;
    for (const slot_t s : slots) {
      const home_address at = home(s);
      if (!regions.contains(at.region)) mentioned.push_back(at.region);
      regions[at.region][at.offset] = s;
    }
    std::vector<slot_t> all;
    for (const std::uint32_t r : mentioned)
      for (const auto& [offset, slot] : regions[r]) all.push_back(slot);
    return all;
  }

 protected:
  std::uint64_t number_ = 0;

 private:
  fm::agent::store& store_;
};

/// A binary tree of `count` nodes, numbered as in a heap; the slots are given out in a random order.
struct scattered_tree {
  std::vector<slot_t> slot_of;  ///< by number
  edges graph;
  explicit scattered_tree(std::size_t count, slot_t first = 1, std::uint32_t seed = 5) : slot_of(count) {
    for (std::size_t i = 0; i < count; ++i) slot_of[i] = first + i;
    for (std::size_t i = count; i > 1; --i) {
      seed = seed * 1664525 + 1013904223;
      std::swap(slot_of[i - 1], slot_of[(seed >> 8) % i]);
    }
    for (std::size_t i = 0; i < count; ++i)
      graph[slot_of[i]] = {2 * i + 1 < count ? slot_of[2 * i + 1] : 0, 2 * i + 2 < count ? slot_of[2 * i + 2] : 0};
  }
  [[nodiscard]] std::vector<slot_t> preorder() const {
    std::vector<slot_t> all, open{slot_of[0]};
    while (!open.empty()) {
      const slot_t s = open.back();
      open.pop_back();
      if (s == 0) continue;
      all.push_back(s);
      open.push_back(graph.at(s)[1]);
      open.push_back(graph.at(s)[0]);
    }
    return all;
  }
  [[nodiscard]] const std::vector<slot_t>& by_level() const { return slot_of; }
};

}  // namespace store_test
