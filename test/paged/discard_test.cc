// What becomes of the agents' memory when a program discards: regions in which nothing is left go back, and only those, whatever else
// is going on in them.
#include <atomic>

#include "fixture.h"

using namespace paged_test;

namespace {

/// Regions that an agent says it has for its one space.
std::uint64_t regions_of(const agent_test::live_agent& agent) {
  const std::string text = agent.status(), before = "\"regions\":";
  const auto space = text.find("\"spaces\"");
  REQUIRE(space != std::string::npos);
  const auto at = text.find(before, space);
  REQUIRE(at != std::string::npos);
  return std::stoull(text.substr(at + before.size()));
}

/// Writes slots of its own over and over, discards some of them, and finds in each what has to be there. Gives whether it did.
bool keep_at_it(const paged& p, std::size_t first, std::size_t step, int rounds) {
  constexpr std::size_t slot = 32_KiB;
  const std::size_t slots = p.size() / slot;
  std::vector<std::uint8_t> has(slots, 0);
  const auto filled_with = [&](std::size_t s, std::uint8_t v) {
    const std::byte* const b = p.data() + s * slot;
    return b[0] == std::byte{v} && std::memcmp(b, b + 1, slot - 1) == 0;
  };
  std::mt19937_64 random(first + 1);
  for (int i = 0; i < rounds; ++i) {
    const std::size_t s = first + random() % (slots / step) * step;
    if (!filled_with(s, has[s])) return false;
    has[s] = random() % 2 == 0 ? 0 : std::uint8_t(1 + random() % 255);
    if (has[s] == 0)
      p.discard(p.bytes().subspan(s * slot, slot));
    else
      std::memset(p.data() + s * slot, has[s], slot);
  }
  for (std::size_t s = first; s < slots; s += step)
    if (!filled_with(s, has[s])) return false;
  return true;
}

}  // namespace

TEST_CASE("what is discarded goes back to the agents, region by region") {
  for (const std::string t : {"shm", "tcp"})
    for (const std::size_t agents : {1, 3}) {
      INFO(t << ", " << agents << " agents");
      world w(t, agents);
      w.o.faults = modes().back();
      w.o.read_ahead = 0;
      const paged p(w.o);
      std::memset(p.data(), 1, p.size());
      p.evict_all();
      const std::uint64_t all = p.stats().regions;
      CHECK(all >= 16);
      std::uint64_t told = 0;
      for (const auto& a : w.live) told += regions_of(*a);
      CHECK(told == all);

      p.discard(p.bytes().first(4096));  // the rest of its region is still wanted
      CHECK(p.stats().regions == all);
      p.discard(p.bytes().first(p.size() / 2));  // whole regions of each agent
      CHECK(p.stats().regions <= all / 2 + agents);
      CHECK(p.verify() == "");
      CHECK(p.data()[p.size() / 2] == std::byte{1});
      CHECK(p.data()[p.size() / 2 - 1] == std::byte{0});

      p.discard(p.bytes());
      CHECK(fm::test::await([&] { return p.stats().regions == 0; }));
      for (const auto& a : w.live) CHECK(regions_of(*a) == 0);
      std::memset(p.data(), 2, p.size());  // and they come again
      p.evict_all();
      CHECK(p.stats().regions == all);
      CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
      CHECK(p.data()[0] == std::byte{2});
      CHECK(p.verify() == "");
    }
}

// A discard of one page of a block that has just been cooled makes single pages of the others: none may be written home while it is
// still mapped for writing.
TEST_CASE("what is written beside a page that is discarded again and again is not lost, while blocks are cooled") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    world w("local");
    w.o.faults = mode;
    w.o.capacity = 512_KiB;
    w.o.local = 128_KiB;
    w.o.read_ahead = 0;
    const paged p(w.o);
    constexpr std::size_t page = 4_KiB;
    const std::size_t pages = p.size() / page, of_block = w.o.block / page;
    std::atomic<bool> stop{false};
    // The first page of every block is discarded; the rest belong to one writer, which knows what it wrote last.
    std::thread discards([&] {
      for (std::size_t b = 0; !stop.load(); b = (b + of_block) % pages) {
        const_cast<volatile std::byte&>(p.data()[b * page]) = std::byte{1};
        p.discard({p.data() + b * page, page});
      }
    });
    std::vector<std::uint64_t> last(pages);
    std::uint64_t lost = 0;
    std::mt19937_64 random(7);
    for (std::uint64_t i = 1; i <= 30'000; ++i) {
      const std::size_t at = random() % pages;
      if (at % of_block == 0) continue;
      auto* const word = reinterpret_cast<volatile std::uint64_t*>(p.data() + at * page);
      lost += *word != last[at];
      *word = last[at] = i;
    }
    stop.store(true);
    discards.join();
    CHECK(lost == 0);
    CHECK(p.verify() == "");
  }
}

TEST_CASE("threads discard and write in the same regions, and each finds its own") {
  for (const std::string& t : transports)
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      world w(t);
      w.o.faults = mode;
      w.o.capacity = 1_MiB;  // few slots a region, so that many regions become empty
      w.o.local = 128_KiB;
      w.o.read_ahead = 0;  // what a stream of writes makes ready is written home, too
      const paged p(w.o);
      std::array<std::atomic<bool>, 2> right{};
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < right.size(); ++i)
        threads.emplace_back([&, i] { right[i] = keep_at_it(p, i, right.size(), 400); });
      for (std::thread& thread : threads) thread.join();
      CHECK(right[0]);
      CHECK(right[1]);
      CHECK(p.verify() == "");
      p.discard(p.bytes());
      CHECK(fm::test::await([&] { return p.stats().regions == 0; }));
      CHECK(p.verify() == "");
    }
}

TEST_CASE("what is discarded while a connection is broken goes back when it stands again") {
  for (const std::string& t : transports) {
    INFO(t);
    world w(t);
    w.o.faults = modes().back();
    w.o.read_ahead = 0;
    w.o.reconnect_within = std::chrono::seconds(30);
    w.o.access_within = std::chrono::seconds(30);
    const paged p(w.o);
    for (int i = 1; i <= 3; ++i) {
      std::memset(p.data(), i, p.size());
      p.evict_all();
      p.drop_connections();
      p.discard(p.bytes());
      CHECK(fm::test::await([&] { return p.stats().regions == 0; }));
      CHECK(p.data()[p.size() - 1] == std::byte{0});
    }
    std::memset(p.data(), 7, 100'000);
    p.evict_all();  // waits for the connection
    CHECK(p.stats().regions == 1);
    // An agent that could not be told is told when the session is up, whether or not anybody asks.
    for (const auto& a : w.live) {
      const time_point until = clock::now() + std::chrono::minutes(10);
      while (regions_of(*a) != 1 && clock::now() < until) std::this_thread::yield();
      CHECK(regions_of(*a) == 1);
    }
    CHECK(p.verify() == "");
    CHECK(p.data()[99'999] == std::byte{7});
    CHECK(p.data()[100'000] == std::byte{0});
  }
}
