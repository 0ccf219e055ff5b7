// What maps and sets have in common: they do what the standard's do while they grow, shrink, leave the cache and are
// collected. Walks see every standing key once, whatever happens meanwhile.
#include <atomic>
#include <mutex>
#include <unordered_set>

#include "containers/hash/table_oracle.h"
#include "containers/transports.h"

using namespace fm::test;

namespace {

/// A key that is compared and hashed by functions which are no constant expressions; 16 keys have the same hash.
struct grouped {
  std::uint8_t group = 0;  // and padding
  std::uint32_t id = 0;
  friend bool operator==(const grouped& a, const grouped& b) {
    static std::atomic<std::uint64_t> comparisons{0};
    ++comparisons;
    return a.id == b.id && a.group == b.group;
  }
};

}  // namespace

template <>
struct std::hash<grouped> {
  std::size_t operator()(const grouped& k) const { return k.id / 16; }
};

namespace {

static_assert(fm::detail::key_of_program<grouped>);

using numbers = fm::hash_map<std::uint64_t, std::uint64_t>;
using number_set = fm::hash_set<std::uint64_t>;
using texts = fm::hash_map<fm::string, fm::ref<term>>;

template <class Table>
constexpr bool is_range = std::ranges::input_range<const Table>&& std::ranges::common_range<const Table>;
static_assert(is_range<numbers> && is_range<number_set> && is_range<texts> && is_range<fm::hash_set<fm::string>>);
static_assert(std::same_as<std::ranges::range_value_t<numbers>, std::pair<std::uint64_t, std::uint64_t>>);
static_assert(std::same_as<std::ranges::range_value_t<fm::hash_set<fm::string>>, fm::string>);

using plain_kind = plain_kind_of<fm::hash_map, fm::hash_set>;
using text_kind = text_kind_of<fm::hash_map, fm::hash_set>;
using program_kind = program_kind_of<grouped, fm::hash_map, fm::hash_set>;

std::uint64_t pages_of(fm::heap& h) {
  std::uint64_t n = 0;
  for (const auto& t : h.stats(fm::detail_level::types).types)
    if (t.name.starts_with("fm::detail::hash_page<")) n += t.objects;
  return n;
}

}  // namespace

