#include "containers/fixture.h"

#include <functional>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>

using namespace fm::test;

namespace {

struct value {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};
struct term {
  std::uint64_t id = 0;
};
struct coordinates {
  std::int32_t x = 0;
  std::int32_t y = 0;
  friend bool operator==(const coordinates&, const coordinates&) = default;
};
struct library {
  fm::ref<fm::hash_map<fm::string, std::uint64_t>> words;
};
/// A value of many words that shows when it is put together from two.
struct wide {
  std::array<std::uint64_t, 24> words{};
  static wide of(std::uint64_t x) {
    wide v;
    for (std::size_t i = 0; i < v.words.size(); ++i) v.words[i] = x + i * 0x100000;
    return v;
  }
  bool whole() const { return words == of(words[0]).words; }
};
/// A key of many words whose == notices when it is shown half of one.
std::atomic<int> halves{0};
struct broad {
  std::uint64_t first = 0;
  std::array<std::uint64_t, 14> between{};
  std::uint64_t last = 0;
  static broad of(std::uint64_t x) { return {x, {}, x}; }
  friend bool operator==(const broad& x, const broad& y) {
    if (x.first != x.last || y.first != y.last) halves += 1;
    return x.first == y.first;
  }
};
/// Called with the stored key whenever keys are compared.
std::function<void(std::uint64_t)> on_compare;
void compared(std::uint64_t stored) {
  if (on_compare) on_compare(stored);
}
/// Every key has the same hash: all share one chain.
struct unlucky {
  std::uint32_t id = 0;
  float padding_makes_it_use_std_hash = 0;
  friend bool operator==(const unlucky& stored, const unlucky& asked) {
    compared(stored.id);
    return stored.id == asked.id;
  }
};
/// Its == is a constant expression, so it is compared in place: what a writer does in there, it does in the middle of a
/// read.
struct watched {
  std::uint64_t id = 0;
  friend constexpr bool operator==(const watched& stored, const watched& asked) {
    if (!std::is_constant_evaluated()) compared(stored.id);
    return stored.id == asked.id;
  }
};
static_assert(!fm::detail::key_of_program<std::uint64_t> && !fm::detail::key_of_program<double>);
static_assert(!fm::detail::key_of_program<coordinates> && !fm::detail::key_of_program<watched>);
static_assert(fm::detail::key_of_program<broad>);

}  // namespace

template <>
struct std::hash<unlucky> {
  std::size_t operator()(const unlucky&) const { return 7; }
};
static_assert(fm::detail::key_of_program<unlucky>);

TEST_CASE("a managed map does what std::unordered_map does") {
  fm::heap h(tiny());
  fm::hash_map<std::uint64_t, value> m(h);
  std::unordered_map<std::uint64_t, std::uint64_t> oracle;
  std::mt19937_64 rng(21);
  for (int step = 0; step < 60'000; ++step) {
    const std::uint64_t key = rng() % 20'000, to = rng();
    switch (rng() % 8) {
      case 0: REQUIRE(m.erase(key) == (oracle.erase(key) == 1)); break;
      case 1: {
        const auto v = m.find(key);
        REQUIRE(v.has_value() == oracle.contains(key));
        if (v) REQUIRE((v->a == oracle[key] && v->b == ~v->a));
        break;
      }
      case 2: {
        const bool there = oracle.contains(key);
        REQUIRE(m.update(key, [](value& v) { v.a += 1, v.b = ~v.a; }) == there);
        if (there) oracle[key] += 1;
        break;
      }
      case 3: {
        const auto v = m.get_or_insert(key, [&] { return value{to, ~to}; });
        REQUIRE(v.a == oracle.try_emplace(key, to).first->second);
        break;
      }
      default: REQUIRE(m.insert_or_assign(key, {to, ~to}) == oracle.insert_or_assign(key, to).second);
    }
  }
  REQUIRE(m.size() == oracle.size());
  std::set<std::uint64_t> seen;
  m.for_each([&](std::uint64_t key, const value& v) {
    REQUIRE(oracle.at(key) == v.a);
    seen.insert(key);
  });
  REQUIRE(seen.size() == oracle.size());
  require_sound(h);
  for (const auto& [key, a] : oracle) REQUIRE(m.find(key)->a == a);
}

