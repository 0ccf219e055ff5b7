// Calls that wait, as arguments and receivers of each other in one expression: no error, no wait that its deadline ends,
// and exact values. And functions of the program that run while a key is theirs.
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "containers/fixture.h"

namespace {

using namespace fm::test;

struct entry {
  std::uint64_t id = 0;
  fm::ref<entry> next;
  fm::ref<fm::string> name;
  std::array<std::uint64_t, 24> words{};
};

constexpr std::uint64_t keys = 4000;
constexpr std::uint64_t threads = 4, rounds = 700, calls = 9;

}  // namespace

TEST_CASE("containers and handles in one expression wait for nothing that waits for them") {
  const std::uint64_t cache = GENERATE(std::uint64_t{1_MiB}, std::uint64_t{4_MiB}, std::uint64_t{16_MiB});
  fm::heap h({.cache = cache,
              .local_memory = 128_MiB,
              .local_region = 1_MiB,
              .segment = cache / 64,
              .memory_within = std::chrono::minutes(5)});
  const fm::hash_map<std::uint64_t, fm::ref<entry>> m(h);
  const fm::hash_map<std::uint64_t, std::uint64_t> counts(h);
  const fm::hash_map<fm::string, fm::ref<entry>> names(h);
  const fm::queue<fm::ref<entry>> q(h);
  const fm::vector<fm::ref<entry>> v(h);
  v.resize(keys);
  const auto name_of = [](std::uint64_t k) { return "entry " + std::to_string(k); };
  for (std::uint64_t k = 0; k < keys; ++k) {
    m.insert_or_assign(k, h.make<entry>({.id = k, .next = {}, .name = fm::str(h, name_of(k))}));
    counts.insert_or_assign(k, 0);
  }
  const auto of = [&](std::uint64_t k) { return m.find(k % keys); };
  std::atomic<std::uint64_t> wrong{0}, pushed{0}, popped{0};
  std::string failure;
  std::mutex failure_mutex;
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      std::mt19937_64 rng(t + cache);
      try {
        for (std::uint64_t i = 0; i < rounds; ++i) {
          // A key of this thread's own for what two threads may not write at once.
          const std::uint64_t own = rng() % (keys / threads) * threads + t;
          const fm::ptr<entry> p = of(own);
          for (std::uint64_t call = 0; call < calls; ++call) {
            switch (call) {
              case 0: pushed += (q.push(m.find(p->id)), 1); break;
              case 1: wrong += m.insert_or_assign(p->id, p); break;
              case 2: p.write()->next = of(p->id + 1); break;
              case 3: v.set(p->id, of(p->next->id)); break;
              case 4: names.insert_or_assign(fm::string(p->name).str(), m.find(p->id)); break;
              case 5: wrong += !counts.update(of(p->next->id)->id, [](std::uint64_t& n) { ++n; }); break;
              case 6:
                wrong +=
                    m.get_or_insert(p->next->id, [&] { return h.make<entry>({.id = p->id}); })->id != (own + 1) % keys;
                break;
              case 7:
                if (auto x = q.try_pop()) wrong += m.find((*x)->id)->id != (*x)->id, ++popped;
                break;
              default:
                wrong += names.find(fm::string(m.find(p->id)->name).str())->id != own;
                wrong += v[p->id]->id != (own + 1) % keys;
                wrong += h.make<entry>({.id = p->id, .next = m.find(p->next->id)})->next->id != p->next->id;
            }
          }
        }
      } catch (const std::exception& e) {
        const std::lock_guard lock(failure_mutex);
        failure = e.what();
      }
    });
  for (auto& r : running) r.join();
  REQUIRE(failure.empty());
  REQUIRE(wrong == 0);
  REQUIRE(q.size() == pushed - popped);
  std::uint64_t total = 0;
  counts.for_each([&](std::uint64_t, std::uint64_t n) { total += n; });
  REQUIRE(total == threads * rounds);
  REQUIRE(m.size() == keys);
  for (std::uint64_t k = 0; k < keys; ++k) {
    const auto p = m.find(k);
    REQUIRE(p->id == k);
    if (p->next) REQUIRE(p->next->id == (k + 1) % keys);
    if (const auto n = names.find(name_of(k))) REQUIRE(n == p);
  }
  REQUIRE(h.stats().waits_expired == 0);
  require_sound(h);
}

