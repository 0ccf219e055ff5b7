// Marking without a cycle: threads log what they overwrite, and a test looks at what they logged. For heaps that do not
// collect by themselves, one at a time.
#pragma once

#include "collector/roots/satb_log.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <set>
#include <vector>

namespace fm::test {

/// While it lives threads log; nobody traces.
class marking_on {
 public:
  marking_on() {
    detail::satb::prepare();
    REQUIRE(detail::epochs::pause(
        std::chrono::minutes(10), [](void*) { detail::satb::begin(); }, nullptr));
  }
  ~marking_on() {
    detail::satb::end();
    detail::satb::discard();
  }
  marking_on(const marking_on&) = delete;
  marking_on& operator=(const marking_on&) = delete;

  /// Takes what was logged of these tablets, also what is in chunks that are not full.
  static std::set<detail::slot_t> logged(const std::vector<std::uint32_t>& tablets) {
    REQUIRE(detail::epochs::pause(
        std::chrono::minutes(10),
        [](void* all) {
          detail::satb::take_rest(
              *static_cast<const std::vector<std::uint32_t>*>(all), [](detail::slot_t, void*) { return true; },
              nullptr);
        },
        const_cast<std::vector<std::uint32_t>*>(&tablets)));
    std::set<detail::slot_t> seen;
    detail::satb::take(
        tablets, [](detail::slot_t s, void* to) { static_cast<std::set<detail::slot_t>*>(to)->insert(s); }, &seen);
    return seen;
  }
};

}  // namespace fm::test
