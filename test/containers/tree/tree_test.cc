// fm::map and fm::set do what the standard's do, while they grow, shrink, leave the cache and are collected; walks and
// ranges; bulk loading.
#include <set>

#include "containers/hash/table_oracle.h"
#include "containers/transports.h"

using namespace fm::test;

namespace {

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

using plain_kind = plain_kind_of<fm::map, fm::set>;
using text_kind = text_kind_of<fm::map, fm::set>;
using program_kind = program_kind_of<grouped, fm::map, fm::set>;
/// Heads of texts are all alike, so that texts are compared.
struct long_text_kind : text_kind {
  using map = fm::map<fm::string, std::uint64_t>;
  static std::string key(std::uint64_t id) { return "a text with a long beginning " + digits(id); }
  static std::uint64_t value(fm::heap&, std::uint64_t x) { return x; }
  static std::uint64_t id(const fm::string& k) { return std::stoull(k.str().substr(29)); }
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
  using set = fm::set<std::uint64_t>;
  static wide_key key(std::uint64_t id) { return {id, {id, ~id}}; }
  static std::array<std::uint64_t, 100> value(fm::heap&, std::uint64_t x) { return {x, ~x}; }
  static std::uint64_t id(const wide_key& k) { return k.id; }
  static std::uint64_t number(const std::array<std::uint64_t, 100>& v) {
    REQUIRE(v[1] == ~v[0]);
    return v[0];
  }
};
static_assert(!fm::detail::order_of_program<wide_kind::wide_key, std::less<wide_kind::wide_key>>);

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
  table_oracle<TestType> trees(h, GENERATE(1, 2), std::same_as<TestType, wide_kind> ? 1'500 : 6'000);
  for (std::uint64_t step = 0; step < effort(30'000); ++step) trees.step(step / effort(6'000) % 2 == 0);
  trees.require_same();
  REQUIRE(h.collect().ok());
  require_sound(h);
  trees.require_same();
}

TEMPLATE_TEST_CASE("a tree does what the standard's does over every transport, under collections without end", "",
                   plain_kind, text_kind) {
  heap_over over(GENERATE("local", "tcp", "shm"));
  table_oracle<TestType> trees(over.heap, 3, 6'000);
  beside_collections(over.heap, effort(12'000), [&](std::uint64_t step) { trees.step(step / effort(4'000) % 2 == 0); });
  trees.require_same();
  require_sound(over.heap);
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
