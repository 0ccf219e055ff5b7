// What bad luck does to a cycle: connections that break at every one of its messages, agents that hang and agents that die.
#include "heap/heap_core.h"
#include "meddled_agent.h"

using namespace gc_test;
using fm::protocol::message_type;

TEST_CASE("a connection that breaks at any message of a cycle costs nothing but time") {
  meddled_agent first, second;
  fm::heap h(over({first.url(), second.url()}));
  const auto kept = make_list(h, 5'000);
  for (const message_type type :
       {message_type::begin_cycle, message_type::trace_peers, message_type::add_dirty, message_type::trace,
        message_type::read_marks, message_type::release_slots, message_type::end_cycle, message_type::evacuate}) {
    for (const meddling how : {meddling::lose_message, meddling::lose_answer}) {
      CAPTURE(static_cast<int>(type), static_cast<int>(how));
      { const auto dropped = make_list(h, 3'000); }
      REQUIRE(h.evict_all() == fm::errc::ok);
      std::uint64_t i = 0;  // dirty, of both agents
      for (fm::ptr<gc_node> p = kept; p; p = p->left)
        if (i++ % 64 == 0) p.write()->rest[0] = 0;
      second.meddle(type, how);
      const auto r = h.collect("meddled");
      INFO(r.text());
      REQUIRE(second.met());
      REQUIRE(r.ok());
      REQUIRE(r.marked == 5'000);
      REQUIRE(r.dead >= 3'000);
      require_list(kept, 5'000);
    }
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "at the end");
  REQUIRE(require_sound_at_home(h).agent_objects == 5'000);
}

TEST_CASE("an agent that hangs ends the cycle with an error, and the next one is clean") {
  for (const message_type type : {message_type::begin_cycle, message_type::trace, message_type::release_slots}) {
    meddled_agent first, second;
    auto o = over({first.url(), second.url()});
    o.access_within = std::chrono::seconds(5);  // also for what must succeed
    fm::heap h(o);
    const auto kept = make_list(h, 3'000);
    { const auto dropped = make_list(h, 3'000); }
    REQUIRE(h.evict_all() == fm::errc::ok);
    second.meddle(type, meddling::hang);
    const auto r = h.collect("hanging");
    INFO(r.text());
    REQUIRE(r.status == fm::errc::timed_out);
    REQUIRE(r.failure.find(second.url()) != std::string::npos);
    REQUIRE(h.stats().collections_failed == 1);
    second.let_go();
    const auto fresh = make_list(h, 500);
    REQUIRE(collect(h, "clean").marked == 3'500);
    require_list(kept, 3'000);
    require_list(fresh, 500);
    REQUIRE(h.evict_all() == fm::errc::ok);
    collect(h, "once more");
    REQUIRE(require_sound(h).agent_objects == 3'500);
  }
}

TEST_CASE(
    "an agent that does not answer for its evacuation is in the report, and neither the cycle nor the heap suffers") {
  meddled_agent first, second;
  auto o = over({first.url(), second.url()});
  o.access_within = std::chrono::seconds(5);  // also for what must succeed
  o.evacuation.order = fm::evacuation_order::depth_first;
  fm::heap h(o);
  const auto kept = make_list(h, 30'000);
  { const auto dropped = make_list(h, 30'000); }
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.meddle(message_type::evacuate, meddling::hang);
  const auto r = h.collect("hanging", fm::evacuate::all);
  INFO(r.text());
  REQUIRE(r.ok());
  REQUIRE(r.dead == 30'000);
  REQUIRE(r.agents[0].evacuation == fm::errc::ok);
  REQUIRE(r.agents[0].evacuated_objects > 0);
  REQUIRE(r.agents[1].evacuation == fm::errc::timed_out);
  REQUIRE(r.text().find("not waited for") != std::string::npos);
  second.let_go();
  require_list(kept, 30'000);
  const auto next = collect(h, "again", fm::evacuate::all);
  REQUIRE(next.agents[1].evacuation == fm::errc::ok);
  REQUIRE(next.agents[1].evacuated_objects > 0);
  require_list(kept, 30'000);
  require_sound_at_home(h);
}

TEST_CASE("young objects of an agent that is lost die like others, and keep what they refer to while they live") {
  meddled_agent first;
  auto second = std::make_unique<meddled_agent>();
  auto o = over({first.url(), second->url()});
  o.cache = 32_MiB;
  o.reconnect_within = std::chrono::milliseconds(300);
  o.verify_cycles = true;
  fm::heap h(o);
  const auto kept = make_list(h, 10'000);  // over both
  second->die();
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  while (!h.core().cache().agents()[1]->lost() && fm::clock::now() < give_up) std::this_thread::yield();
  REQUIRE(h.core().cache().agents()[1]->lost());
  { const auto dropped = make_list(h, 10'000); }
  const auto r = h.collect_young("without it");
  require_ok(r);
  REQUIRE(r.marked == 10'000);
  REQUIRE(r.freed == 10'000);
  require_list(kept, 10'000);
  REQUIRE(collect(h, "all").ok());
  require_list(kept, 10'000);
}

TEST_CASE("an agent that dies in a cycle ends it, and cycles go on for the agents that are left") {
  meddled_agent first;
  auto second = std::make_unique<meddled_agent>();
  auto o = over({first.url(), second->url()});
  o.reconnect_within = std::chrono::milliseconds(300);
  fm::heap h(o);
  // Objects of the one agent only, so that they can be read afterwards.
  std::vector<fm::ptr<gc_node>> kept, all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(h.make<gc_node>({.id = i}));
  const auto agent_of = [](const fm::ptr<gc_node>& p) { return fm::detail::tablet_info_of(p.slot()).agent.load(); };
  for (const auto& p : all)
    if (agent_of(p) == 0 && p->id % 2 == 0) kept.push_back(p);
  all.clear();
  REQUIRE(h.evict_all() == fm::errc::ok);
  second->meddle(message_type::trace, meddling::hang);
  fm::cycle_report r;
  std::thread collecting([&] { r = h.collect("dying"); });
  REQUIRE(second->met());
  second->die();
  collecting.join();
  INFO(r.text());
  REQUIRE_FALSE(r.ok());
  REQUIRE(r.status == fm::errc::agent_lost);
  for (const auto& p : kept) REQUIRE(p->id % 2 == 0);
  const auto next = collect(h, "without it");
  REQUIRE(next.agents.size() == 1);
  REQUIRE(next.marked >= kept.size());
  REQUIRE(next.agents[0].objects == kept.size());
  for (const auto& p : kept) REQUIRE(p->id % 2 == 0);
}

TEST_CASE("the table keeps to its budget while a cycle goes on") {
  meddled_agent agent;
  auto o = over({agent.url()});
  o.hit = 16 * fm::detail::page_bytes;
  fm::heap h(o);
  const auto kept = make_list(h, 40'000);
  agent.meddle(message_type::trace, meddling::seem_busy);
  std::thread collecting([&] { h.collect("a long one"); });
  CHECK(agent.met());
  const auto made_meanwhile = make_list(h, 40'000);
  CHECK(h.evict_all() == fm::errc::ok);
  const std::uint64_t bound = o.hit + fm::detail::limits::slots_per_run * sizeof(fm::detail::word_t);
  const auto give_up = fm::clock::now() + std::chrono::minutes(5);
  while (h.stats().hit_bytes > bound && fm::clock::now() < give_up) std::this_thread::yield();
  CHECK(h.stats().hit_bytes <= bound);
  CHECK(h.stats().collections == 0);  // it goes on still
  agent.let_go();
  collecting.join();
  CHECK(collect(h, "and once more").marked == 80'000);
  require_list(kept, 40'000);
  require_list(made_meanwhile, 40'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  require_sound(h);
}

TEST_CASE("a collection does not rest while somebody waits for one of another heap, and gives the turn over") {
  meddled_agent agent;
  auto o = over({agent.url()});
  o.collect_share = 0.01;
  fm::heap h(o), other(small());
  const auto kept = make_list(h, 5'000), kept_too = make_list(other, 5'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  auto& gc = h.core().gc();
  agent.meddle(message_type::trace, meddling::seem_busy);
  h.core().collect_soon("nobody waits for it");
  REQUIRE(agent.met());
  CHECK_FALSE(gc.urgent());
  fm::cycle_report r;
  std::thread waiting([&] { r = other.collect("of another heap"); });
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  while (!gc.urgent() && fm::clock::now() < give_up) std::this_thread::yield();
  CHECK(gc.urgent());
  CHECK_FALSE(gc.is_waited_for());
  CHECK(other.core().gc().is_waited_for());
  CHECK(h.stats().collections == 0);
  agent.let_go();
  waiting.join();
  require_ok(r);
  CHECK(r.marked == 5'000);
  while (h.stats().collections == 0 && fm::clock::now() < give_up) std::this_thread::yield();
  CHECK_FALSE(gc.urgent());
  CHECK(collect(h, "its own").marked == 5'000);
}
