#include "containers/fixture.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "containers/sparing_agent.h"

using namespace fm::test;

namespace {

struct posting {
  std::uint32_t file = 0;
  std::uint32_t line = 0;
  friend bool operator==(const posting&, const posting&) = default;
};
struct page {
  std::array<std::uint64_t, 128> words{};
};
struct word {
  int id = 0;
  fm::ref<fm::vector<posting>> postings;
};

template <class V, class O>
void require_equal(const V& v, const O& oracle) {
  REQUIRE(v.size() == oracle.size());
  REQUIRE(std::equal(v.begin(), v.end(), oracle.begin(), oracle.end()));
}

}  // namespace

TEST_CASE("a managed vector does what std::vector does") {
  fm::heap h(tiny());
  fm::vector<std::uint64_t> v(h);
  std::vector<std::uint64_t> oracle;
  std::mt19937_64 rng(11);
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t value = rng();
    switch (value % 16) {
      case 0:
        if (!oracle.empty()) {
          REQUIRE(v.back() == oracle.back());
          oracle.pop_back();
          v.pop_back();
        }
        break;
      case 1:
        if (!oracle.empty()) {
          const std::size_t at = rng() % oracle.size();
          oracle[at] = value;
          v.set(at, value);
        }
        break;
      case 2:
        if (rng() % 256 == 0) {
          const std::size_t n = rng() % 6000;
          oracle.resize(n);
          v.resize(n);
        }
        break;
      case 3:
        if (rng() % 512 == 0) {
          oracle.clear();
          v.clear();
        }
        break;
      case 4:
        if (!oracle.empty()) {
          const std::size_t at = rng() % oracle.size();
          REQUIRE(v[at] == oracle[at]);
        }
        break;
      case 5: {
        const std::vector<std::uint64_t> more(rng() % 40, value);
        oracle.insert(oracle.end(), more.begin(), more.end());
        v.append(more);
        break;
      }
      default: oracle.push_back(value); v.push_back(value);
    }
    REQUIRE(v.size() == oracle.size());
  }
  require_equal(v, oracle);
  require_sound(h);
  require_equal(v, oracle);
}