namespace {

/// A key of `a` and one of `b` whose shards have the same entry of the process's table of locks.
struct aliases {
  std::uint64_t a, b;
};
using counters = fm::hash_map<std::uint64_t, std::uint64_t>;

const void* lock_of(const counters& m, std::uint64_t key) {
  return &fm::detail::entry_of_shard(m.slot(), fm::detail::shard_of(fm::detail::map_key<std::uint64_t>::hash(key)));
}

/// Keys whose == and hash are the program's, and may wait for what the program likes.
std::atomic<void (*)()> on_equality{nullptr};
std::atomic<std::uint64_t> hashed_under_lock{0};
struct guarded {
  std::uint8_t group = 0;  // and padding
  std::uint32_t id = 0;
  friend bool operator==(const guarded& x, const guarded& y) {
    if (auto* const f = on_equality.load()) f();
    return x.group == y.group && x.id == y.id;
  }
};

}  // namespace

template <>
struct std::hash<guarded> {
  std::size_t operator()(const guarded& k) const {
    if (fm::detail::holds_shard) ++hashed_under_lock;
    return k.id / 4;  // four keys have the same hash
  }
};
static_assert(fm::detail::key_of_program<guarded>);

namespace {

std::mutex of_the_program;
std::atomic<bool> comparing{false};

}  // namespace

TEST_CASE("a function that is given to update may wait for a thread that uses a map with the same lock") {
  fm::heap h(tiny());
  const counters a(h);
  a.insert_or_assign(0, 0);
  // Some map has a shard that shares a lock with one of `a`'s.
  std::vector<counters> others;
  std::optional<aliases> found;
  while (!found) {
    REQUIRE(others.size() < 10'000);
    others.emplace_back(h);
    for (std::uint64_t k = 0; k < 64 && !found; ++k)
      if (lock_of(others.back(), k) == lock_of(a, 0)) found = {0, k};
  }
  const counters& b = others.back();
  b.insert_or_assign(found->b, 0);
  std::mutex of_the_program;
  std::atomic<bool> updating{false};
  std::thread updater;
  {
    const std::lock_guard lock(of_the_program);
    updater = std::thread([&] {
      b.update(found->b, [&](std::uint64_t& n) {
        updating = true;
        const std::lock_guard lock_too(of_the_program);
        ++n;
      });
    });
    while (!updating) std::this_thread::yield();
    REQUIRE_FALSE(a.insert_or_assign(found->a, 1));
    REQUIRE(a.erase(found->a));
    REQUIRE(a.insert_or_assign(found->a, 2));
    REQUIRE(a.update(found->a, [](std::uint64_t& n) { ++n; }));
    REQUIRE(b.find(found->b) == 0u);  // readers do not wait for the function
  }
  updater.join();
  REQUIRE(a.find(found->a) == 3u);
  REQUIRE(b.find(found->b) == 1u);
  require_sound(h);
}

TEST_CASE("the == of a key may wait for a thread that uses a map with the same lock") {
  fm::heap h(tiny());
  using map_of_guarded = fm::hash_map<guarded, std::uint64_t>;
  map_of_guarded b(h);
  const guarded asked{1, 5};
  for (std::uint32_t i = 4; i < 8; ++i) b.insert_or_assign({1, i}, i);
  // Some map has a shard that shares the lock of that key's.
  const void* const lock_of_b =
      &fm::detail::entry_of_shard(b.slot(), fm::detail::shard_of(fm::detail::map_key<guarded>::hash(asked)));
  std::vector<counters> others;
  std::optional<std::uint64_t> key;
  while (!key) {
    REQUIRE(others.size() < 10'000);
    others.emplace_back(h);
    for (std::uint64_t k = 0; k < 64 && !key; ++k)
      if (lock_of(others.back(), k) == lock_of_b) key = k;
  }
  const counters& a = others.back();
  const std::vector<std::function<bool()>> calls = {
      [&] { return !b.insert_or_assign(asked, 50); },
      [&] { return b.update(asked, [](std::uint64_t& n) { ++n; }); },
      [&] { return b.get_or_insert(asked, [] { return std::uint64_t{0}; }) == 51; },
      [&] { return b.find(asked) == 51u; },
      [&] { return b.contains(asked); },
      [&] {
        return !b.erase({2, 5});
      },
      [&] { return b.erase(asked); },
  };
  for (const auto& call : calls) {
    std::atomic<bool> right{false};
    std::thread other;
    {
      const std::lock_guard lock(of_the_program);
      comparing = false;
      on_equality = [] {
        comparing = true;
        const std::lock_guard lock_too(of_the_program);
      };
      other = std::thread([&] { right = call(); });
      while (!comparing) std::this_thread::yield();
      a.insert_or_assign(*key, 1);
      REQUIRE(a.update(*key, [](std::uint64_t& n) { ++n; }));
      REQUIRE(a.erase(*key));
      REQUIRE(h.collect().ok());  // nor does it hold a pause up
    }
    other.join();
    on_equality = nullptr;
    REQUIRE(right);
  }
  REQUIRE(b.size() == 3);
  require_sound(h);
}

TEST_CASE("a map does with keys of the program's == and hash what std::unordered_map does") {
  fm::heap h(tiny(4_MiB));
  const fm::hash_map<guarded, std::uint64_t> m(h);
  hashed_under_lock = 0;
  constexpr std::uint32_t n = 4'000;
  for (std::uint32_t i = 0; i < n; ++i) {
    guarded k;
    std::memset(static_cast<void*>(&k), int(i % 251), sizeof k);  // padding differs from that of what is asked with
    k.group = 1;
    k.id = i;
    REQUIRE(m.insert_or_assign(k, i));
  }
  REQUIRE(hashed_under_lock == 0);  // splits know the hashes
  for (std::uint32_t i = 0; i < n; i += 2) REQUIRE(m.update({1, i}, [](std::uint64_t& x) { x += 7; }));
  for (std::uint32_t i = 1; i < n; i += 4) REQUIRE(m.erase({1, i}));
  for (std::uint32_t i = 1; i < n; i += 4) REQUIRE_FALSE(m.erase({1, i}));
  for (std::uint32_t i = 0; i < n; ++i) {
    REQUIRE_FALSE(m.contains({2, i}));
    const auto v = m.find({1, i});
    REQUIRE(v.has_value() == (i % 4 != 1));
    if (v) REQUIRE(*v == (i % 2 == 0 ? i + 7 : i));
  }
  std::uint64_t seen = 0;
  m.for_each([&](const guarded& k, std::uint64_t) { seen += k.group; });
  REQUIRE(seen == n - n / 4);
  require_sound(h);
}

TEST_CASE("threads that change the same keys of the program's == lose no change") {
  fm::heap h(tiny(4_MiB));
  const fm::hash_map<guarded, std::uint64_t> m(h);
  constexpr std::uint32_t threads_n = 4, each = 2'000, shared = 16;
  std::vector<std::thread> running;
  for (std::uint32_t t = 0; t < threads_n; ++t)
    running.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < each; ++i) {
        const guarded k{1, (i * 7 + t) % shared};
        (void)m.get_or_insert(k, [] { return std::uint64_t{0}; });
        m.update(k, [](std::uint64_t& n) { ++n; });
        m.insert_or_assign({std::uint8_t(2 + t), i}, i);  // splits
        m.erase({std::uint8_t(2 + t), i / 2});
      }
    });
  for (auto& t : running) t.join();
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < shared; ++i) sum += *m.find({1, i});
  REQUIRE(sum == threads_n * each);
  require_sound(h);
}

