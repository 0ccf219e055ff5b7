// The managed heap over verbs://, in a lab machine: the stressed heap with its oracle, for a short time, and a cycle of
// collection with evacuation. Everything is emulated there, so nothing here has a deadline that is tight.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "collector/fixture.h"
#include "here.h"
#include "stress/program.h"

using namespace fm::literals;

TEST_CASE("a stressed heap loses nothing over verbs://") {
  // Each thread fills segments of its own and pins arrays of two segments: with sixteen segments in all, four of them may
  // pin everything that the others wait for, so there are sixty-four.
  stress::plan p{.transport = "verbs",
                 .segment = 16 << 10,
                 .region = 64 << 10,
                 .cache = 1 << 20,
                 .agent_memory = 8 << 20,
                 .cells = 4'000,
                 .arrays = 600,
                 .large_arrays = 4,
                 .list_nodes = 1'500,
                 .replacements = 800,
                 .threads = 4,
                 .run_for = std::chrono::seconds(4),
                 .seed = 1};
  std::vector<std::unique_ptr<stress::breaking_agent>> agents;
  std::vector<stress::breaking_agent*> all;
  std::vector<std::string> urls;
  for (int i = 0; i < 2; ++i) {
    agents.push_back(std::make_unique<stress::breaking_agent>(
        fm::agent::store_options{.memory_bytes = p.agent_memory, .region_bytes = p.region}, here()));
    all.push_back(agents.back().get());
    urls.push_back(agents.back()->url());
  }
  {
    fm::heap h({.cache = p.cache,
                .agents = urls,
                .name = "stress",
                .segment = p.segment,
                .hit = p.hit,
                .collect_every = 256_KiB,
                .access_within = std::chrono::seconds(60),
                .memory_within = std::chrono::seconds(60),
                .reconnect_within = std::chrono::seconds(60),
                .connect_within = std::chrono::seconds(60)});
    stress::program program(h, p, all);
    const auto settled = [&](const char* when) {
      UNSCOPED_INFO(when << "\n" << h.stats().text() << program.operations.load() << " operations");
      if (program.wrong.any()) FAIL(program.wrong.text());
      const fm::time_point deadline = fm::clock::now() + std::chrono::minutes(10);
      fm::errc e = h.evict_all();
      while (e != fm::errc::ok && fm::clock::now() < deadline) e = h.evict_all();
      REQUIRE(e == fm::errc::ok);
      const fm::verify_report v = h.verify();
      for (const auto& m : v.messages) UNSCOPED_INFO(m);
      REQUIRE(v.ok());
      program.compare();
      if (program.wrong.any()) FAIL(program.wrong.text());
    };
    program.build();
    settled("after building");
    program.run();
    settled("after running");
    CHECK(h.stats().misses > 0);
    CHECK(h.stats().bytes_bounced == 0);
    CHECK(program.breaks.load() + all[0]->lost_messages + all[1]->lost_messages + all[0]->lost_answers +
              all[1]->lost_answers >
          0);
  }
}

TEST_CASE("a cycle over verbs:// frees what no root reaches, moves the rest, and loses none of it") {
  struct agent final : fm::test::served_store {
    agent() : served_store({.memory_bytes = 32 << 20, .region_bytes = 1 << 20}) { serve(here()); }
    ~agent() override { stop(); }
  };
  agent a, b;
  auto options = gc_test::small();
  options.agents = {a.url(), b.url()};
  options.reconnect_within = options.connect_within = std::chrono::seconds(60);
  fm::heap h(options);
  constexpr std::uint64_t kept = 6'000;
  auto head = gc_test::make_list(h, kept);
  gc_test::make_list(h, 10'000);  // nobody keeps it
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = gc_test::collect(h, "lab", fm::evacuate::all);
  INFO(r.text());
  gc_test::require_list(head, kept);
  REQUIRE(h.evict_all() == fm::errc::ok);
  gc_test::require_list(head, kept);
  gc_test::require_sound(h);
  const auto s = h.stats();
  CHECK(s.collections >= 1);
  CHECK(s.misses > 0);
  CHECK(s.reconnects == 0);
  CHECK(s.bytes_bounced == 0);  // the device reads and writes the cache and the batches themselves
}