TEST_CASE("resizing a vector up and down across chunks leaves zeros, never old elements") {
  fm::heap h(tiny());
  fm::vector<std::uint32_t> v(h);
  std::vector<std::uint32_t> oracle;
  std::mt19937 rng(3);
  for (int round = 0; round < 60; ++round) {
    const std::size_t n = rng() % (round % 2 ? 9000 : 300);
    v.resize(n);
    oracle.resize(n);
    require_equal(v, oracle);
    v.for_each_write([](std::uint32_t& e) { e |= 0x80000000u; });
    for (auto& e : oracle) e |= 0x80000000u;
  }
  v.reserve(50'000);
  REQUIRE(v.capacity() >= 50'000);
  require_equal(v, oracle);
  require_sound(h);
}

TEST_CASE("a vector larger than the cache is filled, changed and scanned") {
  fm::heap h(tiny());
  fm::vector<page> v(h);
  constexpr std::uint64_t n = 12'000;  // 12 MiB
  for (std::uint64_t i = 0; i < n; ++i) {
    page p;
    p.words.fill(i);
    v.push_back(p);
  }
  v.for_each_write([](page& p) { p.words[7] += 1; });
  std::uint64_t at = 0, wrong = 0;
  v.for_each([&](const page& p) { wrong += p.words[7] != at + 1 || p.words[127] != at, ++at; });
  REQUIRE(at == n);
  REQUIRE(wrong == 0);
  std::mt19937_64 rng(5);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t k = rng() % n;
    REQUIRE(v[k].words[127] == k);
  }
  REQUIRE(h.stats().misses > 1000);
  require_sound(h);
}

TEST_CASE("the directory of a vector grows beyond one leaf") {
  fm::heap h(tiny(4_MiB));
  fm::vector<page> v(h);  // 8 to a chunk: 512 chunks are 4,096 pages
  const std::uint64_t n = 5 * 4096 + 3;
  v.resize(n);
  for (std::uint64_t i = 0; i < n; i += 1000) v.set(i, page{{i}});
  for (std::uint64_t i = 0; i < n; i += 1000) REQUIRE(v[i].words[0] == i);
  REQUIRE(v[n - 1].words[0] == 0);
  v.resize(4096 + 1);
  REQUIRE(v[4000].words[0] == 4000);
  require_sound(h);
}

TEST_CASE("standard algorithms run over a managed vector") {
  fm::heap h(tiny());
  fm::vector<std::uint64_t> v(h);
  const std::uint64_t n = 400'000;
  for (std::uint64_t i = 0; i < n; ++i) v.push_back(i * 3);
  REQUIRE(std::accumulate(v.begin(), v.end(), std::uint64_t{0}) == 3 * n * (n - 1) / 2);
  REQUIRE(std::find(v.begin(), v.end(), 3 * 77'777) - v.begin() == 77'777);
  REQUIRE(std::find(v.begin(), v.end(), 1) == v.end());
  for (std::uint64_t k : {0ul, 1ul, 2999ul, 3ul * n - 3, 3ul * n}) {
    const auto it = std::lower_bound(v.begin(), v.end(), k);
    REQUIRE(std::uint64_t(it - v.begin()) == (k + 2) / 3);
  }
  std::vector<std::uint64_t> copy(n);
  std::copy(v.begin(), v.end(), copy.begin());
  REQUIRE(copy[123'456] == 3 * 123'456);
  REQUIRE(std::is_sorted(v.begin(), v.end()));
  REQUIRE(std::equal(std::make_reverse_iterator(v.end()), std::make_reverse_iterator(v.begin()), copy.rbegin()));
  std::uint64_t sum = 0;
  for (const auto& e : v) sum += e;
  REQUIRE(sum == 3 * n * (n - 1) / 2);
  require_sound(h);
}

TEST_CASE("an iterator steps and jumps in both directions") {
  fm::heap h(tiny());
  fm::vector<std::uint64_t> v(h);
  const std::int64_t n = 10'000;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(std::uint64_t(i));
  auto it = v.begin();
  std::int64_t at = 0;
  std::mt19937_64 rng(9);
  for (int i = 0; i < 20'000; ++i) {
    std::int64_t to = 0;
    switch (rng() % 4) {
      case 0: to = at + 1; break;
      case 1: to = at - 1; break;
      case 2: to = at + std::int64_t(rng() % 200) - 100; break;
      default: to = std::int64_t(rng() % n);
    }
    if (to < 0 || to > n) continue;
    if (to == at + 1)
      ++it;
    else if (to == at - 1)
      --it;
    else
      it += to - at;
    at = to;
    REQUIRE(it - v.begin() == at);
    if (at < n)
      REQUIRE(*it == std::uint64_t(at));
    else
      REQUIRE(it == v.end());
    if (at + 5 < n) REQUIRE(it[5] == std::uint64_t(at + 5));
    if (rng() % 8 == 0) {
      const auto other = it;
      it = other;
    }
  }
  REQUIRE(code_of([&] { *v.end(); }) == fm::errc::out_of_range);
  it = {};
  require_sound(h);
}

TEST_CASE("millions of small vectors stay cheap, and hang in references") {
  fm::heap h(tiny());
  fm::vector<fm::ref<word>> dictionary(h);
  const auto before = h.stats().allocated_bytes;
  constexpr int n = 10'000;
  for (int i = 0; i < n; ++i) {
    fm::vector<posting> postings(h);
    for (std::uint32_t k = 0; k < 3; ++k) postings.push_back({std::uint32_t(i), k});
    const auto w = h.make<word>({.id = i, .postings = postings});
    dictionary.push_back(w);
  }
  const auto bytes = h.stats().allocated_bytes - before;
  INFO("bytes a word with three postings: " << bytes / n);
  REQUIRE(bytes / n < 200);
  for (int i = 0; i < n; i += 7) {
    const fm::ptr<word> w = dictionary[i];
    const fm::vector<posting> copied = w->postings;
    const fm::vector<posting> direct(w->postings);
    REQUIRE(copied.size() == 3);
    REQUIRE(direct[2] == posting{std::uint32_t(i), 2});
    REQUIRE(code_of([&] { (void)direct[3]; }) == fm::errc::out_of_range);
  }
  const auto w = fm::ptr<word>(dictionary[5]);
  fm::vector<posting> other(h);
  w.write()->postings = other;
  REQUIRE(fm::vector<posting>(w->postings).empty());
  require_sound(h);
}

TEST_CASE("a vector of references gives handles, and lets go of what is removed") {
  fm::heap h(tiny());
  fm::vector<fm::ref<fm::vector<int>>> rows(h);
  for (int i = 0; i < 3000; ++i) {
    fm::vector<int> row(h);
    row.push_back(i);
    rows.push_back(row);
  }
  fm::vector<int> row = rows[1234];
  REQUIRE(row[0] == 1234);
  rows.set(1234, rows[7]);
  REQUIRE(rows[1234] == rows[7]);
  int sum = 0;
  rows.for_each([&](const fm::vector<int>& r) { sum += r[0]; });
  REQUIRE(sum == 2999 * 1500 - 1234 + 7);
  sum = 0;
  for (const auto& r : rows) sum += r.back();
  REQUIRE(sum == 2999 * 1500 - 1234 + 7);
  rows.resize(10);
  rows.resize(20);
  REQUIRE_FALSE(rows[15]);
  rows.pop_back();
  REQUIRE(rows.size() == 19);
  require_sound(h);
}

TEST_CASE("several threads read one vector that does not fit") {
  fm::heap h(tiny(4_MiB));
  fm::vector<std::uint64_t> v(h);
  constexpr std::uint64_t n = 800'000;
  std::vector<std::uint64_t> block(1000);
  for (std::uint64_t i = 0; i < n; i += block.size()) {
    std::iota(block.begin(), block.end(), i);
    v.append(block);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::uint64_t at = 0;
      if (t == 0) v.for_each([&](std::uint64_t e) { wrong += e != at++; });
      if (t == 1)
        for (const auto e : v) wrong += e != at++;
      std::mt19937_64 rng(t);
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t k = rng() % n;
        wrong += v[k] != k;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  require_sound(h);
}

TEST_CASE("misuse of a vector is a typed error") {
  fm::vector<int> null;
  REQUIRE(code_of([&] { (void)null.size(); }) == fm::errc::null_handle);
  REQUIRE(code_of([&] { null.push_back(1); }) == fm::errc::null_handle);
  fm::vector<int> outlives;
  {
    fm::heap h(tiny());
    fm::vector<int> v(h);
    REQUIRE(code_of([&] { v.pop_back(); }) == fm::errc::out_of_range);
    REQUIRE(code_of([&] { (void)v.back(); }) == fm::errc::out_of_range);
    REQUIRE(code_of([&] { v.set(0, 1); }) == fm::errc::out_of_range);
    outlives = v;
  }
  REQUIRE_FALSE(outlives);
}

TEST_CASE("a vector that cannot be cut is as before, and has zeros beyond its size") {
  sparing_agent agent;
  fm::heap h(agent.options());
  constexpr std::uint64_t many = 40'000;  // 40 chunks
  const std::uint64_t n = GENERATE(1u, 700u, 1500u, 39'999u);
  fm::vector<std::uint64_t> v(h);
  for (std::uint64_t i = 0; i < many; ++i) v.push_back(i + 1);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(v.size() == many);
  const bool directory = GENERATE(false, true);  // the header is here, and if so the last chunk, too
  if (directory) REQUIRE(v[many - 1] == many);
  agent.gives = 0;
  const fm::errc cut = code_of([&] { v.resize(n); });
  agent.gives = agent.unlimited;
  CHECK(cut == (directory && n == 39'999u ? fm::errc::ok : fm::errc::access_denied));
  const std::uint64_t size = v.size();
  CHECK(size == (cut == fm::errc::ok ? n : many));
  v.resize(many);
  for (std::uint64_t i = 0; i < many; ++i) REQUIRE(v[i] == (i < size ? i + 1 : 0));
  v.resize(n);
  REQUIRE(v.size() == n);
  v.resize(many);
  for (std::uint64_t i = 0; i < many; ++i) REQUIRE(v[i] == (i < std::min(n, size) ? i + 1 : 0));
  require_sound(h);
}
