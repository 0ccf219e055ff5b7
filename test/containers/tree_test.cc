// fm::map and fm::set do what the standard's do, while they grow, shrink, leave the cache and are collected; walks and
// ranges; bulk loading.
#include "fixture.h"

#include <algorithm>
#include <map>
#include <random>
#include <ranges>
#include <set>
#include <thread>

#include "support/served_store.h"

using namespace fm::test;

namespace {

struct five_words {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 5> words{};
  static five_words of(std::uint64_t x) { return {x, {x, ~x, x * 3, x, ~x}}; }
  bool whole() const { return words == of(id).words; }
};
struct term {
  std::uint64_t id = 0;
};
/// A key that is compared by a function which is no constant expression, and has padding.
struct grouped {
  std::uint8_t group = 0;
  std::uint32_t id = 0;
  friend bool operator<(const grouped& a, const grouped& b) {
    static std::atomic<std::uint64_t> comparisons{0};
    ++comparisons;
    return a.id != b.id ? a.id < b.id : a.group < b.group;
  }
};
static_assert(fm::detail::order_of_program<grouped, std::less<grouped>>);
static_assert(!fm::detail::order_of_program<std::uint64_t, std::less<std::uint64_t>>);

using numbers = fm::map<std::uint64_t, std::uint64_t>;
using number_set = fm::set<std::uint64_t>;
using texts = fm::map<fm::string, fm::ref<term>>;

template <class Tree>
constexpr bool is_range = std::ranges::input_range<const Tree>&& std::ranges::common_range<const Tree>;
static_assert(is_range<numbers> && is_range<number_set> && is_range<texts> && is_range<numbers::range_type>);
static_assert(std::same_as<std::ranges::range_value_t<numbers>, std::pair<std::uint64_t, std::uint64_t>>);
static_assert(std::same_as<std::ranges::range_value_t<fm::set<fm::string>>, fm::string>);

/// Maps of several kinds as maps of numbers to numbers, in the order of the numbers.
struct plain_kind {
  using map = fm::map<std::uint64_t, five_words>;
  static std::uint64_t key(std::uint64_t id) { return id; }
  static five_words value(fm::heap&, std::uint64_t x) { return five_words::of(x); }
  static std::uint64_t id(std::uint64_t k) { return k; }
  static std::uint64_t number(const five_words& v) {
    REQUIRE(v.whole());
    return v.id;
  }
};
std::string digits(std::uint64_t id) {
  std::string s = std::to_string(id);
  return std::string(8 - s.size(), '0') + s;
}
struct text_kind {
  using map = texts;
  static std::string key(std::uint64_t id) { return "key " + digits(id); }
  static fm::ptr<term> value(fm::heap& h, std::uint64_t x) { return h.make<term>({.id = x}); }
  static std::uint64_t id(const fm::string& k) { return std::stoull(k.str().substr(4)); }
  static std::uint64_t number(const fm::ptr<term>& v) { return v->id; }
};
/// Heads of texts are all alike, so that texts are compared.
struct long_text_kind : text_kind {
  using map = fm::map<fm::string, std::uint64_t>;
  static std::string key(std::uint64_t id) { return "a text with a long beginning " + digits(id); }
  static std::uint64_t value(fm::heap&, std::uint64_t x) { return x; }
  static std::uint64_t id(const fm::string& k) { return std::stoull(k.str().substr(29)); }
  static std::uint64_t number(std::uint64_t v) { return v; }
};
struct program_kind {
  using map = fm::map<grouped, std::uint64_t>;
  static grouped key(std::uint64_t id) { return {std::uint8_t(id % 3), std::uint32_t(id)}; }
  static std::uint64_t value(fm::heap&, std::uint64_t x) { return x; }
  static std::uint64_t id(const grouped& k) { return k.id; }
  static std::uint64_t number(std::uint64_t v) { return v; }
};
/// Wide entries: few in a leaf, so that the tree has several levels.
struct wide_kind {
  struct wide_key {
    std::uint64_t id = 0;
    std::array<std::uint64_t, 63> rest{};
    constexpr auto operator<=>(const wide_key&) const = default;
  };
  using map = fm::map<wide_key, std::array<std::uint64_t, 100>>;
  static wide_key key(std::uint64_t id) { return {id, {id, ~id}}; }
  static std::array<std::uint64_t, 100> value(fm::heap&, std::uint64_t x) { return {x, ~x}; }
  static std::uint64_t id(const wide_key& k) { return k.id; }
  static std::uint64_t number(const std::array<std::uint64_t, 100>& v) {
    REQUIRE(v[1] == ~v[0]);
    return v[0];
  }
};
static_assert(!fm::detail::order_of_program<wide_kind::wide_key, std::less<wide_kind::wide_key>>);

/// A map and a set beside what they must hold.
template <class Kind>
class checked {
 public:
  checked(fm::heap& h, std::uint64_t seed, std::uint64_t ids) : heap_(h), rng_(seed), ids_(ids) {}

