#include <catch2/catch.hpp>
#include <farmem/farmem.h>
#include <random>
#include <thread>

using namespace fm::literals;

namespace {

struct node {
  int value = 0;
  fm::ref<node> next;
};
struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
};

fm::heap_options small(std::uint64_t cache = 2_MiB) {
  return {.cache = cache, .local_memory = 256_MiB, .local_region = 1_MiB, .segment = 64_KiB};
}

}  // namespace

TEST_CASE("an object is made, read and written through handles") {
  fm::heap h;
  auto a = h.make<node>(1);
  auto b = h.make<node>({.value = 2, .next = a});
  REQUIRE(b->next->value == 1);
  REQUIRE(b->value == 2);
  a.write()->next = b;
  REQUIRE(a->next->next->value == 1);
  {
    fm::scope s;
    const node* n = b.get(s);
    REQUIRE(n->next.get(s)->value == 1);
  }
  REQUIRE(h.verify().ok());
}

TEST_CASE("objects that do not fit the cache come back from the agent as they were") {
  fm::heap h(small());
  std::vector<fm::ptr<record>> all;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    record r{.id = i};
    for (std::size_t k = 0; k < r.words.size(); ++k) r.words[k] = i * 31 + k;
    all.push_back(h.make<record>(std::move(r)));
  }
  std::mt19937_64 rng(7);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t at = rng() % all.size();
    fm::scope s;
    const record* r = all[at].get(s);
    REQUIRE(r->id == at);
    REQUIRE(r->words[11] == at * 31 + 11);
  }
  const auto stats = h.stats();
  INFO(stats.text());
  REQUIRE(stats.misses > 1000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
  REQUIRE(v.agent_objects == all.size());
}

TEST_CASE("a list longer than the cache can be walked and changed") {
  fm::heap h(small());
  fm::ptr<node> head;
  constexpr int n = 200'000;
  for (int i = 0; i < n; ++i) head = h.make<node>({.value = i, .next = head});
  for (int round = 0; round < 3; ++round) {
    long sum = 0;
    fm::ptr<node> at = head;
    while (at) {
      sum += at->value;
      at.write()->value += 1;
      at = at->next;
    }
    REQUIRE(sum == long(n) * (n - 1) / 2 + long(round) * n);
  }
  INFO(h.stats().text());
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("several threads share a heap larger than its cache") {
  fm::heap h(small(4_MiB));
  constexpr int per_thread = 20'000;
  std::vector<std::vector<fm::ptr<record>>> mine(4);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      for (std::uint64_t i = 0; i < per_thread; ++i) mine[t].push_back(h.make<record>({.id = i}));
      for (int i = 0; i < 50'000; ++i) {
        const std::uint64_t at = rng() % per_thread;
        if (i % 2) {
          if (mine[t][at]->id != at) ++wrong;
        } else {
          auto w = mine[t][at].write();
          w->words[3] += 1;
          w->words[4] += 1;
          if (w->words[3] != w->words[4]) ++wrong;
        }
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  INFO(h.stats().text());
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("misuse is a typed error that names the thing") {
  fm::heap h;
  fm::ptr<node> null;
  REQUIRE_THROWS_AS(null->value, fm::error);
  try {
    h.array<char>(1_GiB);
    FAIL();
  } catch (const fm::error& e) {
    REQUIRE(e.code() == fm::errc::too_large);
  }
  fm::ptr<node> outlives;
  {
    fm::heap other;
    outlives = other.make<node>(5);
  }
  REQUIRE_FALSE(outlives);
  try {
    fm::heap bad({.agents = {"ftp://nowhere"}});
    FAIL();
  } catch (const fm::error& e) {
    REQUIRE(e.code() == fm::errc::unknown_scheme);
    REQUIRE(std::string(e.what()).find("ftp://nowhere") != std::string::npos);
  }
}

TEST_CASE("large arrays live in runs of segments and survive eviction") {
  fm::heap h(small(4_MiB));
  std::vector<fm::ptr<std::uint64_t[]>> arrays;
  for (std::uint64_t i = 0; i < 40; ++i) {
    auto a = h.array<std::uint64_t>(40'000);
    auto w = a.write();
    for (std::uint64_t k = 0; k < w->size(); ++k) (*w)[k] = i * k;
    arrays.push_back(std::move(a));
  }
  for (std::uint64_t i = 0; i < 40; ++i) {
    fm::scope s;
    const auto* a = arrays[i].get(s);
    REQUIRE(a->size() == 40'000);
    REQUIRE((*a)[39'999] == i * 39'999);
  }
}

TEST_CASE("an object is filled in place, and what its references name by then stays") {
  fm::heap h(small());
  const auto a = h.make_with<node>([&](node& n) {
    n.value = 1;
    n.next = h.make_with<node>([&](node& inner) {
      inner.value = 2;
      REQUIRE(h.collect().ok());
    });
    REQUIRE(h.collect().ok());
    n.value += n.next->value;
  });
  REQUIRE(a->value == 3);
  REQUIRE(a->next->value == 2);
  REQUIRE_THROWS_AS(h.make_with<node>([](node&) { throw 7; }), int);
  REQUIRE(h.collect().ok());
  REQUIRE(h.verify().ok());
}
