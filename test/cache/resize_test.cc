// A cache that gets another size while it is used: nothing is lost, memory comes and goes, and what holds it is named.
#include "heap/heap_core.h"
#include "support/await.h"
#include "support/busy_threads.h"
#include "support/error_code.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <farmem/farmem.h>
#include <string>
#include <thread>
#include <vector>

using namespace fm::literals;
using fm::test::code_of;

namespace {

struct sized_node {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> filling{};
};

fm::heap_options of_cache(std::uint64_t cache, std::uint64_t most = 0) {
  fm::heap_options o;
  o.cache = cache;
  o.cache_max = most;
  o.segment = 64_KiB;
  o.local_memory = 256_MiB;
  o.local_region = 1_MiB;
  return o;
}

std::vector<fm::ptr<sized_node>> make(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<sized_node>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<sized_node>({.id = i}));
  return all;
}
std::uint64_t wrong(const std::vector<fm::ptr<sized_node>>& all) {
  std::uint64_t n = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) n += all[i]->id != i;
  return n;
}
std::string text_of_failure(fm::heap& h, std::uint64_t bytes, fm::duration within = std::chrono::seconds(10)) {
  try {
    h.resize_cache(bytes, within);
  } catch (const fm::error& e) {
    return e.what();
  }
  return "";
}
void require_sound(fm::heap& h) {
  const fm::verify_report v = h.verify();
  CAPTURE(v.messages);
  REQUIRE(v.ok());
}

}  // namespace

