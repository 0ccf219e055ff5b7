// Operations of trees that fail: each fetch in turn, for want of memory on the agent, or in the cache. The table of
// docs/how-to/containers.md says what each leaves.
#include "fixture.h"

#include <algorithm>
#include <map>
#include <random>
#include <ranges>

#include "sparing_agent.h"

using namespace fm::test;

namespace {

using numbers = std::map<std::uint64_t, std::uint64_t>;
using tree = fm::map<std::uint64_t, std::uint64_t>;
using texts = fm::map<fm::string, std::uint64_t>;

constexpr std::uint64_t many = 1'100;
std::string text_of(std::uint64_t i) { return "a text with a long beginning " + std::to_string(100'000 + i); }

/// Both hold the same entries: numbers, and texts of them.
struct both {
  tree m;
  texts t;
};
struct operation {
  const char* name;
  bool strong;  ///< after a throw all is as before; otherwise some entries that should go are gone
  std::function<void(const both&)> run;
  std::function<void(numbers&)> on_oracle;
};
const std::vector<operation> operations{
    {"find", true, [](const both& b) { (void)b.m.find(2'000); }, [](numbers&) {}},
    {"find of text", true, [](const both& b) { (void)b.t.find(text_of(2'000)); }, [](numbers&) {}},
    {"size", true, [](const both& b) { (void)b.m.size(); }, [](numbers&) {}},
    {"first and last", true, [](const both& b) { (void)b.m.first(), (void)b.t.last(); }, [](numbers&) {}},
    {"walk", true, [](const both& b) { b.m.for_each([](auto, auto) {}), (void)b.t.begin(); }, [](numbers&) {}},
    {"insert", true, [](const both& b) { b.m.insert(2'001, 7); }, [](numbers& n) { n[2'001] = 7; }},
    {"insert of text", true, [](const both& b) { b.t.insert(text_of(2'001), 7); }, [](numbers& n) { n[2'001] = 7; }},
    {"assign", true, [](const both& b) { b.m.insert_or_assign(2'000, 7); }, [](numbers& n) { n[2'000] = 7; }},
    {"try_emplace", true, [](const both& b) { b.m.try_emplace(2'003, 7u); }, [](numbers& n) { n[2'003] = 7; }},
    {"update", true, [](const both& b) { b.m.update(2'000, [](auto& v) { ++v; }); }, [](numbers& n) { ++n[2'000]; }},
    {"erase", true, [](const both& b) { b.m.erase(2'000); }, [](numbers& n) { n.erase(2'000); }},
    {"extract", true, [](const both& b) { (void)b.m.extract(2'000); }, [](numbers& n) { n.erase(2'000); }},
    {"extract of text", true, [](const both& b) { (void)b.t.extract(text_of(2'000)); },
     [](numbers& n) { n.erase(2'000); }},
    {"erase of text", true, [](const both& b) { b.t.erase(text_of(2'000)); }, [](numbers& n) { n.erase(2'000); }},
    {"clear", true, [](const both& b) { b.m.clear(); }, [](numbers& n) { n.clear(); }},
    {"bulk_load", true,
     [](const both& b) {
       b.m.bulk_load(std::vector<std::pair<int, int>>{{1, 2}, {3, 4}});
     },
     [](numbers& n) {
       n = {{1, 2}, {3, 4}};
     }},
    {"erase_if", false, [](const both& b) { b.m.erase_if([](auto k, auto) { return k % 20 == 0; }); },
     [](numbers& n) { std::erase_if(n, [](const auto& e) { return e.first % 20 == 0; }); }},
};
bool is_of_text(const operation& op) { return std::string_view(op.name).find("text") != std::string_view::npos; }

void require_holds(const both& b, const numbers& m, const numbers& t) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const auto& [key, v] : b.t) seen.emplace_back(std::stoull(key.str().substr(29)) - 100'000, v);
  REQUIRE(std::ranges::equal(b.m, m,
                             [](const auto& x, const auto& y) { return x.first == y.first && x.second == y.second; }));
  REQUIRE(std::ranges::equal(seen, t,
                             [](const auto& x, const auto& y) { return x.first == y.first && x.second == y.second; }));
  REQUIRE((b.m.size() == m.size() && b.t.size() == t.size()));
}

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

/// A map of texts and a set of numbers, what they must hold, and how often a call failed.
class checked {
 public:
  explicit checked(fm::heap& h, std::uint64_t seed) : heap_(h), rng_(seed) {}

  /// Calls one member. If it throws, all is as before.
  void step() {
    const std::uint64_t id = rng_() % 3'000, x = rng_();
    const std::string key = text_of(id);
    const bool there = oracle_.contains(id), in_set = in_set_.contains(id);
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
        if (attempt(!there, [&] { return map_.try_emplace(key, value_of(x)); })) oracle_.try_emplace(id, x);
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
      case 7: {
        const auto next = in_set_.lower_bound(id);
        const std::uint64_t expected = next == in_set_.end() ? ~0ull : next->first;
        attempt(expected, [&] {
          const auto at = set_.lower_bound(id);
          return at == set_.end() ? ~0ull : *at;
        });
        break;
      }
      default:
        if (attempt(!there, [&] { return map_.insert_or_assign(key, value_of(x)); })) oracle_[id] = x;
    }
    if (rng_() % 300 == 0) load();
  }
  void require_same() {
    patiently(heap_, [&] { compare(); });
  }
  std::uint64_t failures = 0;
  std::vector<fm::errc> codes;

 private:
  void load() {
    numbers sorted;
    for (std::uint64_t id = rng_() % 5; id < 3'000; id += 1 + rng_() % 3) sorted[id] = 0;
    if (attempt(true, [&] { return set_.bulk_load(std::views::keys(sorted)), true; })) in_set_ = sorted;
  }
  void compare() {
    auto expected = oracle_.begin();
    for (const auto& [key, v] : map_) {
      const std::string text = key.str();  // not in REQUIRE, which would take what it throws for a fault
      REQUIRE(expected != oracle_.end());
      REQUIRE((v == value_of(expected->second) && text == text_of(expected->first)));
      ++expected;
    }
    const std::uint64_t entries = map_.size(), keys = set_.size();
    REQUIRE((expected == oracle_.end() && entries == oracle_.size()));
    const bool same = std::ranges::equal(set_, std::views::keys(in_set_));
    REQUIRE(same);
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

  fm::heap& heap_;
  std::mt19937_64 rng_;
  const fm::map<fm::string, value> map_{heap_};
  const fm::set<std::uint64_t> set_{heap_};
  numbers oracle_, in_set_;
};

fm::heap_options impatient() {
  auto o = tiny();
  o.collect = o.collect_young = false;
  o.memory_within = std::chrono::milliseconds(20);
  return o;
}

}  // namespace

TEST_CASE("a tree keeps what the table says when any fetch fails") {
  sparing_agent agent;
  fm::heap h(agent.options());
  numbers before;
  for (std::uint64_t i = 0; i < many; ++i) before[i * 2] = i;
  for (const operation& op : operations) {
    INFO(op.name);
    numbers after = before;
    op.on_oracle(after);
    fm::errc result = fm::errc::not_found;
    int failures = 0;
    for (std::int64_t reads = 0; result != fm::errc::ok; reads += std::int64_t{effort_divisor}) {
      INFO(reads << " reads are answered");
      REQUIRE(reads < 200);
      const both b{tree(h), texts(h)};
      b.m.bulk_load(before);
      b.t.bulk_load(before |
                    std::views::transform([](const auto& e) { return std::pair(text_of(e.first), e.second); }));
      REQUIRE(h.evict_all() == fm::errc::ok);
      agent.gives = reads;
      result = code_of([&] { op.run(b); });
      agent.gives = agent.unlimited;
      if (result == fm::errc::ok) {
        require_holds(b, is_of_text(op) ? before : after, is_of_text(op) ? after : before);
      } else if (op.strong) {
        REQUIRE(result == fm::errc::access_denied);
        require_holds(b, before, before);
        ++failures;
      } else {
        REQUIRE(result == fm::errc::access_denied);
        numbers left;
        for (const auto& [k, v] : before)
          if (after.contains(k) || b.m.contains(k)) left[k] = v;
        require_holds(b, left, before);
        ++failures;
      }
    }
    REQUIRE(failures > 0);
  }
  require_sound(h);
}

TEST_CASE("an increment of a tree's iterator that throws may be made again") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const tree m(h);
  m.bulk_load(std::views::iota(0, 2'000) | std::views::transform([](int i) { return std::pair(i, i); }));
  std::uint64_t next = 0, failed = 0;
  for (auto i = m.begin(); i != m.end();) {
    REQUIRE(i->first == next++);
    REQUIRE((next % 100 != 0 || h.evict_all() == fm::errc::ok));
    agent.gives = next % 3;
    if (code_of([&] { ++i; }) != fm::errc::ok) {
      ++failed;
      agent.gives = agent.unlimited;
      ++i;
    }
    agent.gives = agent.unlimited;
  }
  REQUIRE((next == 2'000 && failed > 0));
  require_sound(h);
}

TEST_CASE("an operation that finds the agent full leaves its tree as it was") {
  auto o = impatient();
  o.local_memory = 12_MiB;
  o.local_region = 256_KiB;
  fm::heap h(o);
  checked trees(h, 1);
  for (int i = 0; i < 3'000; ++i) trees.step();
  std::vector<fm::ptr<block>> all;
  const auto fill = [&] {
    return code_of([&] {
      while (all.size() < 1'000'000) all.push_back(h.make<block>({.id = all.size()}));
    });
  };
  for (int round = 0; round < 6; ++round) {
    const fm::errc full = fill();
    REQUIRE((full == fm::errc::agent_full || full == fm::errc::quota_exceeded || full == fm::errc::cache_full));
    const std::uint64_t before = trees.failures;
    for (int i = 0; i < 4'000 && trees.failures < before + 12; ++i) {
      if (i % 25 == 24) (void)fill();  // what was written back may have left room
      trees.step();
    }
    REQUIRE(trees.failures > before);
    trees.require_same();
    all.resize(all.size() / 2);
    REQUIRE(h.collect().ok());
    for (int i = 0; i < 300; ++i) trees.step();
  }
  trees.require_same();
  require_sound(h);
}

TEST_CASE("an operation that finds the cache full leaves its tree as it was") {
  fm::heap h(impatient());
  checked trees(h, 2);
  for (int i = 0; i < 9'000; ++i) trees.step();
  for (int round = 0; round < 6; ++round) {
    REQUIRE(h.evict_all() == fm::errc::ok);
    std::vector<fm::read_pin<block>> pins;
    const fm::errc full = code_of([&] {
      while (pins.size() < 1'000'000) pins.push_back(h.make<block>({.id = pins.size()}).read());
    });
    REQUIRE(full == fm::errc::cache_full);
    const std::uint64_t before = trees.failures;
    // Pins go one by one, so operations get further and further.
    for (int i = 0; i < 600 && !pins.empty(); ++i) {
      trees.step();
      if (trees.failures > before + 20 && !pins.empty()) pins.pop_back();
      if (trees.failures > before + 40) break;
    }
    REQUIRE(trees.failures > before);
    pins.clear();
    trees.require_same();
    REQUIRE(h.collect().ok());
  }
  for (const fm::errc c : trees.codes) REQUIRE(c == fm::errc::cache_full);
  require_sound(h);
}

TEST_CASE("an erasure after which a tree cannot shrink has erased its key") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const tree m(h);
  constexpr std::uint64_t n = 2'000;
  m.bulk_load(std::views::iota(std::uint64_t{0}, n) | std::views::transform([](auto i) { return std::pair(i, i); }));
  std::uint64_t erased = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i % 10 == 0) continue;
    (void)m.contains(i);  // the path is resident, ...
    agent.gives = 0;      // ... and a neighbour of the leaf is not
    if (code_of([&] { REQUIRE(m.erase(i)); }) == fm::errc::ok) ++erased;
    agent.gives = agent.unlimited;
    if (i % 200 == 199) REQUIRE(h.evict_all() == fm::errc::ok);
  }
  REQUIRE(erased > n / 2);
  REQUIRE(m.size() == n - erased);
  require_sound(h);
}
