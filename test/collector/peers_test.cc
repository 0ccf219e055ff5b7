// Collections in which agents talk to each other: the same is marked as without, whatever becomes of what they say, and the owner
// carries none of it where they reach each other.
#include "heap/heap_core.h"
#include "meddled_agent.h"
#include "support/temporary_folder.h"

#include <unistd.h>

#include <random>

using namespace gc_test;
using fm::detail::tracing;
using fm::protocol::message_type;

namespace {

/// Agents behind a transport, for which a busy machine is no lost peer.
struct several_agents {
  fm::test::temporary_folder folder;
  std::vector<std::unique_ptr<meddled_agent>> all;
  several_agents(
      std::size_t count, const std::string& scheme,
      const std::function<void(std::size_t, fm::agent::store_options&)>& change = [](std::size_t, auto&) {}) {
    for (std::size_t i = 0; i < count; ++i) {
      auto o = agent_options();
      o.peer_within = std::chrono::seconds(20);
      change(i, o);
      all.push_back(std::make_unique<meddled_agent>(folder.url(scheme, i), o));
    }
  }
  [[nodiscard]] fm::heap_options options() const {
    std::vector<std::string> urls;
    for (const auto& a : all) urls.push_back(a->url());
    return over(urls);
  }
};

/// Nodes over all agents, each with a left edge into one long list in random order, and a random right edge; all at home. What it
/// returns reaches all but every tenth.
struct tangle {
  fm::ptr<gc_node> head;
  std::uint64_t kept = 0;
  tangle(fm::heap& h, std::uint32_t n, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<fm::ptr<gc_node>> all;
    for (std::uint32_t i = 0; i < n; ++i) all.push_back(h.make<gc_node>({.id = i}));
    std::shuffle(all.begin(), all.end(), random);
    kept = n - n / 10;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto w = all[i].write();
      // The list is as long as it takes to come by every agent often; the rest hangs on it as a tree.
      if (i >= kept || i + 1 == kept) continue;
      if (i < 200)
        w->left = all[i + 1];
      else if (2 * (i - 199) + 199 < kept)
        w->left = all[2 * (i - 199) + 199];
      if (i >= 200 && 2 * (i - 199) + 200 < kept) w->right = all[2 * (i - 199) + 200];
    }
    head = all[0];
    all.clear();
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
};

template <class Count>
std::uint64_t sum(const fm::cycle_report& r, Count fm::cycle_part::*member) {
  std::uint64_t n = 0;
  for (const auto& a : r.agents) n += a.*member;
  return n;
}

}  // namespace

