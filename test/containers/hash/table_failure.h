// What the tests of failing trees and of failing hash tables share. The tables of docs/how-to/containers.md say what each
// operation leaves when it throws.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <ranges>

#include "containers/failures.h"

namespace fm::test {

using table_numbers = std::map<std::uint64_t, std::uint64_t>;
inline std::string text_of(std::uint64_t i) { return "a text with a long beginning " + std::to_string(100'000 + i); }
inline std::uint64_t number_of(const string& text) { return std::stoull(text.str().substr(29)) - 100'000; }

/// Two maps that hold the same entries: numbers, and texts of them.
template <template <class...> class Map>
struct both_maps {
  Map<std::uint64_t, std::uint64_t> m;
  Map<string, std::uint64_t> t;
};
template <template <class...> class Map>
struct table_operation {
  const char* name;
  bool strong;  ///< after a throw all is as before; otherwise some entries that should go are gone
  std::function<void(const both_maps<Map>&)> run;
  std::function<void(table_numbers&)> on_oracle;
  [[nodiscard]] bool is_of_text() const { return std::string_view(name).find("text") != std::string_view::npos; }
};
/// Those that trees and hash tables have in common. Even keys are there.
template <template <class...> class Map>
std::vector<table_operation<Map>> table_operations() {
  using both = both_maps<Map>;
  using numbers = table_numbers;
  return {
      {"find", true, [](const both& b) { (void)b.m.find(500); }, [](numbers&) {}},
      {"find of text", true, [](const both& b) { (void)b.t.find(text_of(500)); }, [](numbers&) {}},
      {"contains", true, [](const both& b) { (void)b.m.contains(501); }, [](numbers&) {}},
      {"size", true, [](const both& b) { (void)b.m.size(); }, [](numbers&) {}},
      {"walk", true, [](const both& b) { b.m.for_each([](auto, auto) {}), (void)b.t.begin(); }, [](numbers&) {}},
      {"insert", true, [](const both& b) { b.m.insert(501, 7); }, [](numbers& n) { n[501] = 7; }},
      {"insert of text", true, [](const both& b) { b.t.insert(text_of(501), 7); }, [](numbers& n) { n[501] = 7; }},
      {"assign", true, [](const both& b) { b.m.insert_or_assign(500, 7); }, [](numbers& n) { n[500] = 7; }},
      {"assign of text", true, [](const both& b) { b.t.insert_or_assign(text_of(500), 7); },
       [](numbers& n) { n[500] = 7; }},
      {"try_emplace", true, [](const both& b) { b.m.try_emplace(503, 7u); }, [](numbers& n) { n[503] = 7; }},
      {"get_or_insert", true, [](const both& b) { (void)b.m.get_or_insert(505, [] { return 7u; }); },
       [](numbers& n) { n[505] = 7; }},
      {"update", true, [](const both& b) { b.m.update(500, [](auto& v) { ++v; }); }, [](numbers& n) { ++n[500]; }},
      {"erase", true, [](const both& b) { b.m.erase(500); }, [](numbers& n) { n.erase(500); }},
      {"erase of text", true, [](const both& b) { b.t.erase(text_of(500)); }, [](numbers& n) { n.erase(500); }},
      {"extract", true, [](const both& b) { (void)b.m.extract(500); }, [](numbers& n) { n.erase(500); }},
      {"extract of text", true, [](const both& b) { (void)b.t.extract(text_of(500)); },
       [](numbers& n) { n.erase(500); }},
      {"clear", true, [](const both& b) { b.m.clear(); }, [](numbers& n) { n.clear(); }},
      {"erase_if", false, [](const both& b) { b.m.erase_if([](auto k, auto) { return k % 20 == 0; }); },
       [](numbers& n) { std::erase_if(n, [](const auto& e) { return e.first % 20 == 0; }); }},
  };
}

/// Both maps with the numbers below `n`, doubled, and what they hold.
template <template <class...> class Map>
both_maps<Map> both_with(heap& h, const table_numbers& all) {
  const both_maps<Map> b{decltype(both_maps<Map>::m)(h), decltype(both_maps<Map>::t)(h)};
  if constexpr (requires { b.m.first(); }) {
    b.m.bulk_load(all);
    b.t.bulk_load(all | std::views::transform([](const auto& e) { return std::pair(text_of(e.first), e.second); }));
  } else {
    for (const auto& [k, v] : all) b.m.insert(k, v), b.t.insert(text_of(k), v);
  }
  return b;
}
template <template <class...> class Map>
void require_holds(const both_maps<Map>& b, const table_numbers& m, const table_numbers& t) {
  table_numbers seen, seen_texts;
  for (const auto& [k, v] : b.m) REQUIRE(seen.try_emplace(k, v).second);
  for (const auto& [key, v] : b.t) REQUIRE(seen_texts.try_emplace(number_of(key), v).second);
  REQUIRE(seen == m);
  REQUIRE(seen_texts == t);
  REQUIRE((b.m.size() == m.size() && b.t.size() == t.size()));
}
/// Looks at what an operation left, which threw, or did not.
template <template <class...> class Map>
void require_left(const table_operation<Map>& op, const both_maps<Map>& b, const table_numbers& before, bool threw) {
  table_numbers after = before;
  op.on_oracle(after);
  if (!threw) return require_holds<Map>(b, op.is_of_text() ? before : after, op.is_of_text() ? after : before);
  if (op.strong) return require_holds<Map>(b, before, before);
  table_numbers left;
  for (const auto& [k, v] : before)
    if (after.contains(k) || b.m.contains(k)) left[k] = v;
  require_holds<Map>(b, left, before);
}
inline table_numbers even_numbers(std::uint64_t n) {
  table_numbers all;
  for (std::uint64_t i = 0; i < n; ++i) all[i * 2] = i;
  return all;
}

/// Each of `operations` keeps what the table says, whichever fetch fails.
template <template <class...> class Map>
void fail_each_fetch_of(const std::vector<table_operation<Map>>& operations, std::uint64_t entries) {
  sparing_agent agent;
  heap h(agent.options());
  const table_numbers before = even_numbers(entries);
  for (const auto& op : operations) {
    INFO(op.name);
    fail_each_fetch(
        h, agent, [&] { return both_with<Map>(h, before); }, op.run,
        [&](const both_maps<Map>& b, errc result) { require_left<Map>(op, b, before, result != errc::ok); });
  }
  require_sound(h);
}
/// The same when nothing fits into the cache, then a little, and so on.
template <template <class...> class Map>
void fail_without_room(const std::vector<table_operation<Map>>& operations, std::uint64_t entries) {
  const table_numbers before = even_numbers(entries);
  int failures = 0;
  for (const auto& op : operations) {
    INFO(op.name);
    heap h(impatient(std::chrono::milliseconds(5)));
    const both_maps<Map> b = both_with<Map>(h, before);
    errc result{};
    failures += fail_without_room(h, op.strong, result, [&] { op.run(b); });
    require_left<Map>(op, b, before, result != errc::ok);
    require_sound(h);
  }
  REQUIRE(failures > int(operations.size()) / 2);
}

/// Calls `f`, which changes nothing if it throws, until the machine is quick enough for memory_within.
template <class F>
auto patiently(heap& h, F&& f) {
  for (int tries = 0;; ++tries) try {
      return f();
    } catch (const error& e) {
      if (e.code() != errc::cache_full || tries == 1'000) throw;
      (void)h.evict_all();
    }
}

struct block {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 63> words{};
};
using table_value = std::array<std::uint64_t, 6>;
inline table_value value_of(std::uint64_t x) { return {x, ~x, x, ~x, x, ~x}; }

/// A map of texts and a set of numbers, what they must hold, and how often a call failed.
template <template <class...> class Map, template <class...> class Set>
class failing_oracle {
  using set = Set<std::uint64_t>;
  static constexpr bool ordered = requires(const set& s) { s.first(); };
  static constexpr std::uint64_t ids = 4'000;

 public:
  failing_oracle(heap& h, std::uint64_t seed) : heap_(h), rng_(seed) {}

  /// Calls one member. If it throws, all is as before.
  void step() {
    const std::uint64_t id = rng_() % ids, x = rng_();
    const std::string key = text_of(id);
    const bool there = oracle_.contains(id), in_set = in_set_.contains(id);
    switch (rng_() % 10) {
      case 0:
        if (attempt(there, [&] { return map_.update(key, [&](table_value& v) { v = value_of(x); }); }) && there)
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
        if (attempt(in_set, [&] { return set_.erase(id); })) in_set_.erase(id);
        break;
      case 6:
        if (attempt(!in_set, [&] { return set_.insert(id); })) in_set_[id] = 0;
        break;
      case 7: rarely(id); break;
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
    if (!done) make_room();
    std::erase_if(in_set_, [&](const auto& e) {
      return goes(e.first) && (done || !patiently(heap_, [&] { return set_.contains(e.first); }));
    });
  }
  void require_same() {
    patiently(heap_, [&] { compare(); });
  }
  std::uint64_t failures = 0;
  std::vector<errc> codes;
  /// So that what is asked after a failure does not fail, too.
  std::function<void()> make_room = [] {};

 private:
  void rarely(std::uint64_t id) {
    if (rng_() % 200 == 0) {
      if (attempt(true, [&] { return set_.clear(), true; })) in_set_.clear();
    } else if constexpr (ordered) {
      if (rng_() % 30 == 0) return load();
      const auto next = in_set_.lower_bound(id);
      const std::uint64_t expected = next == in_set_.end() ? ~0ull : next->first;
      attempt(expected, [&] {
        const auto at = set_.lower_bound(id);
        return at == set_.end() ? ~0ull : *at;
      });
    }
  }
  void load() {
    table_numbers sorted;
    for (std::uint64_t id = rng_() % 5; id < ids; id += 1 + rng_() % 3) sorted[id] = 0;
    if (attempt(true, [&] { return set_.bulk_load(std::views::keys(sorted)), true; })) in_set_ = sorted;
  }
  void compare() {
    table_numbers seen;
    for (const auto& [key, v] : map_) {
      const std::uint64_t id = number_of(key);  // not in REQUIRE, which would take what it throws for a fault
      REQUIRE(v == value_of(v[0]));
      REQUIRE(seen.try_emplace(id, v[0]).second);
    }
    REQUIRE(seen == oracle_);
    std::vector<std::uint64_t> keys(set_.begin(), set_.end());
    if constexpr (!ordered) std::ranges::sort(keys);
    REQUIRE(std::ranges::equal(keys, std::views::keys(in_set_)));
    const std::uint64_t entries = map_.size(), in_set = set_.size();
    REQUIRE((entries == oracle_.size() && in_set == in_set_.size()));
  }
  /// Whether `f` did not throw; then it gives `expected`.
  template <class T, class F>
  bool attempt(const T& expected, F&& f) {
    try {
      const T got = f();
      REQUIRE(got == expected);
      return true;
    } catch (const error& e) {
      ++failures;
      codes.push_back(e.code());
      return false;
    }
  }

  heap& heap_;
  std::mt19937_64 rng_;
  const Map<string, table_value> map_{heap_};
  const set set_{heap_};
  table_numbers oracle_, in_set_;
};

/// Operations that find the agent full leave their tables as they were.
template <template <class...> class Map, template <class...> class Set>
void fill_the_agent() {
  auto o = impatient();
  o.local_memory = 12_MiB;
  o.local_region = 256_KiB;
  heap h(o);
  failing_oracle<Map, Set> tables(h, 1);
  for (int i = 0; i < 3'000; ++i) tables.step();
  std::vector<ptr<block>> all;
  const auto fill = [&] {
    return code_of([&] {
      while (all.size() < 1'000'000) all.push_back(h.make<block>({.id = all.size()}));
    });
  };
  for (int round = 0; round < 6; ++round) {
    const errc full = fill();
    REQUIRE((full == errc::agent_full || full == errc::quota_exceeded || full == errc::cache_full));
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
/// The same of the cache.
template <template <class...> class Map, template <class...> class Set>
void fill_the_cache() {
  heap h(impatient());
  failing_oracle<Map, Set> tables(h, 2);
  for (int i = 0; i < 9'000; ++i) tables.step();
  for (int round = 0; round < 6; ++round) {
    REQUIRE(h.evict_all() == errc::ok);
    std::vector<read_pin<block>> pins;
    const errc full = code_of([&] {
      while (pins.size() < 1'000'000) pins.push_back(h.make<block>({.id = pins.size()}).read());
    });
    REQUIRE(full == errc::cache_full);
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
  for (const errc c : tables.codes) REQUIRE(c == errc::cache_full);
  require_sound(h);
}

}  // namespace fm::test