  void step(bool growing) {
    const std::uint64_t id = rng_() % ids_, to = rng_();
    const auto key = Kind::key(id);
    const bool there = oracle_.contains(id);
    switch (rng_() % 16) {
      case 0: find(id); break;
      case 1: REQUIRE((map_.contains(key) == there && set_.contains(id) == there)); break;
      case 2:
        REQUIRE(map_.update(key, [&](auto& v) { v = Kind::value(heap_, to); }) == there);
        if (there) oracle_[id] = to;
        break;
      case 3:
        if (to % 2 == 0)
          REQUIRE(map_.insert(key, Kind::value(heap_, to)) == !there);
        else
          REQUIRE(map_.try_emplace(key, Kind::value(heap_, to)) == !there);
        REQUIRE(set_.insert(id) == !there);
        oracle_.try_emplace(id, to);
        break;
      case 4:
        REQUIRE(Kind::number(map_.get_or_insert(key, [&] { return Kind::value(heap_, to); })) ==
                oracle_.try_emplace(id, to).first->second);
        set_.insert(id);
        break;
      case 5: bounds(id); break;
      case 6: rarely(); break;
      default:
        if (growing || rng_() % 8 == 0) {
          REQUIRE(map_.insert_or_assign(key, Kind::value(heap_, to)) == !there);
          set_.insert(id);
          oracle_[id] = to;
        } else {
          if (to % 4 != 0) {
            REQUIRE(map_.erase(key) == there);
          } else {
            const auto taken = map_.extract(key);
            REQUIRE(taken.has_value() == there);
            if (there) REQUIRE(Kind::number(*taken) == oracle_[id]);
          }
          REQUIRE(set_.erase(id) == there);
          oracle_.erase(id);
        }
    }
  }
  void require_same() {
    auto expected = oracle_.begin();
    for (const auto& [key, v] : map_) {
      REQUIRE(expected != oracle_.end());
      REQUIRE(Kind::id(key) == expected->first);
      REQUIRE(Kind::number(v) == expected->second);
      ++expected;
    }
    REQUIRE(expected == oracle_.end());
    std::uint64_t called = 0;
    map_.for_each([&](const auto& key, const auto& v) { called += oracle_.at(Kind::id(key)) == Kind::number(v); });
    REQUIRE(called == oracle_.size());
    REQUIRE((map_.size() == oracle_.size() && set_.size() == oracle_.size()));
    REQUIRE(std::ranges::equal(set_, std::views::keys(oracle_)));
    const auto first = map_.first(), last = map_.last();
    REQUIRE((first.has_value() == !oracle_.empty() && last.has_value() == !oracle_.empty()));
    if (first) REQUIRE(Kind::id(first->first) == oracle_.begin()->first);
    if (last) REQUIRE(Kind::id(last->first) == oracle_.rbegin()->first);
  }

