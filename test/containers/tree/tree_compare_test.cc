// How keys of trees are ordered: by the library, by constant expressions and by functions of the program; lookup by other
// types than the key's; functions that throw, wait or use a tree; trees in references.
#include "containers/fixture.h"
#include "containers/names.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

using namespace fm::test;

namespace {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }
struct caseless_less {
  constexpr bool operator()(std::string_view a, std::string_view b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](char x, char y) { return lower(x) < lower(y); });
  }
};
struct name_less {
  using is_transparent = void;
  bool operator()(const name& a, const name& b) const { return a.view() < b.view(); }
  bool operator()(const name& a, std::string_view b) const { return a.view() < b; }
  bool operator()(std::string_view a, const name& b) const { return a < b.view(); }
};
/// A key whose < calls a function.
std::function<void()> on_compare;
struct watched {
  std::uint64_t id = 0;
  friend bool operator<(const watched& a, const watched& b) {
    if (on_compare) on_compare();
    return a.id < b.id;
  }
};
/// The same with a < that is a constant expression, so it is called in the middle of a read or a write.
struct seen_in_place {
  std::uint64_t id = 0;
  friend constexpr bool operator<(const seen_in_place& a, const seen_in_place& b) {
    if (!std::is_constant_evaluated()) compared();
    return a.id < b.id;
  }
  static void compared() {
    if (on_compare) on_compare();
  }
};
static_assert(!fm::detail::order_of_program<seen_in_place, std::less<seen_in_place>>);
static_assert(fm::detail::order_of_program<watched, std::less<watched>>);
struct shelf {
  fm::ref<fm::map<fm::string, std::uint64_t, caseless_less>> words;
  fm::ref<fm::set<std::uint64_t, std::greater<std::uint64_t>>> numbers;
};
std::string text_of(std::uint64_t i) { return "name " + std::to_string(i); }

}  // namespace

TEST_CASE("a tree is in the order of its Compare, and hangs in references") {
  fm::heap h(tiny());
  const auto kept = h.make<shelf>({.words = fm::map<fm::string, std::uint64_t, caseless_less>(h),
                                   .numbers = fm::set<std::uint64_t, std::greater<std::uint64_t>>(h)});
  const fm::map<fm::string, std::uint64_t, caseless_less> m = kept->words;
  const fm::set<std::uint64_t, std::greater<std::uint64_t>> s = kept->numbers;
  for (std::uint64_t i = 0; i < 600; ++i) {
    REQUIRE(m.insert("Word " + std::to_string(i), i));
    REQUIRE_FALSE(m.insert("wORD " + std::to_string(i), i));
    REQUIRE(s.insert(i * 7 % 600));
  }
  REQUIRE(h.collect().ok());
  REQUIRE(m.find("WORD 599") == 599u);
  std::uint64_t next = 600;
  for (const std::uint64_t n : s) REQUIRE(n == --next);
  REQUIRE((s.first() == 599u && s.last() == 0u));
  REQUIRE(*s.lower_bound(17) == 17);
  REQUIRE(*s.upper_bound(17) == 16);
  require_sound(h);
}

TEST_CASE("a key of a tree is looked up by what its transparent Compare takes") {
  fm::heap h(tiny());
  const fm::map<name, std::uint64_t, name_less> m(h);
  const fm::set<name, name_less> s(h);
  for (std::uint64_t i = 0; i < 600; ++i)
    REQUIRE((m.insert(name::of(text_of(i)), i) && s.insert(name::of(text_of(i)))));
  for (std::uint64_t i = 0; i < 600; ++i) {
    REQUIRE(m.find(std::string_view(text_of(i))) == i);
    REQUIRE((m.contains(text_of(i)) && s.contains(text_of(i))));
    REQUIRE(m.update(text_of(i), [](std::uint64_t& v) { ++v; }));
    REQUIRE(m.find(name::of(text_of(i))) == i + 1);
  }
  REQUIRE((!m.contains("nobody") && !m.find("nobody") && !m.update("nobody", [](std::uint64_t&) {})));
  for (std::uint64_t i = 0; i < 600; i += 2) REQUIRE((m.erase(text_of(i)) && s.erase(text_of(i))));
  REQUIRE((!m.erase(text_of(0)) && m.size() == 300 && s.size() == 300));
  for (std::uint64_t i = 1; i < 600; i += 4) REQUIRE(m.extract(text_of(i)) == i + 1);
  REQUIRE((!m.extract(text_of(1)) && m.size() == 150));
  require_sound(h);
}