TEST_CASE("a map larger than the cache keeps every key") {
  fm::heap h(tiny());
  fm::hash_map<std::uint64_t, std::array<std::uint64_t, 6>> m(h);
  constexpr std::uint64_t n = 80'000;  // some 6 MiB in pages
  for (std::uint64_t i = 0; i < n; ++i) REQUIRE(m.insert_or_assign(i * i, {i, 0, 0, 0, 0, ~i}));
  REQUIRE(m.size() == n);
  for (std::uint64_t i = 0; i < n; i += 3) {
    const auto v = m.find(i * i);
    REQUIRE(v);
    REQUIRE(((*v)[0] == i && (*v)[5] == ~i));
  }
  REQUIRE_FALSE(m.contains(2));
  REQUIRE(h.stats().misses > 1000);
  require_sound(h);
}

TEST_CASE("text is a key that is asked with a view, and references are values") {
  fm::heap h(tiny());
  fm::hash_map<fm::string, fm::ref<term>> m(h);
  constexpr std::uint64_t n = 20'000;
  for (std::uint64_t i = 0; i < n; ++i)
    REQUIRE(m.insert_or_assign("word " + std::to_string(i), h.make<term>({.id = i})));
  const auto objects = h.stats().allocated_objects;
  for (std::uint64_t i = 0; i < n; i += 3) {
    const fm::ptr<term> t = m.find("word " + std::to_string(i));
    REQUIRE(t);
    REQUIRE(t->id == i);
    REQUIRE((*m.find("word " + std::to_string(i)))->id == i);
  }
  REQUIRE_FALSE(m.find("word"));
  REQUIRE(code_of([&] { (void)m.find("word").value(); }) == fm::errc::not_found);
  REQUIRE(h.stats().allocated_objects == objects);
  std::uint64_t sum = 0;
  m.for_each([&](const fm::string& key, const fm::ptr<term>& t) {
    sum += key == "word " + std::to_string(t->id) ? t->id : n;
  });
  REQUIRE(sum == n * (n - 1) / 2);
  sum = 0;
  m.for_each([&](std::string_view key, const fm::ptr<term>&) { sum += key.starts_with("word "); });
  REQUIRE(sum == n);
  for (std::uint64_t i = 0; i < n; i += 2) REQUIRE(m.erase("word " + std::to_string(i)));
  REQUIRE_FALSE(m.erase("word 0"));
  REQUIRE(m.size() == n / 2);
  REQUIRE(m.find("word 7777")->id == 7777);
  require_sound(h);
}

TEST_CASE("structs are keys, keys that all collide are found, and a map hangs in a reference") {
  fm::heap h(tiny());
  fm::hash_map<coordinates, std::uint32_t> grid(h);
  for (std::int32_t x = -40; x < 40; ++x)
    for (std::int32_t y = -40; y < 40; ++y) grid.insert_or_assign({x, y}, std::uint32_t(x * 1000 + y));
  REQUIRE(grid.find({-7, 39}) == std::uint32_t(-7 * 1000 + 39));
  REQUIRE_FALSE(grid.find({40, 0}));

  fm::hash_map<unlucky, std::uint32_t> same(h);
  for (std::uint32_t i = 0; i < 300; ++i) same.insert_or_assign({i, 0}, i);
  for (std::uint32_t i = 0; i < 300; ++i) REQUIRE(same.find({i, 0}) == i);
  for (std::uint32_t i = 0; i < 300; i += 2) REQUIRE(same.erase({i, 0}));
  for (std::uint32_t i = 0; i < 300; ++i) REQUIRE(same.contains({i, 0}) == (i % 2 == 1));

  fm::hash_map<fm::string, std::uint64_t> words(h);
  const auto shelf = h.make<library>({.words = words});
  const fm::hash_map<fm::string, std::uint64_t> again = shelf->words;
  again.insert_or_assign("far", 3);
  REQUIRE(words.find("far") == 3u);
  require_sound(h);
}