TEST_CASE("agents that talk mark what the compute node marks, and the owner carries nothing for them") {
  const std::string scheme = GENERATE(as<std::string>{}, "shm", "tcp");
  const std::size_t count = GENERATE(std::size_t{2}, std::size_t{4});
  CAPTURE(scheme, count);
  several_agents agents(count, scheme);
  fm::heap h(agents.options());
  const tangle t(h, 12'000, count);
  h.core().gc().trace_by(tracing::both);
  auto r = collect(h);
  INFO(r.text());
  REQUIRE(r.marked == t.kept);
  REQUIRE(r.dead == 12'000 - t.kept);
  h.core().gc().trace_by(tracing::agents);
  REQUIRE(h.evict_all() == fm::errc::ok);
  r = collect(h);
  UNSCOPED_INFO(r.text());
  REQUIRE(r.marked == t.kept);
  REQUIRE(sum(r, &fm::cycle_part::references_sent) > 1000);
  REQUIRE(sum(r, &fm::cycle_part::remote_references) == 0);
  for (const auto& a : r.agents) REQUIRE(a.peers_lost == 0);
  REQUIRE(r.text().find("remote references: 0 through the owner") != std::string::npos);
  require_sound_at_home(h);
}

TEST_CASE("with agents that do not talk, the owner carries what they meet of each other") {
  const int who = GENERATE(0, 1, 2);
  CAPTURE(who);
  several_agents agents(3, "tcp", [&](std::size_t i, fm::agent::store_options& o) {
    if (who == 1) o.peers = i == 0;                    // one that does has nobody to talk to
    if (who == 2 && i == 1) o.peer_schemes = {"shm"};  // one does not connect to the others
  });
  auto o = agents.options();
  o.agents_talk = who != 0;
  fm::heap h(o);
  const tangle t(h, 12'000, 5);
  const auto r = collect(h);
  INFO(r.text());
  REQUIRE(r.marked == t.kept);
  REQUIRE(sum(r, &fm::cycle_part::remote_references) > 500);
  if (who != 2) {
    for (const auto& a : r.agents) REQUIRE(a.references_sent == 0);
  } else {
    REQUIRE(r.agents[0].remote_references == 0);
    REQUIRE(r.agents[0].references_sent > 0);
    REQUIRE(r.agents[1].remote_references > 0);
    REQUIRE(r.agents[1].peers_lost == 2);
  }
  require_sound_at_home(h);
}

TEST_CASE("what agents say to each other may be lost, and is not missed") {
  for (const meddling how : {meddling::lose_message, meddling::lose_answer}) {
    CAPTURE(static_cast<int>(how));
    several_agents agents(3, "tcp");
    fm::heap h(agents.options());
    const tangle t(h, 9'000, 9);
    for (int round = 0; round < 3; ++round) {
      agents.all[1]->meddle(message_type::remote_references, how);
      const auto r = h.collect("meddled");
      INFO(r.text());
      REQUIRE(agents.all[1]->met());
      REQUIRE(r.ok());
      REQUIRE(r.marked == t.kept);
      REQUIRE(sum(r, &fm::cycle_part::remote_references) > 0);
      REQUIRE(sum(r, &fm::cycle_part::peers_lost) > 0);
    }
    agents.all[1]->let_go();
    REQUIRE(collect(h, "clean").marked == t.kept);
    require_sound_at_home(h);
  }
}

TEST_CASE("a session that another agent does not let begin, and one that is named twice") {
  several_agents agents(2, "tcp");
  auto o = agents.options();
  o.agents.push_back(o.agents[0]);  // two heaps on the first
  fm::heap h(o);
  const tangle t(h, 12'000, 3);
  agents.all[1]->meddle(message_type::open_peer, meddling::lose_message);
  auto r = collect(h);
  REQUIRE(agents.all[1]->met());
  REQUIRE(r.agents.size() == 3);
  REQUIRE(r.marked == t.kept);
  REQUIRE(sum(r, &fm::cycle_part::references_sent) > 0);
  agents.all[1]->let_go();
  r = collect(h);
  REQUIRE(r.marked == t.kept);
  require_sound_at_home(h);
}

TEST_CASE("threads change the graph while agents that talk trace it, over and over") {
  several_agents agents(3, "shm", [](std::size_t, fm::agent::store_options& o) { o.trace_references_max = 64; });
  auto o = agents.options();
  o.verify_cycles = true;
  fm::heap h(o);
  constexpr std::uint32_t size = 6'000;
  const auto table = h.array<fm::ref<gc_node>>(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto node = h.make<gc_node>({.id = i});
    const auto w = table.write();
    (*w)[i] = node;
  }
  const auto at = [&table](std::uint32_t i) {
    const auto r = table.read();
    return fm::ptr<gc_node>((*r)[i]);
  };
  constexpr std::uint64_t steps_a_cycle = 1'500;
  std::atomic<std::uint64_t> allowed{0};
  std::atomic<bool> stop{false}, failed{false};
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 2; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      try {
        for (std::uint64_t step = 0; !stop.load(); ++step) {
          while (step >= allowed.load() && !stop.load()) std::this_thread::yield();
          const std::uint32_t i = static_cast<std::uint32_t>(random() % size),
                              j = static_cast<std::uint32_t>(random() % size);
          const fm::ptr<gc_node> a = at(i), b = at(j), left = a->left;
          const auto fresh = h.make<gc_node>({.id = i, .left = left, .right = b});
          {
            const auto w = b.write();
            w->left = fresh;
            w->right = a;
          }
          const auto w = table.write();
          (*w)[i] = fresh;
        }
      } catch (const fm::error&) {
        failed.store(true);
      }
    });
  std::uint64_t sent = 0;
  bool ok = true;
  std::string text;
  for (int cycle = 0; cycle < 12 && ok; ++cycle) {
    allowed += steps_a_cycle;
    const auto r = h.collect("while it changes");
    ok = r.ok();
    text = r.text();
    sent += sum(r, &fm::cycle_part::references_sent);
  }
  stop.store(true);
  for (std::thread& t : threads) t.join();
  INFO(text);
  REQUIRE(ok);
  REQUIRE_FALSE(failed.load());
  REQUIRE(sent > 0);
  for (std::uint32_t i = 0; i < size; ++i) {
    const fm::ptr<gc_node> node = at(i);
    if (node->id != i) FAIL("slot " << i << " has the node of slot " << node->id);
  }
  h.core().gc().trace_by(tracing::both);
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "at the end");
  require_sound_at_home(h);
}
