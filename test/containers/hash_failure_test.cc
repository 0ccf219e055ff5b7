// Operations of maps and sets that fail for want of memory: on the agent, where new objects go, or in the cache, where
// remote ones do. Each leaves the table as it was.
#include "fixture.h"

#include <algorithm>
#include <memory>
#include <random>
#include <unordered_map>

using namespace fm::test;

namespace {

struct block {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 63> words{};
};
using value = std::array<std::uint64_t, 6>;
value value_of(std::uint64_t x) { return {x, ~x, x, ~x, x, ~x}; }

/// Calls `f`, which changes nothing if it throws, until the machine is quick enough for memory_within.
template <class F>
auto patiently(fm::heap& h, F&& f) {
  for (int tries = 0;; ++tries) try {
      return f();
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::cache_full || tries == 1'000) throw;
      (void)h.evict_all();
    }
}

/// A map and a set, what they must hold, and how often a call failed.
class checked {
 public:
  explicit checked(fm::heap& h, std::uint64_t seed) : heap_(h), rng_(seed) {}

  /// Calls one member of each. If it throws, all is as before; what erase_if says is different.
  void step() {
    const std::uint64_t id = rng_() % 4'000, x = rng_();
    const std::string key = "key " + std::to_string(id);
    const bool there = oracle_.contains(id);
    switch (rng_() % 10) {
      case 0:
        if (attempt(there, [&] { return map_.update(key, [&](value& v) { v = value_of(x); }); }) && there)
          oracle_[id] = x;
        break;
      case 1:
        if (attempt(there, [&] { return x % 2 == 0 ? map_.erase(key) : map_.extract(key).has_value(); }))
          oracle_.erase(id);
        break;
      case 2:
        if (attempt(!there,
                    [&] { return x % 2 == 0 ? map_.insert(key, value_of(x)) : map_.try_emplace(key, value_of(x)); }))
          oracle_.try_emplace(id, x);
        break;
      case 3:
        if (attempt(there ? oracle_[id] : x, [&] { return map_.get_or_insert(key, [&] { return value_of(x); })[0]; }))
          oracle_.try_emplace(id, x);
        break;
      case 4: attempt(there, [&] { return map_.contains(key); }); break;
      case 5:
        if (rng_() % 200 == 0) {
          if (attempt(true, [&] { return set_.clear(), true; })) in_set_.clear();
        } else if (attempt(in_set_.contains(id), [&] { return set_.erase(id); })) {
          in_set_.erase(id);
        }
        break;
      case 6:
        if (attempt(!in_set_.contains(id), [&] { return set_.insert(id); })) in_set_.emplace(id, 0);
        break;
      default:
        if (attempt(!there, [&] { return map_.insert_or_assign(key, value_of(x)); })) oracle_[id] = x;
    }
  }
  /// Erases some of the keys. If it throws, others are as before.
  void erase_some() {
    const std::uint64_t of = rng_() % 9;
    const auto goes = [&](std::uint64_t id) { return id % 9 == of; };
    const auto n = std::uint64_t(std::ranges::count_if(in_set_, [&](const auto& e) { return goes(e.first); }));
    const bool done = attempt(n, [&] { return set_.erase_if(goes); });
    std::erase_if(in_set_, [&](const auto& e) { return goes(e.first) && (done || !contains_later(e.first)); });
  }
  void require_same() {
    patiently(heap_, [&] { compare(); });
  }
  std::uint64_t failures = 0;
  std::vector<fm::errc> codes;
  /// Makes room, so that what is asked after a failure does not fail, too.
  std::function<void()> make_room;

