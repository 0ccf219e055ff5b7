// Trees for many threads: readers without locks beside writers, walks beside splits and merges, updates, clear and bulk
// loading, collections without end.
#include "containers/fixture.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <ranges>
#include <thread>

using namespace fm::test;

namespace {

struct term {
  std::uint64_t id = 0;
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
/// A key of many words whose < notices when it is shown half of one; a function of the program, and one that is not.
std::atomic<int> halves{0};
template <bool InPlace>
struct broad {
  std::uint64_t first = 0;
  std::array<std::uint64_t, 6> between{};
  std::uint64_t last = 0;
  static broad of(std::uint64_t x) { return {x, {}, x}; }
  friend constexpr bool operator<(const broad& x, const broad& y) {
    if (!std::is_constant_evaluated() && (x.first != x.last || y.first != y.last)) ++halves;
    if constexpr (!InPlace) {
      if (std::is_constant_evaluated()) throw 1;  // no constant expression
    }
    return x.first < y.first;
  }
};
static_assert(fm::detail::order_of_program<broad<false>, std::less<broad<false>>>);
static_assert(!fm::detail::order_of_program<broad<true>, std::less<broad<true>>>);

/// Threads whose exceptions fail the test.
class threads {
 public:
  template <class F>
  void start(F f) {
    all_.emplace_back([this, f] {
      try {
        f();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex_);
        failure_ = e.what();
      }
    });
  }
  void join() {
    for (auto& t : all_) t.join();
    all_.clear();
    INFO(failure_);
    REQUIRE(failure_.empty());
  }

 private:
  std::vector<std::thread> all_;
  std::mutex mutex_;
  std::string failure_;
};

/// Whether a thread waits for the end of an update.
bool somebody_waits() {
  return std::ranges::any_of(fm::detail::updates_of_trees, [](fm::detail::tree_updates& e) {
    const std::lock_guard lock(e.mutex);
    return e.waiting != 0;
  });
}

std::string word(std::uint64_t k) { return "a word that is long " + std::to_string(k); }

}  // namespace

TEST_CASE("readers of a tree find every standing key whole, while keys around it come, change, and go") {
  fm::heap h(tiny(4_MiB));
  const fm::map<std::uint64_t, wide> m(h);
  const fm::map<fm::string, fm::ref<term>> words(h);
  const fm::map<broad<true>, std::uint64_t> broads(h);
  const fm::map<broad<false>, std::uint64_t> compared(h);
  constexpr std::uint64_t standing = 64, coming = 1'600, spread = 101;
  // Keys that are multiples of `spread` stay; the leaves around them are split and merged again and again.
  for (std::uint64_t k = 0; k < standing; ++k) {
    m.insert_or_assign(k * spread, wide::of(k));
    words.insert_or_assign(word(k), h.make<term>({.id = k}));
    broads.insert(broad<true>::of(k * spread), k);
    compared.insert(broad<false>::of(k * spread), k);
  }
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0}, reads{0};
  threads writers, readers;
  for (std::uint64_t t = 0; t < 2; ++t)
    writers.start([&, t] {
      std::mt19937_64 rng(t + 50);
      for (int wave = 0; wave < 2; ++wave) {
        for (std::uint64_t i = 0; i < coming; ++i) {
          const std::uint64_t k = (i * 2 + t) * 2 + 1, hot = rng() % 4;
          if (k % spread == 0) continue;
          wrong += !m.insert_or_assign(k, wide::of(k));
          m.insert_or_assign(hot * spread, wide::of(hot + standing * (rng() % 1000)));
          wrong += !m.update(hot * spread, [&](wide& v) { v = wide::of(v.words[0] + standing); });
          broads.insert(broad<true>::of(k), k);
          if (i % 4 == 0) compared.insert(broad<false>::of(k), k), words.insert(word(standing + k), h.make<term>({k}));
        }
        for (std::uint64_t i = 0; i < coming; ++i) {
          const std::uint64_t k = (i * 2 + t) * 2 + 1;
          if (k % spread == 0) continue;
          wrong += !m.erase(k) + !broads.erase(broad<true>::of(k));
          if (i % 4 == 0) wrong += !compared.erase(broad<false>::of(k)) + !words.erase(word(standing + k));
        }
      }
    });
  for (std::uint64_t t = 0; t < 2; ++t)
    readers.start([&, t] {
      std::mt19937_64 rng(t);
      do {
        for (int i = 0; i < 50; ++i) {
          const std::uint64_t k = rng() % (i % 2 ? 4 : standing), other = (rng() % (2 * coming)) * 2 + 1;
          const auto v = m.find(k * spread);
          wrong += !v || !v->whole() || v->words[0] % standing != k;
          const auto w = m.find(other);
          wrong += other % spread != 0 && w && (!w->whole() || w->words[0] != other);
          const auto p = words.find(word(k));
          wrong += !p || p->id != k;
          wrong += broads.find(broad<true>::of(k * spread)) != k;
          wrong += compared.find(broad<false>::of(k * spread)) != k;
          reads += 5;
        }
        std::uint64_t seen = 0, last = 0, before = 0;
        for (const auto& [k, v] : m) {
          wrong += !v.whole() || (before++ != 0 && k <= last);
          seen += k % spread == 0;
          last = k;
        }
        wrong += seen < standing;
        const auto greatest = compared.last();
        wrong += !greatest || greatest->first.first < (standing - 1) * spread;
        std::uint64_t in_range = 0;
        for (const auto& [k, v] : broads.range(broad<true>::of(spread), broad<true>::of(5 * spread)))
          in_range += k.first % spread == 0;
        wrong += in_range != 4;
      } while (!done.load());
    });
  writers.join();
  done = true;
  readers.join();
  REQUIRE((wrong == 0 && halves == 0 && reads > 0));
  REQUIRE((m.size() == standing && broads.size() == standing && compared.size() == standing));
  REQUIRE(words.size() == standing);
  require_sound(h);
}