TEST_CASE("a < of the program runs without a lock: it may use trees, and change the one that it is asked for") {
  fm::heap h(tiny());
  const fm::map<watched, std::uint64_t> m(h);
  const fm::map<std::uint64_t, std::uint64_t> count(h);
  for (std::uint64_t i = 0; i < 400; ++i) m.insert({i * 2}, i);
  count.insert(0, 0);
  std::uint64_t inserted = 0;
  bool inside = false;
  on_compare = [&] {
    if (std::exchange(inside, true)) return;
    count.update(0, [](std::uint64_t& n) { ++n; });
    if (inserted < 300) m.insert({++inserted * 2 - 1}, 0);  // splits the leaves that are looked at
    inside = false;
  };
  REQUIRE(m.find({398}) == 199u);
  REQUIRE(m.insert({1'001}, 1));
  REQUIRE(m.update({398}, [](std::uint64_t& v) { ++v; }));
  REQUIRE(m.erase({400}));
  REQUIRE(m.lower_bound({401})->first.id >= 401);
  while (inserted < 300) REQUIRE(m.find({10}) == 5u);
  on_compare = nullptr;
  REQUIRE(m.find({398}) == 200u);
  REQUIRE(*count.find(0) >= 300);
  REQUIRE(m.size() == 400 + 300 + 1 - 1);
  std::uint64_t last = 0, n = 0;
  for (const auto& [k, v] : m) {
    REQUIRE((n++ == 0 || k.id > last));
    last = k.id;
  }
  REQUIRE(n == m.size());
  require_sound(h);
}

TEST_CASE("an operation on a tree that splits, merges and changes overtake starts again, and loses nothing") {
  fm::heap h(tiny(8_MiB));
  const fm::map<seen_in_place, std::uint64_t> m(h);
  for (std::uint64_t i = 0; i < 1'000; ++i) m.insert({i * 1'000}, i);
  // In the middle of an operation on a key near 500,000, at its comparison number `at`.
  std::uint64_t overtaken = 0;
  const auto overtake = [&](int at, auto change) {
    on_compare = [&, at, change]() mutable {
      if (at-- != 0) return;
      const auto own = std::exchange(on_compare, nullptr);
      try {
        change();
        ++overtaken;
      } catch (const fm::error& e) {
        if (e.code() != fm::errc::scope_misuse) throw;  // it holds the leaf by now
      }
    };
  };
  for (int at = 0; at < 20; ++at) {
    const std::uint64_t k = 500'001 + std::uint64_t(at);
    const auto splits = [&] {
      for (std::uint64_t i = 1; i < 500; ++i) m.insert({499'000 + i * 2}, 0);
    };
    const auto merges = [&] {
      m.erase_if([](seen_in_place e, std::uint64_t) { return e.id % 1'000 != 0 && e.id < 500'000; });
    };
    overtake(at, splits);
    REQUIRE(m.insert({k}, 1));
    on_compare = nullptr;
    REQUIRE(m.find({k}) == 1u);
    overtake(at, merges);
    REQUIRE(m.find({500'000}) == 500u);
    overtake(at, splits);
    REQUIRE_FALSE(m.insert_or_assign({k}, 2));
    on_compare = nullptr;
    REQUIRE(m.find({k}) == 2u);
    overtake(at, merges);
    REQUIRE(m.update({k}, [](std::uint64_t& v) { ++v; }));
    on_compare = nullptr;
    REQUIRE(m.find({k}) == 3u);
    overtake(at, splits);
    REQUIRE(m.erase({k}));
    on_compare = nullptr;
    REQUIRE_FALSE(m.contains({k}));
    // Entries that a reader has passed are put behind it.
    overtake(at, [&] { m.erase({499'000}), m.insert({499'001}, 7), m.insert({500'003}, 7); });
    REQUIRE(m.find({500'000}) == 500u);
    on_compare = nullptr;
    m.insert({499'000}, 499), m.erase({499'001}), m.erase({500'003});
    merges();
  }
  on_compare = nullptr;
  REQUIRE(overtaken > 20);
  m.erase_if([](seen_in_place e, std::uint64_t) { return e.id % 1'000 != 0; });
  REQUIRE(m.size() == 1'000);
  require_sound(h);
}

TEST_CASE("a < that throws leaves the tree as it was") {
  fm::heap h(tiny());
  const fm::map<watched, std::uint64_t> m(h);
  for (std::uint64_t i = 0; i < 700; ++i) m.insert({i}, i);
  std::uint64_t failed = 0;
  for (int after = 0; after < 40; ++after) {
    const auto fails = [&](auto f) {
      int left = after;
      on_compare = [&] {
        if (left-- == 0) throw fm::error(fm::errc::stale, "thrown");
      };
      const fm::errc e = code_of(f);
      on_compare = nullptr;
      failed += e == fm::errc::stale;
      return e == fm::errc::stale;
    };
    if (!fails([&] { m.insert({10'000}, 1); })) m.erase({10'000});
    if (!fails([&] { m.erase({350}); })) m.insert({350}, 350);
    (void)fails([&] { (void)m.find({350}); });
    (void)fails([&] { (void)m.lower_bound({350}); });
    if (!fails([&] { m.bulk_load(std::vector<std::pair<watched, int>>{{{1}, 1}, {{2}, 2}, {{3}, 3}}); })) {
      m.clear();
      for (std::uint64_t i = 0; i < 700; ++i) m.insert({i}, i);
    }
    REQUIRE(m.size() == 700);
    std::uint64_t next = 0;
    for (const auto& [k, v] : m) REQUIRE((k.id == next && v == next++));
    REQUIRE(next == 700);
  }
  REQUIRE(failed > 40);
  require_sound(h);
}

TEST_CASE("a < may wait for a thread that changes the same leaf") {
  fm::heap h(tiny());
  const fm::map<watched, std::uint64_t> m(h);
  for (std::uint64_t i = 0; i < 100; ++i) m.insert({i}, i);
  std::mutex of_the_program;
  std::atomic<bool> asking{false};
  std::thread inserter;
  {
    const std::lock_guard lock(of_the_program);
    const auto me = std::this_thread::get_id();
    on_compare = [&, me] {
      if (std::this_thread::get_id() == me) return;
      asking = true;
      const std::lock_guard lock_too(of_the_program);
    };
    inserter = std::thread([&] { m.insert({1'000}, 1); });
    while (!asking) std::this_thread::yield();
    REQUIRE(m.insert({1'001}, 1));
    REQUIRE(m.erase({50}));
  }
  inserter.join();
  on_compare = nullptr;
  REQUIRE((m.contains({1'000}) && m.size() == 101));
  require_sound(h);
}
