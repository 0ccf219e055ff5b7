// Agents that come and go while a heap is open: nothing is lost, no access fails, and who has been left stores nothing.
#include "heap/heap_core.h"
#include "replicas_fixture.h"
#include "support/busy_threads.h"
#include "support/effort.h"
#include "support/error_code.h"
#include "support/temporary_folder.h"
#include "used_nodes.h"

#include <atomic>
#include <string>
#include <thread>

using namespace gc_test;
using fm::test::code_of;

namespace {

fm::heap_options on(const std::vector<std::string>& agents, std::uint32_t replicas = 1) {
  auto o = over(agents);
  o.replicas = replicas;
  o.cache = 2_MiB;
  return o;
}

std::uint64_t tablets_with(fm::heap& h, std::uint32_t agent) {
  std::uint64_t n = 0;
  for (const std::uint32_t t : h.cache().slots().tablets()) n += replica_set::of_tablet(t).has(agent);
  return n;
}
/// Of all heaps.
bool stores_nothing(meddled_agent& a) { return a.store().heaps_left() == 0; }

}  // namespace

TEST_CASE("an agent is left beside four threads that read, write and make objects, and none sees an error") {
  const std::string scheme = GENERATE("tcp", "shm");
  const std::uint32_t replicas = GENERATE(1u, 2u);
  const fm::test::temporary_folder folder;
  meddled_agent first(folder.url(scheme, 1)), second(folder.url(scheme, 2)), third(folder.url(scheme, 3));
  auto o = on({first.url(), second.url(), third.url()}, replicas);
  o.collect = true;
  fm::heap h(o);
  used_nodes used(h);
  fm::test::busy_threads threads(
      used_nodes::threads, [&](std::size_t t, std::uint64_t random) { used.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(20'000);
  REQUIRE(tablets_with(h, 1) > 0);
  h.remove_agent(second.url());
  CHECK(tablets_with(h, 1) == 0);
  CHECK(stores_nothing(second));
  second.die();  // which is nobody's business
  threads.pass(50'000);
  threads.stop();
  REQUIRE(used.wrong == 0);
  REQUIRE(threads.unexpected().empty());
  for (std::size_t t = 0; t < used_nodes::threads; ++t) require_numbers(used.nodes()[t], used.values()[t]);
  const auto s = h.stats();
  CHECK(s.agents_left == 1);
  CHECK(s.agents_lost == 0);
  CHECK(s.lost_objects == 0);
  CHECK(s.tablets_handed_over > 0);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
}

TEST_CASE("agents are exchanged one by one, and the objects outlive all that were there first") {
  const std::uint32_t replicas = GENERATE(1u, 2u);
  std::vector<std::unique_ptr<meddled_agent>> agents;
  const auto one_more = [&] { return agents.emplace_back(std::make_unique<meddled_agent>())->url(); };
  auto o = on({one_more(), one_more()}, replicas);
  fm::heap h(o);
  const auto all = make_some(h, fm::test::effort(60'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (int round = 0; round < 4; ++round) {
    h.add_agent(one_more());
    const std::string oldest = agents[static_cast<std::size_t>(round)]->url();
    h.remove_agent(oldest);
    CHECK(stores_nothing(*agents[static_cast<std::size_t>(round)]));
    agents[static_cast<std::size_t>(round)]->die();
    REQUIRE(h.agents().size() == 2);
    require_some(all);
    const auto dies = make_some(h, fm::test::effort(5'000));
  }
  collect(h, "at the end");
  require_sound_at_home(h);
  require_some(all);
  CHECK(h.stats().agents_left == 4);
}

TEST_CASE("an agent that is added takes over what makes the agents equally full") {
  meddled_agent first, second;
  fm::heap h(on({first.url()}));
  std::vector<fm::ptr<std::uint64_t[]>> all;
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    all.push_back(h.array<std::uint64_t>(12));
    const auto pin = all.back().write();
    (*pin)[0] = i;
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  h.add_agent(second.url());
  REQUIRE(fm::test::await([&] { return tablets_with(h, 1) != 0; }));
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const auto pin = all[i].read();
    REQUIRE((*pin)[0] == i);
  }
  collect(h, "with two");
  CHECK(tablets_with(h, 0) + tablets_with(h, 1) == h.cache().slots().tablets().size());
  CHECK(h.stats().tablets_handed_over > 0);
  require_sound_at_home(h);
}

TEST_CASE("a member that is full gives tablets to agents that have room, and is no limit for the others") {
  auto little = agent_options();
  little.memory_bytes = 8_MiB;
  meddled_agent first, second, third("tcp://127.0.0.1:0", little);
  fm::heap h(on({first.url(), second.url(), third.url()}, 2));
  std::vector<fm::ptr<std::uint64_t[]>> all;
  for (std::uint64_t i = 0; i < 200'000; ++i) all.push_back(h.array<std::uint64_t>(12));
  const std::uint64_t rounds = fm::test::effort_divisor == 1 ? 4 : 2;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      const auto pin = all[i].write();
      (*pin)[0] = round * i;
    }
    // It may have got as many tablets as it has no room for before the first collection told of that.
    REQUIRE(fm::test::await([&] {
      const fm::errc e = h.evict_all();
      if (e != fm::errc::ok) REQUIRE(e == fm::errc::agent_full);
      collect(h, "which tells of room");
      return e == fm::errc::ok;
    }));
  }
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const auto pin = all[i].read();
    REQUIRE((*pin)[0] == rounds * i);
  }
}

TEST_CASE("agents that cannot be added or left are refused by name, and the heap stays as it is") {
  meddled_agent first, second;
  fm::heap h(on({first.url(), second.url()}, 2));
  const auto all = make_some(h, 1'000);
  const auto text_of = [](auto&& call) {
    try {
      call();
    } catch (const fm::error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(text_of([&] { h.add_agent(first.url()); }).find("is an agent of the heap already") != std::string::npos);
  CHECK(code_of([&] { h.add_agent("tcp://127.0.0.1:1"); }) != fm::errc::ok);
  CHECK(code_of([&] { h.add_agent("nonsense://x"); }) == fm::errc::unknown_scheme);
  CHECK(text_of([&] { h.remove_agent("tcp://127.0.0.1:1"); }).find("tcp://127.0.0.1:1 is no agent") !=
        std::string::npos);
  CHECK(text_of([&] { h.remove_agent(first.url()); }).find("the heap has 1 agents, and each object is stored on 2") !=
        std::string::npos);
  CHECK(code_of([&] { h.set_replicas(3); }) == fm::errc::invalid_argument);
  CHECK(code_of([&] { h.set_replicas(0); }) == fm::errc::invalid_argument);
  auto small = agent_options();
  small.region_bytes = 64 << 10;
  meddled_agent with_small_regions("tcp://127.0.0.1:0", small);
  CHECK(text_of([&] { h.add_agent(with_small_regions.url()); }).find("has regions of 65536 bytes") !=
        std::string::npos);
  CHECK(stores_nothing(with_small_regions));
  CHECK(h.agents() == std::vector{first.url(), second.url()});
  require_some(all);
}

TEST_CASE("an agent that nobody can take over from stays, and says what it has") {
  auto little = agent_options();
  little.memory_bytes = 2_MiB;
  meddled_agent first, second("tcp://127.0.0.1:0", little);
  fm::heap h(on({first.url(), second.url()}));
  std::vector<fm::ptr<std::uint64_t[]>> all;
  for (std::uint64_t i = 0; i < 100'000; ++i) all.push_back(h.array<std::uint64_t>(12));
  REQUIRE(h.evict_all() == fm::errc::ok);
  CHECK(code_of([&] { h.remove_agent(first.url(), std::chrono::seconds(2)); }) == fm::errc::timed_out);
  CHECK(h.agents().size() == 2);
  // Nor does it stay only at a deadline: somebody may change their mind.
  h.keep_agent(first.url());  // nobody leaves it
  std::atomic<fm::errc> how{fm::errc::ok};
  std::thread leaves([&] { how = code_of([&] { h.remove_agent(first.url()); }); });
  REQUIRE(fm::test::await([&] {
    h.keep_agent(first.url());
    return how.load() != fm::errc::ok;
  }));
  leaves.join();
  CHECK(how.load() == fm::errc::cancelled);
  CHECK(h.agents().size() == 2);
  CHECK(code_of([&] { h.keep_agent("tcp://127.0.0.1:9"); }) == fm::errc::invalid_argument);
  for (const auto& p : all) REQUIRE(p.read()->size() == 12);
  // It is as good as any other again.
  for (std::uint64_t i = 0; i < 50'000; ++i) all.push_back(h.array<std::uint64_t>(12));
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "with both");
  require_sound_at_home(h);
}

TEST_CASE("the number of replicas changes while threads run, and agents may die accordingly") {
  meddled_agent first, second, third;
  fm::heap h(on({first.url(), second.url(), third.url()}));
  used_nodes used(h);
  fm::test::busy_threads threads(
      used_nodes::threads, [&](std::size_t t, std::uint64_t random) { used.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(5'000);
  h.set_replicas(2);
  require_whole(h);
  first.die();
  require_taken_over(h, 1);
  require_whole(h);
  h.set_replicas(1);
  REQUIRE(fm::test::await([&] {
    std::uint64_t backups = 0;
    for (const std::uint32_t t : h.cache().slots().tablets()) backups += replica_set::of_tablet(t).backups();
    return backups == 0;
  }));
  threads.pass(5'000);
  threads.stop();
  REQUIRE(used.wrong == 0);
  REQUIRE(threads.unexpected().empty());
  CHECK(h.stats().lost_objects == 0);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
  // What was dropped is not stored twice.
  require_ok(h.collect("so that agents free what they were left with"));
  std::uint64_t stored = 0;
  for (const fm::cycle_part& a : h.stats().last_cycle.agents) stored += a.objects;
  CHECK(stored <= used_nodes::threads * used_nodes::each);
}

TEST_CASE("an agent is left while a message about a tablet is lost, and its answer") {
  using type = fm::protocol::message_type;
  const type at = GENERATE(type::grant_tablets, type::replicate_tablets, type::index, type::read_entries,
                           type::promote_tablets, type::leave_tablets, type::close_heap);
  const meddling how = GENERATE(meddling::lose_message, meddling::lose_answer);
  meddled_agent first, second, third;
  fm::heap h(on({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, fm::test::effort(60'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (meddled_agent* a : {&first, &second, &third}) a->meddle(at, how);
  h.remove_agent(first.url());
  require_some(all);
  for (meddled_agent* a : {&first, &second, &third}) a->let_go();
  collect(h, "after it");
  require_sound_at_home(h);
}

TEST_CASE("tablets without objects have other agents at once, and nothing of them is read") {
  const std::uint32_t replicas = GENERATE(1u, 2u);
  meddled_agent first, second, third;
  fm::heap h(on({first.url(), second.url(), third.url()}, replicas));
  std::vector<fm::ptr<gc_node>> all;
  {
    const auto dies = make_some(h, fm::test::effort(300'000));  // of all tablets
    all = make_some(h, 20'000);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  const std::uint64_t tablets = tablets_with(h, 0);
  collect(h, "what was made first dies");
  h.remove_agent(first.url());
  CHECK(stores_nothing(first));
  const auto& moved = h.core().gc().members().moved();
  CHECK(moved.renewed > 0);
  CHECK(moved.renewed + moved.handed_over >= tablets / replicas);
  first.die();
  require_some(all);
  // Their slots are used again, at the agents that they are with now.
  const auto more = make_some(h, fm::test::effort(300'000));
  require_some(more);
  require_some(all);
  require_whole(h);
  collect(h, "after it");
  require_sound_at_home(h);
}

TEST_CASE("an agent that dies while it is being left takes along only what it had alone") {
  meddled_agent first, second, third;
  fm::heap h(on({first.url(), second.url(), third.url()}, 2));
  const auto all = make_some(h, fm::test::effort(100'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  first.meddle(fm::protocol::message_type::leave_tablets, meddling::hang);
  std::thread leaver([&] { h.remove_agent(first.url()); });
  REQUIRE(first.met());
  first.die();
  leaver.join();
  require_some(all);
  CHECK(h.stats().lost_objects == 0);
  require_whole(h);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
}

TEST_CASE("a thread that stays in a scope does not keep an agent from being left") {
  meddled_agent first, second;
  fm::heap h(on({first.url(), second.url()}));
  const auto all = make_some(h, fm::test::effort(60'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::atomic<bool> left{false};
  std::thread reader([&] {
    for (std::size_t i = 0; !left; ++i) {
      fm::scope s;
      const gc_node* const held = all[i % all.size()].get(s);
      for (std::size_t k = 1; k < 50; ++k)
        if (all[(i * 31 + k) % all.size()].get(s)->id != (i * 31 + k) % all.size()) std::abort();
      if (held->id != i % all.size()) std::abort();
    }
  });
  h.remove_agent(first.url());
  left = true;
  reader.join();
  require_some(all);
}

TEST_CASE("an agent that is drained is left by all heaps that have room elsewhere, and takes no new ones") {
  meddled_agent first, second, third;
  std::atomic<int> leaving{0}, left{0};
  auto o = on({first.url(), second.url(), third.url()}, 2);
  o.on_agent_event = [&](const fm::agent_event& e) {
    leaving += e.change == fm::agent_change::leaving;
    left += e.change == fm::agent_change::left;
  };
  fm::heap h(o), alone(on({second.url()}));
  const auto all = make_some(h, fm::test::effort(60'000));
  const auto of_other = make_some(alone, 1'000);
  REQUIRE(alone.evict_all() == fm::errc::ok);
  second.store().drain(true);
  REQUIRE(fm::test::await([&] { return left == 1; }));
  CHECK(leaving == 1);
  CHECK(second.store().heaps_left() == 1);
  CHECK(code_of([&] { const fm::heap late(on({second.url()})); }) == fm::errc::refused);
  require_some(all);
  require_some(of_other);
  // It is taken back: the heap that could not leave goes on there.
  second.store().drain(false);
  const auto more = make_some(alone, fm::test::effort(200'000));
  REQUIRE(alone.evict_all() == fm::errc::ok);
  require_some(more);
  collect(h, "after it");
  require_sound_at_home(h);
}