TEST_CASE("a walk sees each standing key once and in order, beside writers, walks and collections without end") {
  fm::heap h(tiny(4_MiB));
  const fm::map<std::uint64_t, std::uint64_t> m(h);
  const fm::set<fm::string> s(h);
  constexpr std::uint64_t standing = 300, coming = 6'000, waves = 3;
  for (std::uint64_t k = 0; k < standing; ++k) m.insert(k * 40, k), s.insert(word(k));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0}, walks{0};
  threads writers, others;
  for (std::uint64_t t = 0; t < 2; ++t)
    writers.start([&, t] {
      for (std::uint64_t wave = 0; wave < waves; ++wave) {
        for (std::uint64_t i = t; i < coming; i += 2) {
          if (i % 20 != 0) m.insert(i * 2, i * 2);
          if (i % 4 == t) s.insert(word(standing + i));
        }
        if (t == 0)
          m.erase_if([](std::uint64_t k, std::uint64_t) { return k % 40 != 0 && k % 4 == 0; });
        else
          for (std::uint64_t i = t; i < coming; i += 2)
            if (i % 20 != 0) wrong += !m.erase(i * 2);
        for (std::uint64_t i = t; i < coming; i += 4)
          if (i % 4 == t) wrong += !s.erase(word(standing + i));
      }
    });
  others.start([&] {
    while (!done) (void)h.collect();
  });
  others.start([&] {
    while (!done) (void)h.evict_all();
  });
  for (int t = 0; t < 2; ++t)
    others.start([&] {
      do {
        std::uint64_t next = 0, last = 0, n = 0;
        for (const auto& [k, v] : m) {
          wrong += n++ != 0 && k <= last;
          last = k;
          if (k % 40 != 0) continue;
          wrong += k != next * 40;
          ++next;
        }
        wrong += next != standing;
        std::uint64_t words = 0;
        std::string before;
        for (const fm::string& w : s) {
          std::string text = w.str();
          wrong += text <= before;
          words += std::stoull(text.substr(20)) < standing;
          before = std::move(text);
        }
        wrong += words != standing;
        ++walks;
      } while (!done);
    });
  writers.join();
  done = true;
  others.join();
  REQUIRE((wrong == 0 && walks > 0));
  REQUIRE((m.size() == standing && s.size() == standing));
  require_sound(h);
}

TEST_CASE("no update of a tree is lost, whatever else happens to its leaf") {
  fm::heap h(tiny(4_MiB));
  const fm::map<std::uint64_t, std::uint64_t> m(h);
  constexpr std::uint64_t counters = 5, each = 3'000;
  for (std::uint64_t k = 0; k < counters; ++k) m.insert(k * 1000, 0);
  std::atomic<std::uint64_t> wrong{0};
  threads all;
  for (std::uint64_t t = 0; t < 3; ++t)
    all.start([&, t] {
      for (std::uint64_t i = 0; i < each; ++i) {
        wrong += !m.update(i % counters * 1000, [&](std::uint64_t& n) {
          if (i % 8 == 0) std::this_thread::yield();
          ++n;
        });
        const std::uint64_t k = 1 + t + i % 990 + i % counters * 1000;
        m.insert(k, 1);
        if (i % 2 == 0) m.erase(k);
        if (i % 500 == 0) m.erase_if([](std::uint64_t key, std::uint64_t) { return key % 1000 != 0; });
      }
    });
  all.join();
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < counters; ++k) sum += *m.find(k * 1000);
  REQUIRE((wrong == 0 && sum == 3 * each));
  require_sound(h);
}

TEST_CASE("an entry of a tree is erased only with the value that the predicate saw") {
  fm::heap h(tiny());
  const fm::map<std::uint64_t, std::uint64_t> m(h);
  for (std::uint64_t k = 0; k < 10; ++k) m.insert(k, 0);
  std::vector<std::uint64_t> asked;
  // Without a lock, so it may use the tree itself.
  REQUIRE(m.erase_if([&](std::uint64_t k, std::uint64_t v) {
    if (k == 3) asked.push_back(v);
    if (k == 3 && v < 2) m.insert_or_assign(k, v + 1);
    if (k == 4) m.erase(k);
    return k < 5 && v < 2;
  }) == 3);
  REQUIRE(asked == std::vector<std::uint64_t>{0, 1, 2});
  REQUIRE((m.find(3) == 2u && m.size() == 6));
  require_sound(h);
}

