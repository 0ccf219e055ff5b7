// Sections of threads that block: what others do meanwhile, and what the raw pointers of such a section are worth
// afterwards. Moments are those at which an agent holds a read, or a test a lock; nothing is timed.
#include <farmem/detail/shard_lock.h>
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <thread>

#include "held_agent.h"
#include "sections.h"
#include "support/await.h"
#include "support/error_code.h"

using namespace fm::literals;

namespace {

using namespace handles_test;

struct branch {
  std::uint64_t id = 0;
  fm::ref<branch> left, right;
  std::array<std::uint64_t, 12> words{};
};

constexpr std::uint64_t cache_bytes = 1_MiB;

fm::heap_options small(const std::string& agent) {
  fm::heap_options o{.cache = cache_bytes, .agents = {agent}};
  o.segment = 32_KiB;
  o.memory_within = o.access_within = std::chrono::minutes(5);
  o.elastic = false;  // each object comes by a read of its own
  return o;
}
fm::heap_options small_here() {
  fm::heap_options o{.cache = cache_bytes, .local_memory = 128_MiB, .local_region = 1_MiB};
  o.segment = 32_KiB;
  o.memory_within = std::chrono::minutes(5);
  return o;
}

/// More than the cache holds, and dropped at once.
void churn(fm::heap& h) {
  std::vector<fm::ptr<branch>> all;
  for (std::uint64_t i = 0; i < 3 * cache_bytes / sizeof(branch); ++i) all.push_back(h.make<branch>({.id = i}));
}

void require_sound(fm::heap& h) {
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

/// Several times what the cache holds, all of it garbage, and none of it needs an agent: collections free it, in pauses
/// and after grace periods.
void use_up_memory(fm::heap& h) {
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t i = 0; i < cache_bytes / 8 / sizeof(branch); ++i) (void)h.make<branch>();
    const auto r = h.collect_young();
    UNSCOPED_INFO(r.failure);
    REQUIRE(r.ok());
  }
}

}  // namespace

TEST_CASE("a thread that waits for a fetch inside of an expression holds nobody up") {
  held_agent agent;  // while a read is held this agent does nothing else: others can do what needs no agent
  fm::heap h(small(agent.url()));
  const auto here = h.make<branch>({.id = 1}), away = h.make<branch>({.id = 2});
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(here->id == 1);
  agent.hold(true);
  std::uint64_t got = 0, other = 0;
  std::thread reader([&] { got = sum({here->id, away->id}); });
  REQUIRE(agent.until_one_is_held());
  REQUIRE(sections_end());
  REQUIRE(is_about_to_reach(away.slot()));
  std::thread waits_as_well([&] { other = sum({here->id, away->id}); });
  REQUIRE(fm::test::await([&] { return h.stats().waits_for_fetch != 0; }));
  REQUIRE(sections_end());
  use_up_memory(h);
  REQUIRE(h.stats().waits_expired == 0);
  agent.hold(false);
  reader.join();
  waits_as_well.join();
  REQUIRE((got == 3 && other == 3));
  REQUIRE_FALSE(is_about_to_reach(away.slot()));
  require_sound(h);
}

TEST_CASE("raw pointers of a scope stay good while its thread waits for a fetch, and keep what they show alive") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto away = h.make<branch>({.id = 3});
  REQUIRE(h.evict_all() == fm::errc::ok);
  auto holder = h.make<branch>({.id = 1}), changed = h.make<branch>({.id = 2});
  {
    auto child = h.make<branch>({.id = 4});
    child.write()->left = h.make<branch>({.id = 5});
    holder.write()->left = child;
  }
  agent.hold(true);
  fm::ptr<branch> kept;
  std::uint64_t got = 0;
  bool same = false;
  std::thread reader([&] {
    const fm::scope s;
    const branch* child = holder.get(s)->left.get(s);
    branch* mine = changed.get_for_write(s);
    mine->words[0] = 7;
    got = away.get(s)->id;
    mine->words[1] = 8;  // still the object: not a frame that it has left
    got += child->id;
    kept = child->left;
    same = changed.get(s) == mine && away.get(s)->id == 3;
  });
  REQUIRE(agent.until_one_is_held());
  holder.write()->left = nullptr;  // from here on only the raw pointer leads to the child
  use_up_memory(h);
  agent.hold(false);
  reader.join();
  REQUIRE(got == 7);
  REQUIRE(same);
  REQUIRE(kept->id == 5);
  REQUIRE(changed->words[0] == 7);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(changed->words[1] == 8);
  kept.reset();
  require_sound(h);
}

TEST_CASE("a thread that waits for a container's lock inside of an expression holds nobody up") {
  fm::heap h(small_here());
  const fm::queue<std::uint64_t> q(h);
  const fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  const auto p = h.make<branch>({.id = 3});
  std::atomic<bool> inside{false};
  const auto now = [&](std::uint64_t v) {
    inside = true;
    return v;
  };
  const auto while_held = [&](std::uint64_t container, std::size_t shard, const std::function<void()>& call) {
    inside = false;
    std::thread other;
    {
      const fm::detail::shard_writing held(container, shard);
      other = std::thread(call);
      while (!inside) std::this_thread::yield();
      REQUIRE(sections_end());
      churn(h);
      REQUIRE(h.collect().ok());
    }
    other.join();
  };
  while_held(q.slot(), 0, [&] { q.push(now(p->id)); });
  REQUIRE(q.pop() == 3);
  const std::size_t shard = fm::detail::shard_of(fm::detail::map_key<std::uint64_t>::hash(3));
  while_held(m.slot(), shard, [&] { m.insert_or_assign(p->id, now(p->id)); });
  REQUIRE(m.find(3) == 3u);
  while_held(m.slot(), shard, [&] { m.update(now(p->id), [](std::uint64_t& v) { ++v; }); });
  REQUIRE(m.find(3) == 4u);
  while_held(m.slot(), shard, [&] { m.erase(now(p->id)); });
  REQUIRE_FALSE(m.contains(3));
  REQUIRE(h.stats().waits_expired == 0);
  require_sound(h);
}

