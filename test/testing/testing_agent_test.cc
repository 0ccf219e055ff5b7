// The agent for tests of programs does what its header says, as a program sees it.
#include <farmem/farmem.h>
#include <farmem/testing.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "support/error_code.h"

using namespace fm::literals;
using fm::test::code_of;

namespace {

struct item {
  std::uint64_t value = 0;
  std::array<std::uint64_t, 30> words{};
};

fm::heap_options on(std::vector<std::string> urls) {
  return {.cache = 1_MiB,
          .agents = std::move(urls),
          .segment = 32_KiB,
          .access_within = std::chrono::seconds(30),
          .reconnect_within = std::chrono::seconds(30)};
}

std::vector<fm::ptr<item>> make_items(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<item>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<item>({.value = i}));
  return all;
}

}  // namespace

TEST_CASE("an agent for tests stores what a heap evicts") {
  fm::testing::agent a;
  fm::heap h(on({a.url()}));
  const auto all = make_items(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) wrong += all[i]->value != i;
  REQUIRE(wrong == 0);
  REQUIRE(a.requests() > 0);
  REQUIRE(h.verify().ok());
}

TEST_CASE("while an agent for tests stalls an access waits, and it ends when that goes on") {
  fm::testing::agent a;
  fm::heap h(on({a.url()}));
  const auto p = h.make<item>({.value = 7});
  REQUIRE(h.evict_all() == fm::errc::ok);
  a.stall();
  std::atomic<bool> done{false};
  std::uint64_t value = 0;
  std::thread reader([&] {
    value = p->value;
    done = true;
  });
  const bool stalled = a.until_stalled();
  const bool early = done.load();
  a.resume();
  reader.join();
  REQUIRE(stalled);
  REQUIRE_FALSE(early);
  REQUIRE(value == 7);
  REQUIRE(h.stats().reconnects == 0);
}

TEST_CASE("connections that an agent for tests breaks, and requests that it loses, cost nothing but time") {
  fm::testing::agent a;
  fm::heap h(on({a.url()}));
  const auto all = make_items(h, 5'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (int round = 0; round < 3; ++round) {
    const auto before = h.stats().reconnects;
    if (round == 0)
      a.disconnect();
    else
      a.lose(3);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      wrong += all[i]->value != i + static_cast<std::uint64_t>(round);
      all[i].write()->value = i + static_cast<std::uint64_t>(round) + 1;
    }
    REQUIRE(wrong == 0);
    REQUIRE(h.evict_all() == fm::errc::ok);
    REQUIRE(h.stats().reconnects > before);
  }
  REQUIRE(h.verify().ok());
}

TEST_CASE("an agent for tests that is full refuses, and takes what is written when it is not") {
  fm::testing::agent a;
  auto o = on({a.url()});
  o.memory_within = std::chrono::seconds(1);  // also for the eviction that follows, on a busy machine
  fm::heap h(o);
  std::vector<fm::ptr<item>> all = make_items(h, 2'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  a.set_full(true);
  const fm::errc refused = code_of([&] {
    for (std::uint64_t i = 0; i < 200'000; ++i) all.push_back(h.make<item>({.value = all.size()}));
  });
  REQUIRE(refused == fm::errc::agent_full);
  a.set_full(false);
  const std::size_t before = all.size();
  for (std::uint64_t i = 0; i < 10'000; ++i) all.push_back(h.make<item>({.value = all.size()}));
  REQUIRE(all.size() == before + 10'000);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) wrong += all[i]->value != i;
  REQUIRE(wrong == 0);
}

TEST_CASE("when one of two agents for tests dies its objects are lost, and comes back empty at the same address") {
  fm::testing::agent a, b;
  auto o = on({a.url(), b.url()});
  o.reconnect_within = std::chrono::milliseconds(500);
  fm::heap h(o);
  const auto all = make_items(h, 20'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const std::string url = b.url();
  b.die();
  std::uint64_t lost = 0, wrong = 0;
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    const fm::errc e = code_of([&] { wrong += all[i]->value != i; });
    lost += e == fm::errc::agent_lost;
    wrong += e != fm::errc::ok && e != fm::errc::agent_lost;
  }
  REQUIRE(wrong == 0);
  REQUIRE(lost > 0);
  REQUIRE(lost < all.size());
  b.restart();
  REQUIRE(b.url() == url);
  fm::heap next(on({b.url()}));
  const auto again = make_items(next, 5'000);
  REQUIRE(next.evict_all() == fm::errc::ok);
  REQUIRE(again[4'999]->value == 4'999);
  b.die();
  b.die();
}

TEST_CASE("pools and paged ranges use an agent for tests, too") {
  fm::testing::agent a;
  fm::pool p({.agents = {a.url()}, .name = "tested", .tenant = fm::pool_tenant::random()});
  auto nine = p.alloc<std::uint64_t>(9);
  REQUIRE(p.read(nine) == 9);
  fm::paged range({.capacity = 8_MiB, .local = 2_MiB, .agents = {a.url()}});
  for (std::size_t i = 0; i < range.size(); i += 4096) range.data()[i] = static_cast<std::byte>(i / 4096);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < range.size(); i += 4096) wrong += range.data()[i] != static_cast<std::byte>(i / 4096);
  REQUIRE(wrong == 0);
}
