// std::pmr over a paged range, and the allocators alone, over ordinary memory.
#include <list>
#include <map>
#include <memory_resource>
#include <unordered_map>

#include <farmem/paged/resource.h>

#include "fixture.h"

using namespace paged_test;

TEST_CASE("extents are the best that fit, and grow together again") {
  std::vector<std::byte> memory(1_MiB + 4096);
  auto* const base =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  std::map<void*, std::size_t> discarded;
  const auto note = [](void* context, void* from, std::size_t n) {
    (*static_cast<std::map<void*, std::size_t>*>(context))[from] = n;
  };
  paged_extents e(base, 1_MiB, note, &discarded);
  void* const a = e.allocate(10'000);
  void* const b = e.allocate(5000);
  void* const c = e.allocate(4096);
  void* const d = e.allocate(100'000);
  CHECK(a == base);
  CHECK(b == base + 12_KiB);
  CHECK(c == base + 20_KiB);
  e.deallocate(a, 10'000);
  e.deallocate(c, 4096);
  CHECK(discarded.at(a) == 12_KiB);
  CHECK(e.allocate(100) == c);  // the smallest that fits, not the first
  CHECK(e.allocate(8_KiB) == a);
  e.deallocate(a, 8_KiB);
  e.deallocate(b, 5000);
  e.deallocate(c, 100);
  e.deallocate(d, 100'000);
  CHECK(e.free_bytes() == 1_MiB);
  CHECK(e.largest_free() == 1_MiB);
  CHECK(e.allocate(1_MiB) == base);
  CHECK_THROWS_AS(e.allocate(1), std::bad_alloc);
  e.deallocate(base, 1_MiB);
  CHECK_THROWS_AS(e.allocate(1_MiB + 1), std::bad_alloc);
  const volatile std::size_t nearly_all = ~std::size_t{0} - 5;
  CHECK_THROWS_AS(e.allocate(nearly_all), std::bad_alloc);
}

TEST_CASE("when everything was freed a pool has all of it in one piece") {
  std::vector<std::byte> memory(8_MiB + 64_KiB);
  auto* const base =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 65535) / 65536 * 65536);
  paged_extents e(base, 8_MiB);
  size_class_resource pool(e);
  std::mt19937_64 random(7);
  std::vector<std::pair<void*, std::size_t>> live;
  for (std::size_t used = 0; used < 4_MiB; used += live.back().second) {
    const std::size_t bytes = 1 + random() % 12'000;
    live.emplace_back(pool.allocate(bytes), bytes);
  }
  std::shuffle(live.begin(), live.end(), random);
  for (const auto& [at, bytes] : live) pool.deallocate(at, bytes);
  CHECK(e.largest_free() < 8_MiB);  // some chunks are kept
  void* const all = pool.allocate(8_MiB);
  CHECK(all == base);
  CHECK_THROWS_AS(pool.allocate(16), std::bad_alloc);
  pool.deallocate(all, 8_MiB);
  // The same for chunks: of one class, where another one has kept the last.
  live.clear();
  for (std::size_t used = 0; used < 8_MiB; used += 64_KiB) live.emplace_back(pool.allocate(64_KiB), 64_KiB);
  for (const auto& [at, bytes] : live) pool.deallocate(at, bytes);
  void* const one = pool.allocate(100);
  pool.deallocate(one, 100);
  live.clear();
  for (std::size_t i = 0; i < 8_MiB / 64_KiB; ++i)
    for (std::size_t j = 0; j < 8; ++j) live.emplace_back(pool.allocate(8192), 8192);
  CHECK_THROWS_AS(pool.allocate(8192), std::bad_alloc);
  for (const auto& [at, bytes] : live) pool.deallocate(at, bytes);
}

TEST_CASE(
    "a pool never gives the same bytes twice, aligns them, and gives all of them back, wherever its range begins") {
  const std::size_t beyond = GENERATE(0, 4096, 65536 - 4096);  // chunks are aligned to 64 KiB
  std::vector<std::byte> memory(8_MiB + 128_KiB);
  auto* const base =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 65535) / 65536 * 65536) + beyond;
  paged_extents e(base, 8_MiB);
  size_class_resource pool(e);
  struct piece {
    std::byte* at;
    std::size_t bytes, alignment;
    std::byte mark;
  };
  std::vector<piece> live;
  std::mt19937_64 random(5);
  bool right = true, aligned = true;
  const auto drop = [&](std::size_t i) {
    const piece p = live[i];
    for (std::size_t k = 0; k < p.bytes; ++k) right = right && p.at[k] == p.mark;
    pool.deallocate(p.at, p.bytes, p.alignment);
    live[i] = live.back();
    live.pop_back();
  };
  for (int i = 0; i < 20'000; ++i) {
    if (live.size() > 600 || (!live.empty() && random() % 3 == 0)) {
      drop(random() % live.size());
      continue;
    }
    piece p{nullptr, 1 + random() % (random() % 10 == 0 ? 20'000 : 500), std::size_t{1} << random() % 9,
            static_cast<std::byte>(random())};
    p.at = static_cast<std::byte*>(pool.allocate(p.bytes, p.alignment));
    aligned = aligned && reinterpret_cast<std::uintptr_t>(p.at) % p.alignment == 0;
    std::fill_n(p.at, p.bytes, p.mark);
    live.push_back(p);
  }
  while (!live.empty()) drop(0);
  CHECK(right);
  CHECK(aligned);
  CHECK(e.free_bytes() >= 8_MiB - 32 * 64_KiB);  // at most an empty chunk for every size class
}

TEST_CASE("containers of the standard library live in a range, unchanged") {
  for (const std::string& t : transports)
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      world w(t, 2);
      w.o.faults = mode;
      w.o.capacity = 8_MiB;
      paged far(w.o);
      std::pmr::unordered_map<std::uint64_t, std::pmr::string> map(far.resource());
      std::map<std::uint64_t, std::string> plain;
      std::mt19937_64 random(3);
      for (int i = 0; i < 6000; ++i) {
        const std::uint64_t key = random() % 3000;
        if (random() % 4 == 0) {
          CHECK(map.erase(key) == plain.erase(key));
        } else {
          const std::string value(random() % 300, static_cast<char>('a' + key % 26));
          map[key] = value;
          plain[key] = value;
        }
      }
      bool right = map.size() == plain.size();
      for (const auto& [k, v] : plain) right = right && map.contains(k) && std::string_view(map.at(k)) == v;
      CHECK(right);
      CHECK(far.contains(&*map.begin()));
      std::pmr::vector<std::uint32_t> numbers(far.resource());
      for (std::uint32_t i = 0; i < 200'000; ++i) numbers.push_back(i);
      std::uint64_t sum = 0;
      for (const std::uint32_t n : numbers) sum += n;
      CHECK(sum == 200'000ull * 199'999 / 2);
      CHECK_THROWS_AS(far.resource()->allocate(9_MiB), std::bad_alloc);
      CHECK(far.verify() == "");
    }
}

TEST_CASE("threads share the resource of a range") {
  for (const fault_mode mode : modes()) {
    world w("local");
    w.o.faults = mode;
    w.o.capacity = 8_MiB;
    paged far(w.o);
    std::vector<std::thread> all;
    std::array<bool, 4> right{};
    for (std::size_t t = 0; t < right.size(); ++t)
      all.emplace_back([&, t] {
        std::pmr::list<std::pmr::string> mine(far.resource());
        std::mt19937_64 random(t);
        for (std::size_t i = 0; i < 3000; ++i) {
          mine.emplace_back(random() % 200, static_cast<char>('a' + t));
          if (i % 3 == 0) mine.pop_front();
        }
        right[t] = std::all_of(mine.begin(), mine.end(), [&](const auto& s) {
          return s.find_first_not_of(static_cast<char>('a' + t)) == std::string::npos;
        });
      });
    for (auto& t : all) t.join();
    CHECK(right == std::array<bool, 4>{true, true, true, true});
    CHECK(far.verify() == "");
  }
}

TEST_CASE("memory that was given back is not kept at the agents' expense") {
  world w("local");
  w.o.faults = modes().back();
  w.o.read_ahead = 0;
  paged far(w.o);
  void* const p = far.resource()->allocate(2_MiB);
  std::memset(p, 1, 2_MiB);
  far.resource()->deallocate(p, 2_MiB);
  CHECK(far.stats().local_used_bytes == 0);
  CHECK(far.verify() == "");
}
