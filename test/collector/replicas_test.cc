// Replica sets: every object is on two agents, one of which may die. Nothing is lost, no access fails, and the sets are
// completed from what is left.
#include "cache/eviction/evictor.h"
#include "heap/heap_core.h"
#include "replicas_fixture.h"
#include "support/busy_threads.h"
#include "support/effort.h"
#include "support/temporary_folder.h"
#include "used_nodes.h"

#include <array>
#include <atomic>
#include <string>

using namespace gc_test;

namespace {

fm::heap_options twice(const std::vector<std::string>& agents) {
  auto o = over(agents);
  o.replicas = 2;
  o.suspect_within = std::chrono::seconds(1);
  o.cache = 2_MiB;
  return o;
}

}  // namespace

TEST_CASE("an object is on two agents, and either has the newest version") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, 60'000);
  for (std::size_t i = 0; i < all.size(); i += 3) all[i].write()->id += 100'000;
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.stats().tablets_degraded == 0);
  std::array<std::uint64_t, 3> as_primary{}, as_backup{};
  for (const auto& p : all) {
    const replica_set set = replica_set::of(p.slot());
    REQUIRE(set.backups() == 1);
    ++as_primary[set.primary()];
    set.for_each_backup([&](std::uint32_t a) {
      REQUIRE(a != set.primary());
      ++as_backup[a];
    });
  }
  for (int a = 0; a < 3; ++a) {
    CHECK(as_primary[a] > 10'000);
    CHECK(as_backup[a] > 10'000);
  }
  require_sound_at_home(h);
  // What dies, dies on both.
  auto some = make_some(h, 30'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  some.clear();
  collect(h, "on both");
  require_sound_at_home(h);
}

TEST_CASE("an agent dies beside four threads that read, write and make objects, and none sees an error") {
  const std::string scheme = GENERATE("tcp", "shm");
  const fm::test::temporary_folder folder;
  meddled_agent first(folder.url(scheme, 1)), second(folder.url(scheme, 2)), third(folder.url(scheme, 3));
  auto o = twice({first.url(), second.url(), third.url()});
  o.collect = true;
  fm::heap h(o);
  used_nodes used(h);
  fm::test::busy_threads threads(
      used_nodes::threads, [&](std::size_t t, std::uint64_t random) { used.use(t, random); },
      [](const fm::error&) { return false; });
  threads.pass(20'000);
  second.die();
  require_taken_over(h, 1);
  threads.pass(50'000);
  threads.stop();
  REQUIRE(used.wrong == 0);
  REQUIRE(threads.unexpected().empty());
  for (std::size_t t = 0; t < used_nodes::threads; ++t) require_numbers(used.nodes()[t], used.values()[t]);
  require_whole(h);
  CHECK(h.stats().tablets_promoted > 0);
  CHECK(h.stats().tablets_replicated > 0);
  require_ok(h.collect("after it"));
  require_sound_at_home(h);
  // The sets are whole again, so the next one may die, too.
  first.die();
  require_taken_over(h, 2);
  for (std::size_t t = 0; t < used_nodes::threads; ++t) require_numbers(used.nodes()[t], used.values()[t]);
  require_ok(h.collect("with one"));
  require_sound_at_home(h);
  CHECK(h.stats().tablets_degraded > 0);
}

TEST_CASE(
    "threads that wait for many tablets of a lost agent read what was written, whichever gets its new primary first") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, fm::test::effort(600'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::atomic<std::uint64_t> wrong{0};
  fm::test::busy_threads threads(
      4, [&](std::size_t, std::uint64_t random) { wrong += all[random % all.size()]->id != random % all.size(); },
      [](const fm::error&) { return false; });
  threads.pass(2'000);
  second.die();
  require_taken_over(h, 1);
  threads.pass(2'000);
  threads.stop();
  REQUIRE(wrong == 0);
  REQUIRE(threads.unexpected().empty());
  CHECK(h.stats().tablets_promoted > 0);
  require_sound_at_home(h);
}

TEST_CASE("a notice that reads an object of an agent that has died waits for the replica, as everybody does") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, 30'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::atomic<bool> began{false}, dead{false};
  std::uint64_t right = 0;
  h.on_dead(h.make<gc_node>({.id = 1}), [&] {
    began = true;
    if (!fm::test::await([&] { return dead.load(); })) return;
    for (std::size_t i = 0; i < all.size(); ++i) right += all[i]->id == i;
  });
  h.collect_soon("finds the object dead");
  REQUIRE(fm::test::await([&] { return began.load(); }));
  second.die();
  dead = true;
  collect(h, "waits for the notice");
  CHECK(right == all.size());
  require_taken_over(h, 1);
}

TEST_CASE(
    "two of three agents die at once beside a thread that cannot leave its scope, and what the third has is read") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, 60'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::vector<std::size_t> on_third;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (replica_set::of(all[i].slot()).has(2)) on_third.push_back(i);
  REQUIRE(on_third.size() > 100);
  std::uint64_t wrong = 0;
  {
    const fm::scope s;
    for (std::size_t k = 0; k < 100; ++k) wrong += all[on_third[k]].get(s)->id != on_third[k];  // too many to leave it
    first.die();
    second.die();
    for (std::size_t k = 100; k < on_third.size(); k += 50) wrong += all[on_third[k]].get(s)->id != on_third[k];
  }
  CHECK(wrong == 0);
  REQUIRE(fm::test::await([&] { return lost_agents_of(h) == 2 && !h.cache().any_stranded(); }));
  CHECK(h.stats().lost_objects > 0);  // what only the two had
}

TEST_CASE("a set is completed while its objects are changed, and a second death finds the newest versions") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  auto all = make_some(h, 100'000);
  auto numbers = numbers_of(all.size());
  REQUIRE(h.evict_all() == fm::errc::ok);
  third.die();
  require_taken_over(h, 1);
  for (std::uint64_t round = 1; h.stats().tablets_degraded != 0; ++round)
    for (std::size_t i = round % 7; i < all.size(); i += 7) all[i].write()->id = numbers[i] = round * 1'000'000 + i;
  CHECK(h.stats().replicated_objects > 0);
  second.die();
  require_taken_over(h, 2);
  require_numbers(all, numbers);
  require_sound_at_home(h);
}

TEST_CASE("objects larger than a read of the import are replicated anew") {
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  std::vector<fm::ptr<std::uint64_t[]>> all;
  for (std::uint64_t i = 0; i < 48; ++i) {
    all.push_back(h.array<std::uint64_t>(i % 2 == 0 ? 50'000 : 300));
    auto pin = all.back().write();
    for (std::uint64_t k = 0; k < pin->size(); ++k) (*pin)[k] = i * 1'000'000 + k;
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  first.die();
  require_taken_over(h, 1);
  require_whole(h);
  second.die();
  require_taken_over(h, 2);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const auto pin = all[i].read();
    for (std::uint64_t k = 0; k < pin->size(); ++k) REQUIRE((*pin)[k] == i * 1'000'000 + k);
  }
}

TEST_CASE("a new member that fails at any message leaves nothing behind, and the next attempt succeeds") {
  using type = fm::protocol::message_type;
  const type at = GENERATE(type::replicate_tablets, type::index, type::read_entries, type::promote_tablets);
  const meddling how = GENERATE(meddling::lose_message, meddling::lose_answer);
  meddled_agent first, second, third;
  fm::heap h(twice({first.url(), second.url(), third.url()}));
  const auto all = make_some(h, fm::test::effort(30'000));
  REQUIRE(h.evict_all() == fm::errc::ok);
  first.meddle(at, how);
  second.meddle(at, how);
  third.die();
  require_taken_over(h, 1);
  require_whole(h);
  CHECK((first.met() || second.met()));
  require_numbers(all, numbers_of(all.size()));
  collect(h, "after it");
  require_sound_at_home(h);
}

TEST_CASE("with min_replicas, what is written stays here until there are agents enough") {
  meddled_agent first, second;
  auto o = twice({first.url(), second.url()});
  o.min_replicas = 2;
  fm::heap h(o);
  const auto all = make_some(h, 1'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.die();
  require_taken_over(h, 1);
  require_numbers(all, numbers_of(all.size()));
  for (const auto& p : all) p.write()->id += 10'000;
  CHECK(h.evict_all() == fm::errc::under_replicated);
  for (std::uint64_t i = 0; i < all.size(); ++i) CHECK(all[i]->id == i + 10'000);
}

TEST_CASE("without min_replicas a heap goes on with the agent that is left") {
  meddled_agent first, second;
  fm::heap h(twice({first.url(), second.url()}));
  const auto all = make_some(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  first.die();
  require_taken_over(h, 1);
  require_numbers(all, numbers_of(all.size()));
  const auto more = make_some(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  require_numbers(more, numbers_of(more.size()));
  CHECK(h.stats().tablets_degraded > 0);
  require_ok(h.collect("alone"));
  require_sound_at_home(h);
}

TEST_CASE("replicas go to agents of other zones where there are such") {
  meddled_agent a("tcp://127.0.0.1:0", in_zone("a")), also_a("tcp://127.0.0.1:0", in_zone("a")),
      b("tcp://127.0.0.1:0", in_zone("b"));
  fm::heap h(twice({a.url(), also_a.url(), b.url()}));
  for (const auto& p : make_some(h, 60'000)) {
    const replica_set set = replica_set::of(p.slot());
    REQUIRE(set.backups() == 1);
    REQUIRE(set.has(2));
  }
}

TEST_CASE("with strict zones, no two agents of a zone store an object, and a heap with too few zones is not opened") {
  meddled_agent a("tcp://127.0.0.1:0", in_zone("a")), also_a("tcp://127.0.0.1:0", in_zone("a")),
      b("tcp://127.0.0.1:0", in_zone("b"));
  auto o = twice({a.url(), also_a.url()});
  o.strict_zones = true;
  const auto refused = fm::heap::open(o);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == fm::errc::invalid_argument);
  CHECK(std::string(refused.error().what()).find("strict_zones: 2 agents are in 1 zones") != std::string::npos);
  o.agents.push_back(b.url());
  fm::heap h(o);
  const auto all = make_some(h, 60'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  // The other zone is gone: nobody takes its place.
  b.die();
  require_taken_over(h, 1);
  require_numbers(all, numbers_of(all.size()));
  for (const std::uint32_t t : h.cache().slots().tablets()) CHECK(replica_set::of_tablet(t).backups() == 0);
  CHECK(h.stats().tablets_degraded > 0);
}

TEST_CASE("options of replicas that cannot be are refused by name") {
  meddled_agent only;
  const auto text_of = [&](std::uint32_t replicas, std::uint32_t least) {
    auto o = over({only.url()});
    o.replicas = replicas;
    o.min_replicas = least;
    try {
      const fm::heap h(o);
    } catch (const fm::error& e) {
      CHECK(e.code() == fm::errc::invalid_argument);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(text_of(2, 1).find("heap_options::replicas is 2: 1 to 1 are possible with 1 agents") != std::string::npos);
  CHECK(text_of(0, 1).find("heap_options::replicas is 0") != std::string::npos);
  CHECK(text_of(1, 2).find("heap_options::min_replicas is 2") != std::string::npos);
}
