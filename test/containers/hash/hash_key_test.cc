// How keys are hashed and compared, by the library and by functions of the program; lookup by other types than the
// key's; functions of the program that throw, wait, or use a table where they must not; sets.
#include "containers/fixture.h"
#include "containers/names.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

using namespace fm::test;

namespace {

/// Without padding, but the == and std::hash look at one member only.
struct versioned {
  std::uint32_t id = 0;
  std::uint32_t version = 0;
  friend bool operator==(const versioned& a, const versioned& b) { return a.id == b.id; }
};
/// The same, and has no std::hash: a table needs a Hash.
struct unhashed {
  std::uint32_t id = 0;
  std::uint32_t version = 0;
};
struct id_hash {
  constexpr std::size_t operator()(const unhashed& k) const { return k.id; }
};
struct id_equal {
  constexpr bool operator()(const unhashed& a, const unhashed& b) const { return a.id == b.id; }
};
static_assert(!fm::detail::key_of_program<unhashed, id_hash, id_equal>);

struct name_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return s.size() + std::size_t(s.empty() ? 0 : s[0]) * 31; }
  std::size_t operator()(const name& n) const { return (*this)(n.view()); }
};
struct name_equal {
  using is_transparent = void;
  bool operator()(const name& a, const name& b) const { return a.view() == b.view(); }
  bool operator()(const name& a, std::string_view b) const { return a.view() == b; }
};

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }
struct caseless_hash {
  std::size_t operator()(std::string_view s) const {
    std::size_t h = 0;
    for (const char c : s) h = h * 31 + std::size_t(lower(c));
    return h;
  }
};
struct caseless_equal {
  constexpr bool operator()(std::string_view a, std::string_view b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
  }
};

struct shelf {
  fm::ref<fm::hash_set<fm::string, caseless_hash, caseless_equal>> words;
  fm::ref<fm::hash_set<std::uint64_t>> numbers;
};

}  // namespace

template <>
struct std::hash<versioned> {
  std::size_t operator()(const versioned& k) const { return k.id; }
};

TEST_CASE("a key without padding is hashed by its std::hash and compared by its ==") {
  fm::heap h(tiny());
  const fm::hash_map<versioned, std::uint64_t> m(h);
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE(m.insert_or_assign({i, i}, i));
  for (std::uint32_t i = 0; i < 500; ++i) {
    REQUIRE(m.find({i, 77}) == i);
    REQUIRE_FALSE(m.insert_or_assign({i, 78}, i + 1));
    REQUIRE(m.update({i, 79}, [](std::uint64_t& v) { ++v; }));
  }
  REQUIRE(m.size() == 500);
  for (const auto& [k, v] : m) REQUIRE((k.version == k.id && v == k.id + 2));
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE(m.erase({i, 80}));
  REQUIRE(m.empty());
  require_sound(h);
}

TEST_CASE("a table takes its own hash and equality") {
  fm::heap h(tiny());
  const fm::hash_map<unhashed, std::uint64_t, id_hash, id_equal> m(h);
  const fm::hash_set<unhashed, id_hash, id_equal> s(h);
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE((m.try_emplace({i, i}, i) && s.insert({i, i})));
  for (std::uint32_t i = 0; i < 500; ++i) {
    REQUIRE_FALSE(m.try_emplace({i, 7}, 0u));
    REQUIRE_FALSE(s.insert({i, 7}));
    REQUIRE((m.find({i, 8}) == i && s.contains({i, 9})));
  }
  REQUIRE((m.size() == 500 && s.size() == 500));
  require_sound(h);
}

