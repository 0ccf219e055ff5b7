// Operations of maps and sets that fail: each fetch in turn, and for want of memory on the agent, where new objects go, or
// in the cache, where remote ones do. The table of docs/how-to/containers.md says what each leaves.
#include "containers/hash/table_failure.h"

using namespace fm::test;

TEST_CASE("a table keeps what its guarantees say when any fetch fails") {
  fail_each_fetch_of<fm::hash_map>(table_operations<fm::hash_map>(), 400);
}
TEST_CASE("a table keeps what its guarantees say when the cache is full") {
  fail_without_room<fm::hash_map>(table_operations<fm::hash_map>(), 400);
}

TEST_CASE("a table that grows and shrinks is as before when any fetch of a change fails") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  constexpr std::uint64_t n = 600;  // splits two buckets of a shard and more, and joins them
  std::uint64_t failures = 0;
  // `there`: whether the key is, before the change.
  const auto change = [&](std::uint64_t k, bool there, auto f) {
    const std::uint64_t size = m.size();
    failures += change_at_last(h, agent, f, [&] { REQUIRE((m.size() == size && m.contains(k) == there)); });
    REQUIRE((m.size() == (there ? size - 1 : size + 1) && m.contains(k) == !there));
  };
  const auto require_all = [&](std::uint64_t from) {
    table_numbers seen;
    for (const auto& [k, v] : m) REQUIRE((v == ~k && seen.try_emplace(k, v).second));
    REQUIRE(
        (seen.size() == n - from && (seen.empty() || (seen.begin()->first == from && seen.rbegin()->first == n - 1))));
  };
  for (std::uint64_t k = 0; k < n; ++k)
    if (k % effort_divisor == 0)
      change(k, false, [&] { return m.insert(k, ~k); });
    else
      m.insert(k, ~k);
  require_all(0);
  for (std::uint64_t k = 0; k < n; ++k) {
    if (k % effort_divisor == 0)
      change(k, true, [&] { return m.erase(k); });
    else
      m.erase(k);
    if (k % 200 == 199) require_all(k + 1);
  }
  REQUIRE(failures > n / effort_divisor * 4);
  require_sound(h);
}

TEST_CASE(
    "a shard that gets a second chunk of buckets, and loses it, is as before when any fetch of the change fails") {
  using key_of = fm::detail::map_key<std::uint64_t>;
  using page =
      fm::detail::hash_page<std::uint64_t, std::uint64_t, std::hash<std::uint64_t>, std::equal_to<std::uint64_t>>;
  constexpr std::uint64_t splits_at = fm::detail::chunk_buckets * page::entries * 3 / 4;
  constexpr std::uint64_t merges_at = (fm::detail::chunk_buckets + 1) * page::entries * 3 / 8;
  sparing_agent agent;
  fm::heap h(agent.options());
  const fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  std::vector<std::uint64_t> keys;  // of one shard
  for (std::uint64_t k = 0; keys.size() < splits_at + 2; ++k)
    if (fm::detail::shard_of(key_of::hash(k)) == 3) keys.push_back(k);
  const auto arrays = [&] {  // chunks and the directory
    REQUIRE(h.collect().ok());
    std::uint64_t n = 0;
    for (const auto& t : h.stats(fm::detail_level::types).types)
      if (t.name.find("hash_page<") != std::string::npos && t.name.ends_with("[]")) n += t.objects;
    return n;
  };
  std::uint64_t failures = 0;
  const auto change = [&](auto f) {
    const std::uint64_t size = m.size();
    failures += change_at_last(h, agent, f, [&] { REQUIRE(m.size() == size); });
  };
  const auto require_first = [&](std::uint64_t n) {
    REQUIRE(m.size() == n);
    for (std::uint64_t i = 0; i < keys.size(); ++i) REQUIRE(m.contains(keys[i]) == (i < n));
    std::uint64_t seen = 0;
    for (const auto& [k, v] : m) seen += v == ~k;
    REQUIRE(seen == n);
  };
  for (const int round : {1, 2}) {
    INFO("round " << round);
    for (std::uint64_t i = 0; i < keys.size(); ++i) {
      if (i + 2 < splits_at)
        REQUIRE(m.insert(keys[i], ~keys[i]));
      else
        change([&] { return m.insert(keys[i], ~keys[i]); });
    }
    require_first(keys.size());
    REQUIRE(arrays() == 3);
    for (std::uint64_t n = keys.size(); n > merges_at - 3; --n) {
      if (n > merges_at + 2)
        REQUIRE(m.erase(keys[n - 1]));
      else
        change([&] { return m.erase(keys[n - 1]); });
    }
    require_first(merges_at - 3);
    REQUIRE(arrays() == 3);                 // each key was erased as soon as that could be done, without the merge
    REQUIRE(m.erase(keys[merges_at - 4]));  // now with it
    require_first(merges_at - 4);
    REQUIRE(arrays() == 2);
    m.clear();
    require_first(0);
    REQUIRE(arrays() == 0);
  }
  REQUIRE(failures > 20);
  require_sound(h);
}

