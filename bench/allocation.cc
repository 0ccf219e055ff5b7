// Allocation of 64-byte objects. Each turn has a heap of its own, because nothing is freed while a heap lives; opening and
// closing it is not timed.
#include <cstdio>

#include "peers/allocation.h"
#include "support/managed.h"

namespace {

using namespace fm::bench;

// Every object is linked to the one before it, as the peer's are, so that all stay reachable.
double allocate_ns(fm::heap& h, std::size_t count) {
  fm::ptr<managed_node> all;
  const std::uint64_t begin = now_ns();
  for (std::size_t i = 0; i < count; ++i) all = h.make<managed_node>(i, all);
  return double(now_ns() - begin) / double(count);
}

}  // namespace

int main(int argc, char** argv) {
  program p("allocation", "Allocation of objects of 64 bytes, against malloc of mimalloc");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto count = p.sized<std::size_t>(1 << 22, 1 << 18);
  const std::string objects = std::to_string(count);
  return p.run([&] {
    for (const bool fresh : {false, true}) {
      p.compare(
          {"eviction_off",
           {{"objects", objects}, {"peer's memory", fresh ? "fresh" : "reused"}},
           "ns",
           {goal_kind::ratio_at_most, 2},
           mimalloc_name()},
          [&] {
            fm::heap h({.cache = count * frame_bytes<64> * 5 / 4 + (std::uint64_t{64} << 20),
                        .collect = false,
                        .background_evictor = false});
            return turn{allocate_ns(h, count), {}, 0};
          },
          [&] {
            return turn{mimalloc_64(count, fresh), {}, 0};
          });
    }
    p.compare(
        {"collections_on", {{"objects", objects}, {"cache", "all objects"}}, "ns", {}, "no collections"},
        [&] {
          fm::heap h({.cache = count * frame_bytes<64> * 5 / 4 + (std::uint64_t{64} << 20)});
          return turn{allocate_ns(h, count), {}, 0};
        },
        [&] {
          fm::heap h({.cache = count * frame_bytes<64> * 5 / 4 + (std::uint64_t{64} << 20), .collect = false});
          return turn{allocate_ns(h, count), {}, 0};
        },
        5);
    for (const auto& [transport, url] : transports()) {
      const counted_agent agent(p, binary, url, "8GiB");
      p.compare(
          {"steady_state",
           {{"objects", objects}, {"cache", "1/8 of the objects"}, {"transport", transport}},
           "ns",
           {},
           mimalloc_name()},
          [&] {
            fm::heap h({.cache = count * frame_bytes<64> / 8, .agents = {agent.url()}});
            allocate_ns(h, count / 4);  // the cache is full and evicting when the clock starts
            return turn{allocate_ns(h, count), {}, 0};
          },
          [&] {
            return turn{mimalloc_64(count, false), {}, 0};
          },
          5);
    }
  });
}