TEST_CASE("a key is looked up by what its transparent hash and equality take") {
  fm::heap h(tiny());
  const fm::hash_map<name, std::uint64_t, name_hash, name_equal> m(h);
  const fm::hash_set<name, name_hash, name_equal> s(h);
  const auto text = [](std::uint64_t i) { return "name " + std::to_string(i); };
  for (std::uint64_t i = 0; i < 300; ++i) m.insert_or_assign(name::of(text(i)), i), s.insert(name::of(text(i)));
  for (std::uint64_t i = 0; i < 300; ++i) {
    REQUIRE(m.find(std::string_view(text(i))) == i);
    REQUIRE(m.find(text(i)) == i);
    REQUIRE(m.contains(text(i)));
    REQUIRE(m.update(text(i), [](std::uint64_t& v) { ++v; }));
    REQUIRE(m.find(name::of(text(i))) == i + 1);
    REQUIRE(s.contains(text(i)));
  }
  REQUIRE_FALSE(m.contains("nobody"));
  REQUIRE_FALSE(m.find("nobody"));
  REQUIRE_FALSE(m.update("nobody", [](std::uint64_t&) {}));
  for (std::uint64_t i = 0; i < 300; i += 2) REQUIRE((m.erase(text(i)) && s.erase(text(i))));
  REQUIRE_FALSE(m.erase(text(0)));
  REQUIRE((m.size() == 150 && s.size() == 150));
  require_sound(h);
}

TEST_CASE("text is hashed and compared as its table says, and sets hang in references") {
  fm::heap h(tiny());
  const auto kept = h.make<shelf>(
      {.words = fm::hash_set<fm::string, caseless_hash, caseless_equal>(h), .numbers = fm::hash_set<std::uint64_t>(h)});
  const fm::hash_set<fm::string, caseless_hash, caseless_equal> s = kept->words;
  REQUIRE(s.insert("Far"));
  REQUIRE_FALSE(s.insert("fAR"));
  for (int i = 0; i < 500; ++i) REQUIRE(s.insert("Word " + std::to_string(i)));
  for (int i = 0; i < 500; ++i) REQUIRE(s.contains("wORD " + std::to_string(i)));
  REQUIRE(std::ranges::find_if(s, [](const fm::string& t) { return t == "Far"; }) != s.end());
  REQUIRE(s.erase_if([](std::string_view t) { return t.starts_with("Word"); }) == 500);
  REQUIRE(s.size() == 1);
  const fm::hash_set<std::uint64_t> n = kept->numbers;
  for (std::uint64_t i = 0; i < 100; ++i) n.insert(i);
  REQUIRE(h.collect().ok());
  REQUIRE(fm::hash_set<std::uint64_t>(kept->numbers).size() == 100);
  REQUIRE(std::ranges::max(n) == 99);
  require_sound(h);
}

TEST_CASE("try_emplace makes a value only for a key that is not there") {
  fm::heap h(tiny());
  struct pair_of {
    std::uint32_t a = 0, b = 0;
  };
  const fm::hash_map<std::uint64_t, pair_of> m(h);
  REQUIRE(m.try_emplace(1));
  REQUIRE(m.try_emplace(2, 3u, 4u));
  REQUIRE_FALSE(m.try_emplace(2, 5u, 6u));
  REQUIRE((m.find(1)->b == 0 && m.find(2)->a == 3 && m.find(2)->b == 4));
  const fm::hash_map<std::uint64_t, fm::ref<fm::hash_set<std::uint64_t>>> sets(h);
  REQUIRE(sets.try_emplace(1, fm::hash_set<std::uint64_t>(h)));
  REQUIRE(sets.find(1).insert(5));
  REQUIRE(sets.find(1).contains(5));
}

