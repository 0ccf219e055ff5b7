// A tracer and the other agents that it is told of, without a store around it.
#include <catch2/catch.hpp>

#include "agent/regions/region_pool.h"
#include "agent/tracing/tracer.h"

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;

namespace {

trace_peer_set peers(std::size_t count) {
  trace_peer_set p;
  p.routes = os::reservation(heap::tablet_limit, detail::page_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    p.boxes.emplace_back().url = "tcp://127.0.0.1:" + std::to_string(i + 1);
    *p.route(static_cast<std::uint32_t>(100 + i)) = static_cast<std::uint8_t>(i + 1);
  }
  return p;
}

}  // namespace

TEST_CASE("an owner may tell of fewer agents than before, while somebody asks for what is to be sent to the others",
          "[store][peers]") {
  region_pool memory(4 << 20, 1 << 20, 0, false);
  open_heap_body body{};
  body.heap_id[0] = 1;
  heap h(memory, body, 1 << 20, 1000);
  trace_bell work, letters;
  tracer t(h, 1, {1024, 1024, 1, std::chrono::seconds(3)}, {}, work, letters);
  REQUIRE(t.set_peers(peers(200)));
  REQUIRE(t.peer_count() == 200);
  const std::uint32_t before = t.peer_count();
  REQUIRE(t.set_peers(peers(1)));
  tracer::dispatch d;
  for (std::uint32_t i = 0; i < before; ++i) REQUIRE_FALSE(t.take(i, d));
  // Nor when tracing has begun.
  REQUIRE(t.receive({}));
  REQUIRE_FALSE(t.set_peers(peers(2)));
  for (std::uint32_t i = 0; i < before; ++i) REQUIRE_FALSE(t.take(i, d));
  REQUIRE(t.peer_count() == 1);
  t.end();
}