TEST_CASE("readers and writers share a map that does not fit") {
  fm::heap h(tiny(4_MiB));
  fm::hash_map<std::uint64_t, value> m(h);
  constexpr std::uint64_t each = 8'000;
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> writers, readers;
  m.insert_or_assign(~0ull, {});
  for (std::uint64_t t = 0; t < 2; ++t)
    writers.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < each; ++i) {
        m.insert_or_assign(i * 2 + t, {i, ~i});
        wrong += !m.update(~0ull, [](value& v) { v.a += 1, v.b -= 1; });
        if (i % 5 == 0) wrong += !m.erase(i * 2 + t);
      }
    });
  for (std::uint64_t t = 0; t < 2; ++t)
    readers.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      do {
        for (int i = 0; i < 200; ++i) {
          const std::uint64_t key = rng() % (each * 2);
          if (const auto v = m.find(key)) wrong += v->a != key / 2 || v->b != ~v->a;
          const auto total = m.find(~0ull);
          wrong += !total || total->a + total->b != 0;
        }
        if (t == 0) m.for_each([&](std::uint64_t key, const value& v) { wrong += key != ~0ull && v.b != ~v.a; });
      } while (!done.load());
    });
  for (auto& t : writers) t.join();
  done = true;
  for (auto& t : readers) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(m.find(~0ull)->a == 2 * each);
  REQUIRE(m.size() == 2 * (each - each / 5) + 1);
  for (std::uint64_t i = 0; i < each; ++i)
    for (std::uint64_t t = 0; t < 2; ++t) REQUIRE(m.contains(i * 2 + t) == (i % 5 != 0));
  require_sound(h);
}

TEST_CASE("readers without a lock find every standing key whole, while keys around it come, change, move and go") {
  fm::heap h(tiny(4_MiB));
  fm::hash_map<std::uint64_t, wide> m(h);
  fm::hash_map<fm::string, fm::ref<term>> words(h);
  fm::hash_map<broad, std::uint64_t> broads(h);
  const auto word = [](std::uint64_t k) { return "word " + std::to_string(k); };
  constexpr std::uint64_t standing = 64, coming = 2'400;
  // Keys below `standing` stay; the tables grow from almost nothing around them, so they are split off again and again.
  for (std::uint64_t k = 0; k < standing; ++k) {
    m.insert_or_assign(k, wide::of(k));
    words.insert_or_assign(word(k), h.make<term>({.id = k}));
    broads.insert_or_assign(broad::of(k), k);
  }
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0}, reads{0};
  std::vector<std::thread> writers, readers;
  for (std::uint64_t t = 0; t < 2; ++t)
    writers.emplace_back([&, t] {
      std::mt19937_64 rng(t + 50);
      for (std::uint64_t i = 0; i < coming; ++i) {
        const std::uint64_t k = standing + i * 2 + t, hot = rng() % 4;
        m.insert_or_assign(k, wide::of(k));
        m.insert_or_assign(hot, wide::of(hot + standing * (rng() % 1000)));
        m.update(hot, [&](wide& v) { v = wide::of(v.words[0] + standing); });
        broads.insert_or_assign(broad::of(k), k);
        if (i % 4 == 0) words.insert_or_assign(word(k), h.make<term>({.id = k}));
        if (i % 3 == 0) wrong += !m.erase(k) + !broads.erase(broad::of(k));
        if (i % 8 == 0) wrong += !words.erase(word(k));
      }
    });
  for (std::uint64_t t = 0; t < 2; ++t)
    readers.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      do {
        for (int i = 0; i < 100; ++i) {
          const std::uint64_t k = rng() % (i % 2 ? 4 : standing), other = standing + rng() % (2 * coming);
          const auto v = m.find(k);
          wrong += !v || !v->whole() || v->words[0] % standing != k;
          const auto w = m.find(other);
          wrong += w && (!w->whole() || w->words[0] != other);
          const auto p = words.find(word(k));
          wrong += !p || p->id != k;
          wrong += broads.find(broad::of(k)) != k;
          wrong += broads.contains(broad::of(~k));
          reads += 5;
        }
        std::uint64_t seen = 0;
        if (t == 0) m.for_each([&](std::uint64_t k, const wide& v) { wrong += !v.whole(), seen += k < standing; });
        wrong += t == 0 && seen < standing;
      } while (!done.load());
    });
  for (auto& t : writers) t.join();
  done = true;
  for (auto& t : readers) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(halves == 0);
  REQUIRE(reads > 0);
  REQUIRE(m.size() == standing + 2 * (coming - coming / 3));
  REQUIRE(broads.size() == m.size());
  REQUIRE(words.size() == standing + 2 * (coming / 8));
  require_sound(h);
}

