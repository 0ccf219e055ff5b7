// Agents that talk to each other over real transports: graphs that go back and forth between them, agents that cannot be reached, and
// agents that end in the middle of it. What is marked is compared with a tracer by the book.
#include <random>

#include "peers_fixture.h"

using namespace store_test;

namespace {

/// Slots are dealt to the agents in turn.
slot_t slot_at(std::uint64_t i, std::size_t agents) {
  return slot_t{i % agents * tablets_each + i / agents % tablets_each} * 65536 + 1 + i / agents / tablets_each;
}

/// A list that visits another agent with every step, and random references beside it: half of them to other agents, by and large.
edges zigzag(std::uint64_t seed, std::size_t agents, std::uint64_t objects, std::uint64_t list) {
  std::mt19937_64 random(seed);
  edges graph;
  for (std::uint64_t i = 0; i < objects; ++i) {
    std::vector<slot_t>& refs = graph[slot_at(i, agents)];
    if (i < list) {
      refs = {i + 1 < list ? slot_at(i + 1, agents) : 0};
      continue;
    }
    refs.resize(random() % 100 == 0 ? 200 : 1 + random() % 3);
    for (slot_t& to : refs) {
      const std::uint64_t kind = random() % 16;
      const std::uint64_t near = i + agents * (random() % 1000);  // of the same agent
      to = kind == 0        ? 0
           : kind < 9       ? slot_at(list + random() % (objects - list), agents)
           : near < objects ? slot_at(near, agents)
                            : 0;
    }
  }
  return graph;
}

void check_marks(talking_agents& x, const edges& graph, const std::vector<slot_t>& roots) {
  const std::set<slot_t> found = x.marks(), expected = reachable(graph, roots);
  CHECK(found.size() == expected.size());
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("graphs that go back and forth between agents are marked as the book says", "[store][peers]") {
  const std::string scheme = GENERATE(as<std::string>{}, "owner", "shm", "tcp");
  const std::size_t agents = GENERATE(std::size_t{2}, std::size_t{3}, std::size_t{8});
  CAPTURE(scheme, agents);
  talking_agents x(agents, scheme, [&](store_options& o) {
    o.trace_threads = agents == 2 ? 2 : 1;
    if (agents == 3) o.trace_references_max = o.trace_queue_slots = 64;
  });
  const edges graph = zigzag(agents, agents, 8000, 150);
  x.write(graph);
  for (std::uint64_t cycle = 1; cycle <= 2; ++cycle) {
    const std::vector<slot_t> roots{slot_at(0, agents), slot_at(150 + cycle, agents), slot_at(160 * cycle, agents)};
    x.begin(cycle);
    x.mark(roots);
    check_marks(x, graph, roots);
    const trace_counts c = x.counts();
    if (scheme == "owner") {
      CHECK(c.references_sent == 0);
      CHECK(x.through_owner() > 1000);
    } else {
      CHECK(x.through_owner() == 0);
      CHECK(c.references_sent > 1000);
      CHECK(c.references_received == c.references_sent);
      CHECK(c.peers_lost == 0);
    }
    x.end(cycle);
  }
}

TEST_CASE("what has no way from agent to agent goes through the owner, and the rest does not", "[store][peers]") {
  constexpr std::size_t agents = 3;
  talking_agents x(agents, "tcp");
  const edges graph = zigzag(7, agents, 6000, 100);
  x.write(graph);
  const std::vector<slot_t> roots{slot_at(0, agents), slot_at(101, agents), slot_at(102, agents), slot_at(103, agents)};
  x.begin(1, [&](std::vector<tracing_owner::peer_entry>& others) {
    // Who is told of the third is told where it is not, who is told of the second is not told of its last tablet, and
    // the first one's ticket is wrong.
    for (auto& p : others) {
      if (p.url == x.all[2].entry.url) p.url = "tcp://127.0.0.1:1";
      if (p.url == x.all[1].entry.url) p.tablets[0].count = 2;
      if (p.url == x.all[0].entry.url) p.ticket.ticket[1] ^= 4;
    }
  });
  x.mark(roots);
  check_marks(x, graph, roots);
  CHECK(x.counts().peers_lost == 4);  // by two each: the third, and the first
  CHECK(x.all[1].said.counts.references_received > 0);
  CHECK(x.all[0].said.counts.references_received == 0);
  CHECK(x.all[2].said.counts.references_received == 0);
  CHECK(x.through_owner() > 0);
}

TEST_CASE("agents that are reached no longer while everybody traces are reached through the owner", "[store][peers]") {
  constexpr std::size_t agents = 3;
  const std::string scheme = GENERATE(as<std::string>{}, "shm", "tcp");
  talking_agents x(agents, scheme);
  const edges graph = zigzag(11, agents, 9000, 1000);
  x.write(graph);
  const std::vector<slot_t> roots{slot_at(0, agents), slot_at(1001, agents), slot_at(1002, agents)};
  for (std::uint64_t cycle = 1; cycle <= 3; ++cycle) {
    x.begin(cycle);
    for (const slot_t r : roots) x.add(r);
    for (std::uint64_t i = 0; i < cycle; ++i) x.termination_round();
    if (cycle < 3) x.all[cycle].listener.reset();
    x.mark({});
    check_marks(x, graph, roots);
    x.end(cycle);
  }
}

TEST_CASE("a heap that goes away on one agent while all trace is gone there and nowhere else", "[store][peers]") {
  constexpr std::size_t agents = 3;
  talking_agents x(agents, "tcp");
  const edges graph = zigzag(13, agents, 9000, 1000);
  x.write(graph);
  x.begin(1);
  x.add(slot_at(0, agents));
  x.add(slot_at(1001, agents));
  x.termination_round();
  REQUIRE(x.all[1].o->send(message_type::close_heap).ok());
  // Its owner gives the cycle up; what the others still send to it is refused, and goes to the owner.
  const time_point give_up = clock::now() + std::chrono::minutes(10);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}})
    for (auto r = x.all[i].o->trace(); r.answer.idle == 0; r = x.all[i].o->trace()) REQUIRE(clock::now() < give_up);
  REQUIRE(x.all[0].o->end(1).ok());
  REQUIRE(x.all[2].o->end(1).ok());
  REQUIRE(x.all[0].o->begin(2).ok());
  x.all[0].o->audit();
  x.all[2].o->audit();
}