TEMPLATE_TEST_CASE("a table does what the standard's does, while it comes, goes, leaves and is collected", "",
                   plain_kind, text_kind, program_kind) {
  fm::heap h(tiny());
  table_oracle<TestType> tables(h, GENERATE(1, 2), 6'000);
  for (std::uint64_t step = 0; step < effort(40'000); ++step) tables.step(step / effort(8'000) % 2 == 0);
  tables.require_same();
  REQUIRE(h.collect().ok());
  require_sound(h);
  tables.require_same();
}

TEMPLATE_TEST_CASE("a table does what the standard's does over every transport, under collections without end", "",
                   plain_kind, text_kind) {
  heap_over over(GENERATE("local", "tcp", "shm"));
  table_oracle<TestType> tables(over.heap, 3, 6'000);
  beside_collections(over.heap, effort(12'000),
                     [&](std::uint64_t step) { tables.step(step / effort(4'000) % 2 == 0); });
  tables.require_same();
  require_sound(over.heap);
}

TEMPLATE_TEST_CASE("a walk sees each standing key once and no key twice, while the table grows and shrinks around it",
                   "", plain_kind, text_kind, program_kind) {
  using kind = TestType;
  fm::heap h(tiny(8_MiB));
  std::mt19937_64 rng(GENERATE(range(0, int(effort(12)) / 2)));
  const typename kind::map m(h);
  // Keys below `standing` are there throughout; at the start, the others are there or not.
  constexpr std::uint64_t standing = 150, coming = 6'000;
  for (std::uint64_t id = 0; id < standing; ++id) m.insert_or_assign(kind::key(id), kind::value(h, id));
  const bool large = rng() % 2 == 0;
  const auto fill = [&] {
    for (std::uint64_t id = standing; id < coming; ++id) m.try_emplace(kind::key(id), kind::value(h, id));
  };
  if (large) fill();
  std::unordered_set<std::uint64_t> seen;
  std::uint64_t stood = 0, steps = 0;
  bool full = large;
  const std::uint64_t every = 5 + rng() % 60;
  for (const auto& [key, v] : m) {
    const std::uint64_t id = kind::id(key);
    REQUIRE(kind::number(v) == id);
    REQUIRE(seen.insert(id).second);
    stood += id < standing;
    if (++steps % every != 0) continue;
    if (steps == 3 * every) REQUIRE(h.collect().ok());
    if (full)
      m.erase_if([&](const auto& k, const auto&) { return kind::id(k) >= standing; });
    else
      fill();
    full = !full;
  }
  REQUIRE(stood == standing);
  require_sound(h);
}

TEST_CASE("threads that walk see each standing key once, beside writers, other walks and collections") {
  fm::heap h(tiny(4_MiB));
  const fm::hash_map<std::uint64_t, five_words> m(h);
  const fm::hash_set<fm::string> words(h);
  const auto word = [](std::uint64_t k) { return "word " + std::to_string(k); };
  constexpr std::uint64_t standing = 100, each = 1'500, waves = 4;
  for (std::uint64_t k = 0; k < standing; ++k) m.insert_or_assign(k, five_words::of(k)), words.insert(word(k));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0}, walks{0};
  std::string failure;
  std::mutex failure_mutex;
  const auto guarded = [&](auto f) {
    return std::thread([&, f] {
      try {
        f();
      } catch (const std::exception& e) {
        const std::lock_guard lock(failure_mutex);
        failure = e.what();
      }
    });
  };
  std::vector<std::thread> writers, others;
  for (std::uint64_t t = 0; t < 2; ++t)
    writers.push_back(guarded([&, t] {
      for (std::uint64_t wave = 0; wave < waves; ++wave) {
        for (std::uint64_t i = 0; i < each; ++i) {
          const std::uint64_t k = standing + i * 2 + t;
          m.insert_or_assign(k, five_words::of(k));
          if (i % 4 == 0) words.insert(word(k));
          m.update(i % standing, [](five_words& v) { v = five_words::of(v.id); });
        }
        if (t == 0)
          m.erase_if([&](std::uint64_t k, const five_words&) { return k >= standing && k % 2 == 0; });
        else
          for (std::uint64_t i = 0; i < each; ++i) wrong += !m.erase(standing + i * 2 + t);
        for (std::uint64_t i = 0; i < each; i += 4) wrong += !words.erase(word(standing + i * 2 + t));
      }
    }));
  for (std::uint64_t t = 0; t < 2; ++t)
    others.push_back(guarded([&] {
      do {
        std::vector<std::uint64_t> seen(standing + 2 * each, 0);
        for (const auto& [k, v] : m) {
          wrong += !v.whole() || v.id != k;
          ++seen.at(k);
        }
        for (std::uint64_t k = 0; k < seen.size(); ++k) wrong += k < standing ? seen[k] != 1 : seen[k] > 1;
        std::unordered_set<std::string> texts_seen;
        for (const fm::string& w : words) wrong += !texts_seen.insert(w.str()).second;
        for (std::uint64_t k = 0; k < standing; ++k) wrong += !texts_seen.contains(word(k));
        ++walks;
      } while (!done);
    }));
  others.push_back(guarded([&] {
    do wrong += !h.collect().ok();
    while (!done);
  }));
  for (auto& t : writers) t.join();
  done = true;
  for (auto& t : others) t.join();
  REQUIRE(failure.empty());
  REQUIRE(wrong == 0);
  REQUIRE(walks >= 2);
  REQUIRE(m.size() == standing);
  REQUIRE(words.size() == standing);
  require_sound(h);
}

TEST_CASE("threads that clear a map leave whole entries, or none") {
  fm::heap h(tiny(4_MiB));
  const fm::hash_map<std::uint64_t, five_words> m(h);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < 2; ++t)
    running.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 6'000; ++i) {
        const std::uint64_t k = i % 700 * 2 + t;
        m.insert_or_assign(k, five_words::of(k));
        m.update(k, [](five_words& v) { v = five_words::of(v.id); });  // which clear waits for
        if (i % 500 == 499) m.clear();
      }
    });
  std::thread reader([&] {
    std::mt19937_64 rng(3);
    do {
      for (int i = 0; i < 100; ++i) {
        const std::uint64_t k = rng() % 1'400;
        const auto v = m.find(k);
        wrong += v && (!v->whole() || v->id != k);
      }
      std::unordered_set<std::uint64_t> seen;
      for (const auto& [k, v] : m) wrong += !v.whole() || v.id != k || !seen.insert(k).second;
    } while (!done);
  });
  for (auto& t : running) t.join();
  done = true;
  reader.join();
  REQUIRE(wrong == 0);
  std::uint64_t n = 0;
  for ([[maybe_unused]] const auto& e : m) ++n;
  REQUIRE(m.size() == n);
  m.clear();
  REQUIRE(m.empty());
  REQUIRE(m.begin() == m.end());
  REQUIRE(m.insert_or_assign(1, five_words::of(1)));
  REQUIRE(m.size() == 1);
  require_sound(h);
}

TEMPLATE_TEST_CASE("a table gives back its pages when most of it was erased, or all", "", plain_kind, text_kind) {
  using kind = TestType;
  fm::heap h(tiny(8_MiB));
  const typename kind::map m(h);
  // More buckets in a shard than a chunk of them has; but this is one thread, which the thread sanitizer has no use for.
  constexpr std::uint64_t n = FM_TSAN ? 10'000 : 60'000;
  for (std::uint64_t id = 0; id < n; ++id) m.insert_or_assign(kind::key(id), kind::value(h, id));
  REQUIRE(h.collect().ok());
  const std::uint64_t pages = pages_of(h);
  REQUIRE(pages > n / 16);
  SECTION("one by one") {
    for (std::uint64_t id = 0; id < n; ++id)
      if (id % 20 != 0) REQUIRE(m.erase(kind::key(id)));
  }
  SECTION("by a predicate") {
    REQUIRE(m.erase_if([](const auto& k, const auto&) { return kind::id(k) % 20 != 0; }) == n - n / 20);
  }
  REQUIRE(h.collect().ok());
  REQUIRE(pages_of(h) < pages / 6);
  for (std::uint64_t id = 0; id < n; ++id) REQUIRE(m.contains(kind::key(id)) == (id % 20 == 0));
  for (std::uint64_t id = 0; id < n; id += 20) REQUIRE(m.erase(kind::key(id)));
  REQUIRE(m.empty());
  REQUIRE(h.collect().ok());
  REQUIRE(pages_of(h) <= fm::detail::map_shards * 2);
  for (std::uint64_t id = 0; id < n; ++id) REQUIRE(m.insert_or_assign(kind::key(id), kind::value(h, id)));
  for (std::uint64_t id = 0; id < n; id += 7) REQUIRE(m.contains(kind::key(id)));
  m.clear();
  REQUIRE(h.collect().ok());
  REQUIRE(pages_of(h) == 0);
  require_sound(h);
}

TEST_CASE("insert adds a key with the value of one of those who ask, and leaves the value of a key that is there") {
  fm::heap h(tiny());
  const fm::hash_map<std::uint64_t, std::uint64_t> numbers(h);
  const fm::hash_map<fm::string, fm::ref<fm::string>> texts(h);
  constexpr std::uint64_t n = 2'000;
  std::array<std::vector<std::uint64_t>, 3> added;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < added.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < n; ++i)
        if (numbers.insert(i, i * 10 + t)) added[t].push_back(i);
    });
  for (auto& t : threads) t.join();
  REQUIRE(added[0].size() + added[1].size() + added[2].size() == n);
  for (std::uint64_t t = 0; t < added.size(); ++t)
    for (const std::uint64_t i : added[t]) REQUIRE(numbers.find(i) == i * 10 + t);
  REQUIRE(numbers.size() == n);

  REQUIRE(texts.insert("a", h.str("first")));
  REQUIRE_FALSE(texts.insert("a", h.str("second")));
  REQUIRE(fm::string(texts.find("a")) == "first");
  require_sound(h);
}