TEST_CASE("an increment of a table's iterator that throws may be made again") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const fm::hash_set<std::uint64_t> s(h);
  constexpr std::uint64_t n = 1'000;
  for (std::uint64_t k = 0; k < n; ++k) s.insert(k);
  std::vector<bool> seen(n);
  std::uint64_t steps = 0, failed = 0;
  for (auto i = s.begin(); i != s.end();) {
    REQUIRE_FALSE(seen.at(*i));
    seen[*i] = true;
    ++steps;
    REQUIRE((steps % 20 != 0 || h.evict_all() == fm::errc::ok));
    agent.gives = std::int64_t(steps % 3);
    if (code_of([&] { ++i; }) != fm::errc::ok) {
      ++failed;
      agent.gives = agent.unlimited;
      ++i;
    }
    agent.gives = agent.unlimited;
  }
  REQUIRE((steps == n && failed > 0));
  require_sound(h);
}

TEST_CASE("an operation that finds the agent full leaves its table as it was") {
  fill_the_agent<fm::hash_map, fm::hash_set>();
}
TEST_CASE("an operation that finds the cache full leaves its table as it was") {
  fill_the_cache<fm::hash_map, fm::hash_set>();
}

TEST_CASE("an erasure after which the table cannot shrink has erased its key") {
  fm::heap h(impatient());
  const fm::hash_set<std::uint64_t> s(h);
  constexpr std::uint64_t n = 40'000;
  for (std::uint64_t k = 0; k < n; ++k) patiently(h, [&] { return s.insert(k); });
  // About half of the places are left: from here on, erasures join buckets.
  for (std::uint64_t k = 0; k < n; k += 2) REQUIRE(patiently(h, [&] { return s.erase(k); }));
  std::vector<bool> there(n);
  for (std::uint64_t k = 1; k < n; k += 2) there[k] = true;
  std::mt19937_64 rng(5);
  std::uint64_t failed = 0, erased = 0;
  std::vector<fm::ptr<block>> spare;
  while (spare.size() < 2'000) patiently(h, [&] { spare.push_back(h.make<block>({.id = spare.size()})); });
  for (int round = 0; round < 4; ++round) {
    REQUIRE(h.evict_all() == fm::errc::ok);
    std::vector<fm::read_pin<block>> pins;
    const fm::errc full = code_of([&] {
      while (pins.size() < 1'000'000) pins.push_back(h.make<block>({.id = pins.size()}).read());
    });
    REQUIRE(full == fm::errc::cache_full);
    // The readers' share of the cache is left.
    REQUIRE(code_of([&] {
              for (const fm::ptr<block>& b : spare) pins.push_back(b.read());
            }) == fm::errc::cache_full);
    const std::uint64_t failed_before = failed, erased_before = erased;
    for (int i = 0; i < 3'000 && failed < failed_before + 40 && erased < erased_before + 400; ++i) {
      const std::uint64_t k = rng() % n;
      try {
        const bool gone = s.erase(k);
        REQUIRE(gone == there[k]);
        there[k] = false;
        erased += gone;
      } catch (const fm::error& e) {
        REQUIRE(e.code() == fm::errc::cache_full);
        ++failed;
        pins.erase(pins.end() - std::min<std::ptrdiff_t>(std::ptrdiff_t(pins.size()), 16),
                   pins.end());  // a segment goes when all of its pins have
      }
    }
    pins.clear();
    for (std::uint64_t k = 0; k < n; ++k)
      if (patiently(h, [&] { return s.contains(k); }) != there[k]) FAIL("key " << k);
  }
  INFO(failed << " failed, " << erased << " erased");
  REQUIRE((failed > 0 && erased > 0));
  for (std::uint64_t k = 0; k < n; ++k)
    if (patiently(h, [&] { return s.erase(k); }) != there[k]) FAIL("key " << k);
  REQUIRE(s.empty());
  require_sound(h);
}