 private:
  void compare() {
    std::unordered_map<std::uint64_t, std::uint64_t> seen;
    for (const auto& [key, v] : map_) {
      const std::string text = key.str();  // not in REQUIRE, which would take what it throws for a fault
      REQUIRE(v == value_of(v[0]));
      REQUIRE(seen.emplace(std::stoull(text.substr(4)), v[0]).second);
    }
    REQUIRE(seen == oracle_);
    const std::uint64_t entries = map_.size(), keys = set_.size();
    REQUIRE(entries == oracle_.size());
    const auto found = std::ranges::count_if(set_, [&](std::uint64_t k) { return in_set_.contains(k); });
    REQUIRE(found == std::ptrdiff_t(in_set_.size()));
    REQUIRE(keys == in_set_.size());
  }
  /// Whether `f` did not throw; then it gives `expected`.
  template <class T, class F>
  bool attempt(const T& expected, F&& f) {
    try {
      const T got = f();
      REQUIRE(got == expected);
      return true;
    } catch (const fm::error& e) {
      ++failures;
      codes.push_back(e.code());
      return false;
    }
  }
  bool contains_later(std::uint64_t id) {
    make_room();
    return patiently(heap_, [&] { return set_.contains(id); });
  }

  fm::heap& heap_;
  std::mt19937_64 rng_;
  const fm::hash_map<fm::string, value> map_{heap_};
  const fm::hash_set<std::uint64_t> set_{heap_};
  std::unordered_map<std::uint64_t, std::uint64_t> oracle_, in_set_;
};

fm::heap_options impatient() {
  auto o = tiny();
  o.collect = o.collect_young = false;
  o.memory_within = std::chrono::milliseconds(20);
  return o;
}

}  // namespace

TEST_CASE("an operation that finds the agent full leaves its table as it was") {
  auto o = impatient();
  o.local_memory = 12_MiB;
  o.local_region = 256_KiB;
  fm::heap h(o);
  checked tables(h, 1);
  tables.make_room = [] {};  // reads go on
  for (int i = 0; i < 3'000; ++i) tables.step();
  std::vector<fm::ptr<block>> all;
  const auto fill = [&] {
    return code_of([&] {
      while (all.size() < 1'000'000) all.push_back(h.make<block>({.id = all.size()}));
    });
  };
  for (int round = 0; round < 6; ++round) {
    const fm::errc full = fill();
    REQUIRE((full == fm::errc::agent_full || full == fm::errc::quota_exceeded || full == fm::errc::cache_full));
    const std::uint64_t before = tables.failures;
    for (int i = 0; i < 4'000 && tables.failures < before + 12; ++i) {
      if (i % 25 == 24) (void)fill();  // what was written back may have left room
      tables.step();
      if (i % 100 == 50) tables.erase_some();
    }
    REQUIRE(tables.failures > before);
    tables.require_same();
    all.resize(all.size() / 2);
    REQUIRE(h.collect().ok());
    for (int i = 0; i < 300; ++i) tables.step();
  }
  tables.require_same();
  require_sound(h);
}

TEST_CASE("an operation that finds the cache full leaves its table as it was") {
  fm::heap h(impatient());
  checked tables(h, 2);
  for (int i = 0; i < 9'000; ++i) tables.step();
  for (int round = 0; round < 6; ++round) {
    REQUIRE(h.evict_all() == fm::errc::ok);
    std::vector<fm::read_pin<block>> pins;
    const fm::errc full = code_of([&] {
      while (pins.size() < 1'000'000) pins.push_back(h.make<block>({.id = pins.size()}).read());
    });
    REQUIRE(full == fm::errc::cache_full);
    const std::uint64_t before = tables.failures;
    // Pins go one by one, so operations get further and further.
    tables.make_room = [&] { pins.clear(); };
    for (int i = 0; i < 600 && !pins.empty(); ++i) {
      tables.step();
      if (tables.failures > before + 20 && !pins.empty()) pins.pop_back();
      if (tables.failures > before + 40) break;
      if (i % 50 == 25) tables.erase_some();
    }
    REQUIRE(tables.failures > before);
    pins.clear();
    tables.require_same();
    REQUIRE(h.collect().ok());
  }
  for (const fm::errc c : tables.codes) REQUIRE(c == fm::errc::cache_full);
  require_sound(h);
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