TEST_CASE("while a key is updated other keys of its shard change, move and go, and who wants to change it waits") {
  fm::heap h(tiny(4_MiB));
  const counters m(h);
  m.insert_or_assign(0, 1);
  std::atomic<bool> updating{false}, go{false}, writing{false};
  std::thread updater([&] {
    m.update(0, [&](std::uint64_t& n) {
      updating = true;
      while (!go) std::this_thread::yield();
      n += 10;
    });
  });
  while (!updating) std::this_thread::yield();
  std::vector<std::thread> waiting;
  for (int t = 0; t < 3; ++t)
    waiting.emplace_back([&] {
      writing = true;
      m.update(0, [&](std::uint64_t& n) { n = n * 2; });
    });
  while (!writing) std::this_thread::yield();
  for (std::uint64_t k = 1; k < 3000; ++k) m.insert_or_assign(k, k);  // every bucket is split while the key is taken
  for (std::uint64_t k = 1; k < 3000; k += 2) REQUIRE(m.erase(k));
  REQUIRE(m.find(0) == 1u);
  go = true;
  updater.join();
  for (auto& w : waiting) w.join();
  REQUIRE(m.find(0) == 88u);
  REQUIRE(m.size() == 1500);
  require_sound(h);
}

TEST_CASE("a function that throws leaves its key as it was, and free") {
  fm::heap h(tiny());
  const counters m(h);
  m.insert_or_assign(1, 1);
  REQUIRE_THROWS_AS(m.update(1,
                             [](std::uint64_t& n) {
                               n = 2;
                               throw std::runtime_error("of the program");
                             }),
                    std::runtime_error);
  REQUIRE(m.find(1) == 1u);
  REQUIRE(m.update(1, [](std::uint64_t& n) { n = 3; }));
  REQUIRE(m.find(1) == 3u);
  require_sound(h);
}