 private:
  void find(std::uint64_t id) {
    const auto v = map_.find(Kind::key(id));
    REQUIRE(v.has_value() == oracle_.contains(id));
    if (v.has_value()) REQUIRE(Kind::number(*v) == oracle_[id]);
  }
  void bounds(std::uint64_t id) {
    const auto low = map_.lower_bound(Kind::key(id)), high = map_.upper_bound(Kind::key(id));
    const auto expected_low = oracle_.lower_bound(id), expected_high = oracle_.upper_bound(id);
    REQUIRE((low == map_.end()) == (expected_low == oracle_.end()));
    if (low != map_.end()) REQUIRE(Kind::id(low->first) == expected_low->first);
    REQUIRE((high == map_.end()) == (expected_high == oracle_.end()));
    if (high != map_.end()) REQUIRE(Kind::id(high->first) == expected_high->first);
    const std::uint64_t to = rng_() % ids_;
    auto expected = expected_low;
    for (const auto& [key, v] : map_.range(Kind::key(id), Kind::key(to))) {
      REQUIRE(Kind::id(key) == expected->first);
      REQUIRE((Kind::number(v) == expected->second && expected->first < to));
      ++expected;
    }
    REQUIRE((to <= id || expected == oracle_.lower_bound(to)));
  }
  void rarely() {
    switch (rng_() % 400) {
      case 0: map_.clear(), set_.clear(), oracle_.clear(); break;
      case 1: REQUIRE(heap_.collect().ok()); break;
      case 2: REQUIRE(heap_.evict_all() == fm::errc::ok); break;
      case 3: require_same(); break;
      case 4: {
        const std::uint64_t of = rng_() % 5;
        const auto goes = [&](std::uint64_t k) { return k % 5 == of; };
        const auto n = std::erase_if(oracle_, [&](const auto& e) { return goes(e.first); });
        REQUIRE(map_.erase_if([&](const auto& k, const auto&) { return goes(Kind::id(k)); }) == n);
        REQUIRE(set_.erase_if(goes) == n);
        break;
      }
      case 5: load(); break;
      default:;
    }
  }
  void load() {
    std::vector<std::pair<decltype(Kind::key(0)), typename Kind::map::argument>> sorted;
    oracle_.clear();
    for (std::uint64_t id = rng_() % 10; id < ids_; id += 1 + rng_() % 4) {
      oracle_[id] = rng_();
      sorted.emplace_back(Kind::key(id), Kind::value(heap_, oracle_[id]));
    }
    map_.bulk_load(sorted);
    set_.bulk_load(std::views::keys(oracle_));
  }

  fm::heap& heap_;
  std::mt19937_64 rng_;
  const std::uint64_t ids_;
  const typename Kind::map map_{heap_};
  const number_set set_{heap_};
  std::map<std::uint64_t, std::uint64_t> oracle_;
};

class served_at final : public served_store {
 public:
  explicit served_at(const std::string& url) : served_store({.memory_bytes = 128_MiB, .region_bytes = 1_MiB}) {
    serve(url);
  }
  ~served_at() override { stop(); }
  served_at(const served_at&) = delete;
  served_at& operator=(const served_at&) = delete;
};

std::uint64_t nodes_of(fm::heap& h, std::string_view what) {
  REQUIRE(h.collect().ok());
  std::uint64_t n = 0;
  for (const auto& t : h.stats(fm::detail_level::types).types)
    if (t.name.starts_with(std::string("fm::detail::tree_") + std::string(what))) n += t.objects;
  return n;
}

}  // namespace

TEMPLATE_TEST_CASE("a tree does what the standard's does, while it comes, goes, leaves and is collected", "",
                   plain_kind, text_kind, long_text_kind, program_kind, wide_kind) {
  fm::heap h(tiny());
  checked<TestType> trees(h, GENERATE(1, 2), std::same_as<TestType, wide_kind> ? 1'500 : 6'000);
  for (std::uint64_t step = 0; step < effort(30'000); ++step) trees.step(step / effort(6'000) % 2 == 0);
  trees.require_same();
  REQUIRE(h.collect().ok());
  require_sound(h);
  trees.require_same();
}