TEST_CASE("an expression that allocates or collects while it reads in place is no misuse") {
  fm::heap h(small_here());
  auto p = h.make<branch>({.id = 1});
  p.write()->left = h.make<branch>({.id = 2});
  REQUIRE(sum({p->id, h.collect("in an expression").ok()}) == 2);
  REQUIRE(sum({p->left->id, h.make<branch>({.id = p->id})->id}) == 3);
  {
    const fm::scope s;
    std::uint64_t seen = 0;
    for (std::uint64_t i = 0; i < 2 * fm::detail::handed_out_max; ++i) seen += h.make<branch>({.id = 1}).get(s)->id;
    REQUIRE(seen == 2 * fm::detail::handed_out_max);
    const auto misused = [&] {
      try {
        h.collect();
      } catch (const fm::error& e) {
        return e.code();
      }
      return fm::errc::ok;
    };
    const std::uint64_t before = fm::detail::section_break::not_left();
    REQUIRE(misused() == fm::errc::scope_misuse);
    REQUIRE(fm::detail::section_break::not_left() > before);
  }
  const std::uint64_t before = h.stats().blocked_in_scopes;
  REQUIRE(sum({p->id, h.collect("in an expression").ok()}) == 2);
  REQUIRE(h.stats().blocked_in_scopes == before);
  require_sound(h);
}

namespace {

fm::ptr<branch> tree(fm::heap& h, int depth) {
  if (depth == 0) return {};
  auto p = h.make<branch>({.id = 1});
  p.write()->left = tree(h, depth - 1);
  p.write()->right = tree(h, depth - 1);
  return p;
}
std::uint64_t count(const fm::ref<branch>& p) { return p ? p->id + count(p->left) + count(p->right) : 0; }

}  // namespace

TEST_CASE("a recursion in one expression walks a tree that is larger than the cache") {
  fm::heap h(small_here());
  const auto root = tree(h, 16);
  REQUIRE(65536 * sizeof(branch) > 7 * cache_bytes);
  REQUIRE(root->id + count(root->left) + count(root->right) == 65535);
  REQUIRE(h.stats().waits_expired == 0);
  require_sound(h);
}

TEST_CASE("threads whose scopes miss all the time find behind every raw pointer what they found first") {
  fm::heap h(small_here());
  constexpr std::uint64_t objects = 6 * cache_bytes / sizeof(branch);
  constexpr std::size_t threads = 3;
  std::vector<fm::ptr<branch>> all;
  for (std::uint64_t i = 0; i < objects; ++i) all.push_back(h.make<branch>({.id = i}));
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      for (int round = 0; round < 1500; ++round) {
        const fm::scope s;
        std::array<std::pair<const branch*, std::uint64_t>, 12> seen;
        branch* mine = nullptr;
        for (auto& [at, id] : seen) {
          id = rng() % objects;
          at = all[id].get(s);
          // Each thread changes a word of its own, through a pointer from before the next misses.
          if (mine) ++mine->words[t];
          mine = all[rng() % objects].get_for_write(s);
          ++mine->words[t + threads];
        }
        ++mine->words[t];
        for (const auto& [at, id] : seen) wrong += at->id != id;
      }
    });
  for (auto& r : running) r.join();
  REQUIRE(wrong == 0);
  std::array<std::uint64_t, 2 * threads> counted{};
  for (const auto& p : all)
    for (std::size_t k = 0; k < counted.size(); ++k) counted[k] += p->words[k];
  for (const std::uint64_t n : counted) REQUIRE(n == 1500 * 12);
  REQUIRE(h.stats().waits_expired == 0);
  require_sound(h);
}

TEST_CASE("a scope keeps what it has shown beside evictions and collections of its own thread, up to 64 objects") {
  fm::heap h(small_here());
  std::vector<fm::ptr<branch>> all;
  for (std::uint64_t i = 0; i < 65; ++i) all.push_back(h.make<branch>({.id = i}));
  fm::scope in;
  std::vector<const branch*> shown;
  for (std::uint64_t i = 0; i < 64; ++i) shown.push_back(all[i].get(in));
  CHECK(h.evict_all(std::chrono::milliseconds(1)) == fm::errc::timed_out);  // what was shown cannot leave
  CHECK(h.collect().ok());
  for (std::uint64_t i = 0; i < 64; ++i) {
    CHECK(shown[i]->id == i);
    CHECK(all[i].get(in) == shown[i]);
  }
  CHECK(all[64].get(in)->id == 64);
  CHECK(fm::test::code_of([&] { (void)h.evict_all(); }) == fm::errc::scope_misuse);
  CHECK(fm::test::code_of([&] { (void)h.collect(); }) == fm::errc::scope_misuse);
}

TEST_CASE("a null handle gives a null pointer in a scope, and cannot be written to") {
  fm::heap h(small_here());
  const fm::ptr<branch> none;
  fm::scope in;
  CHECK(none.get(in) == nullptr);
  CHECK(fm::test::code_of([&] { (void)none.get_for_write(in); }) == fm::errc::null_handle);
}
