// What tests of replicas, and of agents that come and go, share: objects with numbers, and agents in zones.
#pragma once

#include "cache/object_cache.h"
#include "cache/tablets/replica_set.h"
#include "meddled_agent.h"
#include "support/await.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gc_test {

using fm::detail::replica_set;

inline std::vector<fm::ptr<gc_node>> make_some(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<gc_node>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<gc_node>({.id = i}));
  return all;
}
inline std::vector<std::uint64_t> numbers_of(std::uint64_t n) {
  std::vector<std::uint64_t> all(n);
  for (std::uint64_t i = 0; i < n; ++i) all[i] = i;
  return all;
}
inline void require_numbers(const std::vector<fm::ptr<gc_node>>& all, const std::vector<std::uint64_t>& numbers) {
  for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i]->id == numbers[i]);
}
/// What make_some has made, as it was made.
inline void require_some(const std::vector<fm::ptr<gc_node>>& all) { require_numbers(all, numbers_of(all.size())); }

inline std::uint32_t lost_agents_of(fm::heap& h) {
  std::uint32_t n = 0;
  for (const auto& link : h.cache().agents()) n += link->lost() && !link->left();
  return n;
}
/// Waits until no tablet names an agent that is lost. Asks what is cheap: stats() takes the processor from those who
/// are waited for.
inline void require_taken_over(fm::heap& h, std::uint32_t lost) {
  REQUIRE(fm::test::await([&] { return lost_agents_of(h) == lost && !h.cache().any_stranded(); }));
  REQUIRE(h.stats().agents_lost == lost);
  REQUIRE(h.stats().lost_objects == 0);
}
inline void require_whole(fm::heap& h) {
  REQUIRE(fm::test::await([&] { return h.cache().losses().degraded_tablets() == 0; }));
}

inline fm::agent::store_options in_zone(const char* zone) {
  auto o = agent_options();
  o.zone = zone;
  return o;
}

}  // namespace gc_test