TEST_CASE("a function given to update may wait for a thread that changes another key of the leaf") {
  fm::heap h(tiny());
  const fm::map<std::uint64_t, std::uint64_t> m(h);
  for (std::uint64_t k = 0; k < 200; ++k) m.insert(k, 0);
  std::atomic<int> at{0};
  std::atomic<bool> assigned{false};
  std::thread updater([&] {
    m.update(7, [&](std::uint64_t& v) {
      at = 1;
      while (at < 2) std::this_thread::yield();
      v += 5;
    });
  });
  while (at == 0) std::this_thread::yield();
  std::thread waits([&] {
    m.insert_or_assign(7, 100);  // waits for the update
    assigned = true;
  });
  while (!assigned && !somebody_waits()) std::this_thread::yield();
  for (std::uint64_t k = 0; k < 2'000; ++k) m.insert_or_assign(1'000 + k, k);  // splits the leaf
  m.insert_or_assign(8, 8);
  REQUIRE(m.erase(9));
  REQUIRE(m.find(7) == 0u);
  REQUIRE_FALSE(assigned);
  at = 2;
  updater.join();
  waits.join();
  REQUIRE(m.find(7) == 100u);
  require_sound(h);
}

TEST_CASE("a tree that is cleared or loaded while a function changes a key has none of that") {
  fm::heap h(tiny());
  const fm::map<std::uint64_t, std::uint64_t> m(h), other(h);
  const bool loads = GENERATE(false, true);
  for (std::uint64_t k = 0; k < 20; ++k) m.insert(k, 0);
  std::atomic<int> at{0};
  std::thread updater([&] {
    m.update(7, [&](std::uint64_t& v) {
      at = 1;
      while (at < 2) std::this_thread::yield();
      v += 5;
    });
  });
  while (at == 0) std::this_thread::yield();
  if (loads)
    m.bulk_load(std::vector<std::pair<int, int>>{{7, 1}, {8, 2}});
  else
    m.clear();
  REQUIRE(m.size() == (loads ? 2 : 0));
  m.insert_or_assign(7, 9);
  at = 2;
  updater.join();
  REQUIRE((m.find(7) == 9u && m.size() == (loads ? 2 : 1)));
  require_sound(h);
}

TEST_CASE("threads that clear, load, insert and walk leave a tree whose size is right") {
  fm::heap h(tiny(4_MiB));
  const fm::map<std::uint64_t, std::uint64_t> m(h);
  std::atomic<std::uint64_t> wrong{0};
  threads all;
  for (std::uint64_t t = 0; t < 4; ++t)
    all.start([&, t] {
      std::mt19937_64 rng(t);
      for (int i = 0; i < 1'500; ++i) {
        for (int n = 0; n < 30; ++n) m.insert_or_assign(rng() % 5'000, t);
        for (int n = 0; n < 10; ++n) m.erase(rng() % 5'000);
        if (t == 0 && i % 50 == 0) m.clear();
        if (t == 1 && i % 70 == 0)
          m.bulk_load(std::views::iota(0, 4'000) | std::views::transform([](int k) { return std::pair(k, 2); }));
        if (i % 100 == 0) {
          std::uint64_t last = 0, n = 0;
          for (const auto& [k, v] : m) {
            wrong += (n++ != 0 && k <= last) || v > 3;
            last = k;
          }
        }
      }
    });
  all.join();
  std::uint64_t n = 0;
  m.for_each([&](std::uint64_t k, std::uint64_t) { ++n, wrong += !m.contains(k); });
  REQUIRE((wrong == 0 && m.size() == n));
  require_sound(h);
}

TEST_CASE("a tree used in a function given to update is refused, not a deadlock") {
  fm::heap h(tiny());
  const fm::map<std::uint32_t, std::uint32_t> m(h), other(h);
  m.insert(1, 1);
  REQUIRE(code_of([&] { m.update(1, [&](std::uint32_t&) { (void)other.find(1); }); }) == fm::errc::scope_misuse);
  REQUIRE(code_of([&] { m.update(1, [&](std::uint32_t&) { other.insert(1, 1); }); }) == fm::errc::scope_misuse);
  REQUIRE(m.update(1, [](std::uint32_t& v) { ++v; }));
  REQUIRE(m.get_or_insert(2, [&] { return *m.find(1) + 1; }) == 3);
  REQUIRE(code_of([&] { m.update(2, [](std::uint32_t&) { throw fm::error(fm::errc::stale, "thrown"); }); }) ==
          fm::errc::stale);
  REQUIRE(m.find(2) == 3u);
  const fm::map<std::uint32_t, std::uint32_t> null;
  REQUIRE(code_of([&] { (void)null.find(1); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { null.insert(1, 1); }) == fm::errc::null_handle);
  require_sound(h);
}