TEST_CASE("a cache becomes smaller and larger, and objects stay") {
  auto o = of_cache(8_MiB, 16_MiB);
  o.background_evictor = GENERATE(true, false);
  fm::heap h(o);
  const auto all = make(h, 100'000);  // 26 MiB
  for (const std::uint64_t bytes : {1_MiB, 16_MiB, 512_KiB, 3_MiB + 1000, 8_MiB, 512_KiB, 16_MiB}) {
    h.resize_cache(bytes);
    const fm::heap_stats s = h.stats();
    CHECK(s.cache_bytes == bytes / 64_KiB * 64_KiB);
    CHECK(s.cache_memory_bytes <= bytes);
    CHECK(wrong(all) == 0);
    CHECK(h.stats().cache_memory_bytes <= bytes);
    require_sound(h);
  }
  // All of them fit by half, and what was read last is here.
  const std::uint64_t used = h.stats().cache_used_bytes;
  CHECK(used > 12_MiB);
}

TEST_CASE("threads read, write and make objects beside a cache that changes its size") {
  fm::heap h(of_cache(8_MiB, 16_MiB));
  constexpr std::size_t threads = 4, each = 15'000;
  std::vector<std::vector<fm::ptr<sized_node>>> all(threads);
  std::vector<std::vector<std::uint64_t>> values(threads, std::vector<std::uint64_t>(each));
  for (auto& mine : all) {
    mine = make(h, each);
  }
  for (auto& v : values)
    for (std::size_t i = 0; i < each; ++i) v[i] = i;
  std::atomic<std::uint64_t> differ{0};
  fm::test::busy_threads busy(
      threads,
      [&](std::size_t t, std::uint64_t random) {
        const std::size_t i = (random >> 33) % each;
        if (random >> 62 == 0) {
          all[t][i] = h.make<sized_node>({.id = ++values[t][i]});
        } else if (random >> 62 == 1) {
          all[t][i].write()->id = ++values[t][i];
        } else {
          fm::scope s;
          const sized_node* const held = all[t][i].get(s);
          const std::size_t other = (i + 7919) % each;
          differ += all[t][other].get(s)->id != values[t][other];
          differ += held->id != values[t][i];
        }
      },
      [](const fm::error&) { return false; });
  for (const std::uint64_t bytes : {2_MiB, 16_MiB, 1_MiB, 4_MiB, 1_MiB, 16_MiB, 8_MiB}) {
    busy.pass(3'000);
    h.resize_cache(bytes);
    CHECK(h.stats().cache_bytes == bytes);
  }
  busy.pass(3'000);
  busy.stop();
  CHECK(busy.unexpected().empty());
  CHECK(differ == 0);
  for (std::size_t t = 0; t < threads; ++t)
    for (std::size_t i = 0; i < each; ++i) REQUIRE(all[t][i]->id == values[t][i]);
  require_sound(h);
}

TEST_CASE("what is pinned keeps a cache from becoming smaller, and is named") {
  fm::heap h(of_cache(4_MiB));
  const auto all = make(h, 40'000);
  {
    std::vector<fm::read_pin<sized_node>> pins;
    for (std::uint64_t i = 0; i < 8'000; ++i) pins.push_back(all[i].read());  // 2 MiB
    CHECK(code_of([&] { h.resize_cache(1_MiB, std::chrono::milliseconds(300)); }) == fm::errc::cache_full);
    const std::uint64_t now = h.stats().cache_bytes;
    CHECK(now > 2_MiB);
    CHECK(now < 4_MiB);
    const std::string text = text_of_failure(h, 1_MiB, std::chrono::milliseconds(100));
    CAPTURE(text);
    CHECK(text.find("pinned: 8000 objects") != std::string::npos);
    CHECK(text.find("1048576") != std::string::npos);
    // It does not go on by itself.
    CHECK(wrong(all) == 0);
    CHECK(h.stats().cache_bytes + 512_KiB > now);
  }
  h.resize_cache(1_MiB);
  CHECK(h.stats().cache_bytes == 1_MiB);
  CHECK(wrong(all) == 0);
  require_sound(h);
}

TEST_CASE("a size that cannot be is refused, and changes nothing") {
  fm::heap h(of_cache(4_MiB, 8_MiB));
  CHECK(text_of_failure(h, 448_KiB).find("at least 8 segments of 65536 bytes") != std::string::npos);
  CHECK(text_of_failure(h, 0).find("at least 8 segments") != std::string::npos);
  CHECK(text_of_failure(h, 8_MiB + 64_KiB).find("heap_options::cache_max allows 8388608") != std::string::npos);
  CHECK(text_of_failure(h, ~std::uint64_t{0}).find("heap_options::cache_max") != std::string::npos);
  CHECK(code_of([&] { h.resize_cache(0); }) == fm::errc::invalid_argument);
  CHECK(h.stats().cache_bytes == 4_MiB);
  const std::uint64_t most = h.object_bytes_max();
  const auto large = h.array<std::byte>(300 << 10);  // of 5 segments
  CHECK(text_of_failure(h, 1_MiB).find("an object of") != std::string::npos);
  CHECK(h.stats().cache_bytes == 4_MiB);
  CHECK(h.object_bytes_max() == most);
  h.resize_cache(2_MiB);
  CHECK(h.object_bytes_max() == 512_KiB);
  CHECK(code_of([&] { (void)h.array<std::byte>(600 << 10); }) == fm::errc::too_large);
  CHECK(large.read()->size() == 300 << 10);
  h.resize_cache(8_MiB);
  CHECK(h.object_bytes_max() == most);
  CHECK(code_of([] { fm::heap wrong(of_cache(4_MiB, 2_MiB)); }) == fm::errc::invalid_argument);
}

TEST_CASE("a thread that waits for memory goes on in a cache that has become larger") {
  auto o = of_cache(1_MiB, 8_MiB);
  o.memory_within = std::chrono::seconds(60);
  fm::heap h(o);
  const auto all = make(h, 20'000);
  std::vector<fm::read_pin<sized_node>> pins;
  std::atomic<bool> waits{false}, ended{false};
  std::thread one([&] {
    for (std::uint64_t i = 0; i < 6'000; ++i) {
      waits = i > 2'000;
      pins.push_back(all[i].read());
    }
    ended = true;
  });
  REQUIRE(fm::test::await([&] { return waits.load(); }));
  REQUIRE(fm::test::await([&] { return h.core().cache().pressure().has_waiters(); }));
  CHECK_FALSE(ended);
  h.resize_cache(8_MiB);
  one.join();
  CHECK(ended);
  for (std::uint64_t i = 0; i < pins.size(); ++i) REQUIRE(pins[i]->id == i);
}

TEST_CASE("the last of several that change the size decides") {
  fm::heap h(of_cache(8_MiB, 8_MiB));
  const auto all = make(h, 40'000);
  std::vector<fm::read_pin<sized_node>> pins;
  for (std::uint64_t i = 0; i < 12'000; ++i) pins.push_back(all[i].read());
  std::atomic<bool> failed{false};
  std::thread earlier([&] { failed = code_of([&] { h.resize_cache(1_MiB); }) != fm::errc::ok; });
  REQUIRE(fm::test::await([&] { return h.core().cache().memory().is_shrinking(); }));
  h.resize_cache(8_MiB);
  earlier.join();  // long before its deadline
  CHECK_FALSE(failed);
  CHECK(h.stats().cache_bytes == 8_MiB);
}