TEMPLATE_TEST_CASE("a tree does what the standard's does over every transport, under collections without end", "",
                   plain_kind, text_kind) {
  const std::string transport = GENERATE("local", "tcp", "shm");
  std::optional<served_at> agent;
  auto o = tiny();
  if (transport != "local") {
    agent.emplace(transport == "tcp" ? "tcp://127.0.0.1:0" : "shm:///tmp/farmem-trees-" + std::to_string(::getpid()));
    o.agents = {agent->url()};
  }
  fm::heap h(o);
  checked<TestType> trees(h, 3, 6'000);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> cycles{0}, failed{0};
  std::thread collector([&] {
    do {
      failed += !h.collect().ok();
      ++cycles;
    } while (!done);
  });
  try {
    for (std::uint64_t step = 0; step < effort(12'000); ++step) trees.step(step / effort(4'000) % 2 == 0);
  } catch (...) {
    done = true;
    collector.join();
    throw;
  }
  done = true;
  collector.join();
  trees.require_same();
  REQUIRE((cycles > 0 && failed == 0));
  require_sound(h);
}

TEST_CASE("a tree larger than the cache keeps every key, in order") {
  fm::heap h(tiny());
  const fm::map<std::uint64_t, std::array<std::uint64_t, 6>> m(h);
  constexpr std::uint64_t n = 80'000;
  const auto key = [](std::uint64_t i) { return i * 0x9e3779b97f4a7c15; };
  for (std::uint64_t i = 0; i < n; ++i) REQUIRE(m.insert_or_assign(key(i), {i, 0, 0, 0, 0, ~i}));
  for (std::uint64_t i = 0; i < n; i += 3) {
    const auto v = m.find(key(i));
    REQUIRE((v && (*v)[0] == i && (*v)[5] == ~i));
  }
  std::uint64_t seen = 0, last = 0;
  for (const auto& [k, v] : m) {
    REQUIRE((k == key(v[0]) && (seen == 0 || k > last)));
    last = k;
    ++seen;
  }
  REQUIRE((seen == n && m.size() == n));
  REQUIRE(h.stats().misses > 1000);
  require_sound(h);
}

TEST_CASE("texts are in the order of their bytes, whatever they begin with and however long they are") {
  fm::heap h(tiny());
  const fm::set<fm::string> s(h);
  std::set<std::string> oracle;
  std::mt19937_64 rng(9);
  for (int i = 0; i < 6'000; ++i) {
    std::string t(rng() % 20, '\0');
    for (char& c : t) c = "\0\0\0a\xff"[rng() % 5];
    REQUIRE(s.insert(t) == oracle.insert(t).second);
    if (i % 3 == 0) REQUIRE(s.contains(t.substr(0, t.size() / 2)) == oracle.contains(t.substr(0, t.size() / 2)));
    if (i % 4 == 0) {
      const std::string goes = t.substr(t.size() / 3);
      REQUIRE(s.erase(goes) == (oracle.erase(goes) != 0));
    }
  }
  REQUIRE(std::ranges::equal(s, oracle, [](const fm::string& a, const std::string& b) { return a == b; }));
  const std::string from("a\0", 2), to("\xff\xff");
  std::vector<std::string> range;
  for (const fm::string& t : s.range(from, to)) range.push_back(t.str());
  REQUIRE(std::equal(oracle.lower_bound(from), oracle.lower_bound(to), range.begin(), range.end()));
  require_sound(h);
}

TEST_CASE("a lookup by short texts fetches no text") {
  fm::heap h(tiny());
  const fm::set<fm::string> s(h);
  for (std::uint64_t i = 0; i < 2'000; ++i) s.insert("key " + digits(i));
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (std::uint64_t i = 0; i < 2'000; i += 2) REQUIRE(s.contains("key " + digits(i)));
  // Nodes alone: some 20 leaves, and what an elastic fetch brings along counts as no miss.
  REQUIRE(h.stats().misses < 100);
}

TEST_CASE("a bulk load gives the tree the sorted entries, or refuses them and leaves it as it was") {
  fm::heap h(tiny(8_MiB));
  const numbers m(h);
  const auto sorted = [](std::uint64_t n) {
    return std::views::iota(std::uint64_t{0}, n) |
           std::views::transform([](std::uint64_t i) { return std::pair(i * 2, i); });
  };
  for (const std::uint64_t n : {0, 1, 5, 200, 232, 233, 1'000, 100'000}) {
    m.bulk_load(sorted(n));
    REQUIRE(m.size() == n);
    REQUIRE(std::ranges::equal(m, sorted(n)));
    for (std::uint64_t i = 0; i < n; i += 1 + n / 100) REQUIRE((m.find(i * 2) == i && !m.contains(i * 2 + 1)));
    REQUIRE(m.last().has_value() == (n != 0));
  }
  // Full but for a sixteenth: about 100,000 entries of 17 bytes in leaves of 4 KiB.
  REQUIRE(nodes_of(h, "leaf") < 480);
  for (std::uint64_t i = 0; i < 100'000; i += 5) REQUIRE(m.insert(i * 2 + 1, 7));
  REQUIRE(m.size() == 120'000);
  REQUIRE(m.find(50'001) == std::optional<std::uint64_t>(7));

  std::vector<std::pair<std::uint64_t, std::uint64_t>> unsorted{{1, 1}, {2, 2}, {5, 5}, {4, 4}};
  const auto message_of = [&] {
    try {
      m.bulk_load(unsorted);
      return std::string("taken");
    } catch (const fm::error& e) {
      REQUIRE(e.code() == fm::errc::invalid_argument);
      return std::string(e.what());
    }
  };
  REQUIRE(message_of().find("key 3 ") != std::string::npos);
  unsorted[3].first = 5;  // twice
  REQUIRE(message_of().find("key 3 ") != std::string::npos);
  REQUIRE(m.size() == 120'000);
  unsorted[3].first = 6;
  REQUIRE(message_of() == "taken");
  REQUIRE(m.size() == 4);
  const fm::set<fm::string> words(h);
  REQUIRE(code_of([&] { words.bulk_load(std::vector<std::string_view>{"b", "a"}); }) == fm::errc::invalid_argument);
  REQUIRE(words.empty());
  words.bulk_load(std::vector<std::string_view>{"a", "b"});
  REQUIRE(words.last()->str() == "b");
  require_sound(h);
}

TEST_CASE("leaves that are filled in order are full, and a tree from which most is erased has few") {
  fm::heap h(tiny(8_MiB));
  const numbers m(h);
  constexpr std::uint64_t n = 50'000;
  for (std::uint64_t i = 0; i < n; ++i) m.insert(i, i);
  const std::uint64_t full = nodes_of(h, "leaf");
  REQUIRE(full <= n / 230);
  for (std::uint64_t i = 0; i < n; ++i)
    if (i % 20 != 0) REQUIRE(m.erase(i));
  REQUIRE(nodes_of(h, "leaf") < full / 4);
  for (std::uint64_t i = 0; i < n; ++i) REQUIRE(m.contains(i) == (i % 20 == 0));
  for (std::uint64_t i = 0; i < n; i += 20) REQUIRE(m.erase(i));
  REQUIRE((m.empty() && !m.first() && !m.last() && m.begin() == m.end()));
  REQUIRE(nodes_of(h, "leaf") <= 2);
  REQUIRE(nodes_of(h, "inner") <= 2);
  require_sound(h);
}

TEST_CASE("a scan fetches the leaves that come next while it goes on") {
  auto o = tiny();
  o.elastic = false;  // which would bring them along, too
  fm::heap h(o);
  const numbers m(h);
  m.bulk_load(std::views::iota(std::uint64_t{0}, std::uint64_t{100'000}) |
              std::views::transform([](std::uint64_t i) { return std::pair(i, i); }));
  const std::uint64_t leaves = 100'000 / 217;
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto before = h.stats();
  std::uint64_t sum = 0;
  for (const auto& [k, v] : m.range(0, 50'000)) sum += v;
  REQUIRE(sum == 50'000ull * 49'999 / 2);
  const auto after = h.stats();
  REQUIRE(after.misses - before.misses < leaves / 8);
  REQUIRE(after.prefetches - before.prefetches > leaves / 4);
  REQUIRE(after.prefetches - before.prefetches < leaves * 5 / 8);  // and none behind the range
}
