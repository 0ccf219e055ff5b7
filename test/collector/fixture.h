// What the tests of collections share: small heaps that collect when they are told to, lists of numbered nodes, and the
// checks after a cycle.
#pragma once

#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>

namespace gc_test {

using namespace fm::literals;

/// A cache of 1 MiB in front of agents of 128; no cycle starts by itself.
inline fm::heap_options small(std::size_t agents = 1) {
  return {.cache = 1_MiB,
          .agents = std::vector<std::string>(agents, "local:"),
          .local_memory = 128_MiB,
          .local_region = 1_MiB,
          .segment = 32_KiB,
          .collect = false,
          .memory_within = std::chrono::seconds(30)};
}

struct gc_node {
  std::uint64_t id = 0;
  fm::ref<gc_node> left, right;
  std::array<std::uint64_t, 4> rest{};
};

/// Nodes n - 1 to 0, each the `left` of the one before.
inline fm::ptr<gc_node> make_list(fm::heap& h, std::uint64_t n) {
  fm::ptr<gc_node> head;
  for (std::uint64_t i = 0; i < n; ++i) head = h.make<gc_node>({.id = i, .left = head});
  return head;
}

inline void require_list(const fm::ptr<gc_node>& head, std::uint64_t n) {
  std::uint64_t expected = n;
  for (const gc_node& e : fm::walk(head, &gc_node::left))
    if (e.id != --expected) FAIL("element " << e.id << " instead of " << expected);
  REQUIRE(expected == 0);
}

inline void require_ok(const fm::cycle_report& r) {
  INFO(r.text());
  REQUIRE(r.ok());
}

/// A cycle that must come to its end.
inline fm::cycle_report collect(fm::heap& h, std::string_view cause = "test",
                                fm::evacuate what = fm::evacuate::sparse) {
  const auto r = h.collect(cause, what);
  require_ok(r);
  return r;
}

/// Compares what both sides believe. Nobody may use the heap, and what is not at home yet is not looked at there.
inline fm::verify_report require_sound(fm::heap& h) {
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
  return v;
}

/// Sends everything home first.
inline fm::verify_report require_sound_at_home(fm::heap& h) {
  REQUIRE(h.evict_all() == fm::errc::ok);
  return require_sound(h);
}

}  // namespace gc_test