TEST_CASE("a reader that a writer overtakes starts again") {
  fm::heap h(tiny(8_MiB));
  SECTION("an erasure puts the key that is asked for behind the reader") {
    fm::hash_map<watched, std::uint64_t> m(h);
    std::vector<std::uint64_t> keys;  // of one shard, so they share a chain
    const auto shard = [](std::uint64_t k) { return fm::detail::shard_of(fm::detail::map_key<watched>::hash({k})); };
    for (std::uint64_t k = 0; keys.size() < 5; ++k)
      if (shard(k) == shard(0)) keys.push_back(k);
    for (const std::uint64_t k : keys) m.insert_or_assign({k}, k);
    on_compare = [&](std::uint64_t stored) {
      if (stored != keys[2]) return;
      on_compare = nullptr;
      REQUIRE(m.erase({keys[1]}));
    };
    REQUIRE(m.find({keys[4]}) == keys[4]);
    REQUIRE_FALSE(on_compare);
  }
  SECTION("a split takes it to another bucket") {
    for (std::uint64_t k = 0; k < 20; ++k) {
      fm::hash_map<watched, std::uint64_t> m(h);
      m.insert_or_assign({k}, k);
      on_compare = [&](std::uint64_t) {
        on_compare = nullptr;
        for (std::uint64_t i = 100; i < 1500; ++i) m.insert_or_assign({i}, i);
      };
      REQUIRE(m.find({k}) == k);
      REQUIRE_FALSE(on_compare);
    }
  }
  SECTION("a value of many words is replaced") {
    fm::hash_map<watched, wide> m(h);
    m.insert_or_assign({1}, wide::of(1));
    int comparisons = 0;
    on_compare = [&](std::uint64_t) {
      if (++comparisons == 1) REQUIRE_FALSE(m.insert_or_assign({1}, wide::of(2)));
    };
    REQUIRE(m.find({1})->words == wide::of(2).words);
    REQUIRE(comparisons == 3);  // the reader's, the writer's, and the reader's again
    comparisons = 0;
    std::uint64_t seen = 0;
    on_compare = [&](std::uint64_t) { ++comparisons; };
    m.for_each([&](watched k, const wide& v) { seen += k.id == 1 && v.whole(); });
    REQUIRE((seen == 1 && comparisons == 0));
  }
  SECTION("again and again, until the reader takes the lock") {
    fm::hash_map<watched, wide> m(h);
    m.insert_or_assign({1}, wide::of(1));
    std::uint64_t last = 0, changes = 0;
    bool changing = false;
    on_compare = [&](std::uint64_t) {
      if (std::exchange(changing, true)) return;
      try {
        m.insert_or_assign({1}, wide::of(++last));
        ++changes;
      } catch (const fm::error& e) {
        if (e.code() != fm::errc::scope_misuse) throw;  // the reader has taken the lock: nobody changes the key now
        --last;
      }
      changing = false;
    };
    REQUIRE(m.find({1})->words[0] == last);
    REQUIRE((changes > 3 && changes < 100));
  }
  on_compare = nullptr;
  require_sound(h);
}

TEST_CASE("a reader that comes upon a motion that lasts waits for the writer, and then reads") {
  fm::heap h(tiny());
  const fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  m.insert_or_assign(1, 1);
  std::atomic<int> waiting{0};
  std::thread reader;
  {
    // Of every shard in turn would be the same; the key's own is what the reader needs.
    const std::uint64_t hash = fm::detail::map_key<std::uint64_t>::hash(1);
    const fm::detail::shard_writing held(m.slot(), fm::detail::shard_of(hash));
    const fm::detail::shard_motion moving(held);
    reader = std::thread([&] {
      waiting = 1;
      const auto v = m.find(1);
      waiting = v == 1u ? 2 : 3;
    });
    while (waiting == 0) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {
      REQUIRE(waiting == 1);  // it can believe nothing before the motion ends
      std::this_thread::yield();
    }
  }
  reader.join();
  REQUIRE(waiting == 2);
}

TEST_CASE("a map used under the lock of a map is refused, not a deadlock") {
  fm::heap h(tiny());
  fm::hash_map<std::uint32_t, std::uint32_t> m(h), other(h);
  m.insert_or_assign(1, 1);
  REQUIRE(code_of([&] { m.update(1, [&](std::uint32_t&) { (void)other.find(1); }); }) == fm::errc::scope_misuse);
  REQUIRE(m.get_or_insert(2, [&] { return *m.find(1) + 1; }) == 2);
  REQUIRE(m.find(2) == 2u);
  const fm::hash_map<std::uint32_t, std::uint32_t> null;
  REQUIRE(code_of([&] { (void)null.find(1); }) == fm::errc::null_handle);
  require_sound(h);
}