TEST_CASE("a predicate of erase_if may wait for a thread that uses a map with the same lock") {
  fm::heap h(tiny());
  using counters = fm::hash_map<std::uint64_t, std::uint64_t>;
  const auto lock_of = [](const counters& m, std::uint64_t key) {
    return &fm::detail::entry_of_shard(m.slot(), fm::detail::shard_of(fm::detail::map_key<std::uint64_t>::hash(key)));
  };
  const counters b(h);
  b.insert_or_assign(0, 0);
  std::vector<counters> others;
  std::optional<std::uint64_t> key;
  while (!key) {
    REQUIRE(others.size() < 10'000);
    others.emplace_back(h);
    for (std::uint64_t k = 0; k < 64 && !key; ++k)
      if (lock_of(others.back(), k) == lock_of(b, 0)) key = k;
  }
  const counters& a = others.back();
  std::mutex of_the_program;
  std::atomic<bool> asking{false}, cleared{false}, updated{false};
  std::thread eraser, clearer, updater;
  {
    const std::lock_guard lock(of_the_program);
    eraser = std::thread([&] {
      b.erase_if([&](std::uint64_t, std::uint64_t v) {
        asking = true;
        const std::lock_guard lock_too(of_the_program);
        return v != 0;
      });
    });
    while (!asking) std::this_thread::yield();
    a.insert_or_assign(*key, 1);
    REQUIRE(a.erase(*key));
    REQUIRE(b.find(0) == 0u);  // readers do not wait for the predicate
    for (const auto& [k, v] : b) REQUIRE(k == v);
    updater = std::thread([&] {
      b.update(0, [&](std::uint64_t& v) {
        updated = true;
        v = 7;
      });
    });
    for (int i = 0; i < 20; ++i) {
      REQUIRE_FALSE(updated);  // while the entry is asked about, nobody changes it
      std::this_thread::yield();
    }
  }
  eraser.join();
  updater.join();
  REQUIRE(b.find(0) == 7u);
  asking = false;
  {
    const std::lock_guard lock(of_the_program);
    updater = std::thread([&] {
      b.update(0, [&](std::uint64_t& v) {
        asking = true;
        const std::lock_guard lock_too(of_the_program);
        v = 8;
      });
    });
    while (!asking) std::this_thread::yield();
    clearer = std::thread([&] {
      b.clear();
      cleared = true;
    });
    for (int i = 0; i < 20; ++i) {
      REQUIRE_FALSE(cleared);  // a key does not go while it is updated
      REQUIRE(b.contains(0));
      std::this_thread::yield();
    }
  }
  updater.join();
  clearer.join();
  REQUIRE(b.empty());
  require_sound(h);
}

TEST_CASE("a predicate that throws or uses a table erases nothing of its bucket, and leaves the keys free") {
  fm::heap h(tiny());
  const fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  const fm::hash_set<std::uint64_t> s(h);
  for (std::uint64_t k = 0; k < 100; ++k) m.insert_or_assign(k, k), s.insert(k);
  REQUIRE_THROWS_AS(
      m.erase_if([](std::uint64_t, std::uint64_t) -> bool { throw std::runtime_error("of the program"); }),
      std::runtime_error);
  REQUIRE(m.size() == 100);
  REQUIRE(code_of([&] { m.erase_if([&](std::uint64_t, std::uint64_t) { return m.empty() || s.contains(1); }); }) ==
          fm::errc::scope_misuse);
  REQUIRE(code_of([&] { s.erase_if([&](std::uint64_t k) { return s.erase(k); }); }) == fm::errc::scope_misuse);
  std::uint64_t asked = 0;
  REQUIRE(m.erase_if([&](std::uint64_t, std::uint64_t) { return ++asked % 2 == 0; }) == 50);
  REQUIRE(asked == 100);
  REQUIRE(s.size() == 100);
  for (std::uint64_t k = 0; k < 100; ++k) m.insert_or_assign(k, 0);
  REQUIRE(m.size() == 100);
  require_sound(h);
}

TEST_CASE("iterators say what is wrong, keep their table, and are copies of a place") {
  fm::heap h(tiny());
  fm::hash_set<std::uint64_t> s(h);
  REQUIRE(s.begin() == s.end());
  REQUIRE(code_of([&] { (void)*s.end(); }) == fm::errc::out_of_range);
  const fm::hash_set<std::uint64_t> null;
  REQUIRE(code_of([&] { (void)null.begin(); }) == fm::errc::null_handle);
  for (std::uint64_t k = 0; k < 1000; ++k) s.insert(k);
  auto i = s.begin();
  std::uint64_t n = 0;
  const auto first = i;
  REQUIRE(first == i);
  REQUIRE(++i != first);
  REQUIRE(*first == *s.begin());
  s = nullptr;
  REQUIRE(h.collect().ok());
  auto rest = first;
  for (; rest != fm::hash_set<std::uint64_t>::iterator(); ++rest) ++n;
  REQUIRE(n == 1000);
  fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  m.insert_or_assign(3, 4);
  REQUIRE((m.begin()->first == 3 && m.begin()->second == 4));
  require_sound(h);
}
