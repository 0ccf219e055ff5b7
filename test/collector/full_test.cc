// Agents that are full: the heap uses all of them first, reads go on, collections do not take the cores, and the error
// says who is full.
#include "heap/heap_core.h"
#include "meddled_agent.h"
#include "support/await.h"

using namespace gc_test;

namespace {

struct block {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 60> words{};
};

fm::agent::store_options of_memory(std::uint64_t bytes) {
  fm::agent::store_options o;
  o.memory_bytes = bytes;
  o.region_bytes = 256_KiB;
  return o;
}

/// Makes blocks until the heap is full; what the error said.
std::string fill(fm::heap& h, std::vector<fm::ptr<block>>& all) {
  try {
    while (all.size() < 1'000'000) all.push_back(h.make<block>({.id = all.size()}));
  } catch (const fm::error& e) {
    REQUIRE((e.code() == fm::errc::agent_full || e.code() == fm::errc::quota_exceeded));
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a heap is full when all of its agents are, reads go on then, and collections rest") {
  meddled_agent large("tcp://127.0.0.1:0", of_memory(16_MiB)), small_one("tcp://127.0.0.1:0", of_memory(4_MiB));
  auto o = over({large.url(), small_one.url()});
  o.cache = 2_MiB;
  o.collect = true;
  o.memory_within = std::chrono::seconds(2);
  fm::heap h(o);
  std::vector<fm::ptr<block>> all;
  const std::string text = fill(h, all);
  INFO(text);
  // Agents keep some of their memory for the cleaner; each is used but for less than that.
  CHECK(all.size() * sizeof(block) > 14_MiB);
  CHECK(text.find(large.url()) != std::string::npos);
  CHECK(text.find(small_one.url()) != std::string::npos);
  CHECK(text.find("drop references") != std::string::npos);

  const std::uint64_t before = h.stats().collections;
  for (int i = 0; i < 3; ++i) (void)fill(h, all);
  CHECK(h.stats().collections - before < 40);

  // All of it, in an order that finds little of it near.
  const std::uint64_t misses = h.stats().misses;
  for (std::uint64_t i = 0, at = 0; i < all.size(); ++i, at = (at + 1009) % all.size())
    if (all[at]->id != at) FAIL("block " << at);
  CHECK(h.stats().misses > misses);

  // Objects that are read and changed stay dirty, but leave that share alone.
  int refused = 0;
  for (std::uint64_t i = 0, at = 0; i < all.size() && refused < 2; ++i, at = (at + 1009) % all.size()) try {
      all[at].write()->words[0] = 1;
    } catch (const fm::error& e) {
      INFO(e.what());
      REQUIRE((e.code() == fm::errc::agent_full || e.code() == fm::errc::quota_exceeded));
      ++refused;
    }
  INFO(refused << " changes were refused");
  CHECK((refused > 0 || h.core().cache().memory().available() >= h.core().cache().frames().reserve()));
  for (std::uint64_t i = 0, at = 0; i < all.size(); ++i, at = (at + 1009) % all.size())
    if (all[at]->id != at) FAIL("block " << at << " after changes");

  // Garbage makes room.
  all.resize(all.size() / 2);
  const std::uint64_t kept = all.size();
  REQUIRE(fm::test::await([&] {
    try {
      all.push_back(h.make<block>({.id = all.size()}));
      return true;
    } catch (const fm::error&) {
      return false;
    }
  }));
  CHECK(all.size() == kept + 1);
}

TEST_CASE("objects are read beside a cache that was full of dirty frames before its agent refused any") {
  meddled_agent agent("tcp://127.0.0.1:0", of_memory(16_MiB));
  auto o = over({agent.url()});
  o.cache = 2_MiB;
  o.memory_within = std::chrono::seconds(2);
  fm::heap h(o);
  std::vector<fm::ptr<block>> all;
  while (all.size() * sizeof(block) < 4_MiB) all.push_back(h.make<block>({.id = all.size()}));
  REQUIRE(h.core().cache().eviction().drain(fm::clock::now() + std::chrono::minutes(1)) == fm::errc::ok);
  const std::size_t stored = all.size();

  fm::heap other(o);
  std::vector<fm::ptr<block>> others;
  REQUIRE_FALSE(fill(other, others).empty());

  // What is made now is not written back before there is no more memory for it.
  const std::uint64_t stalls = h.stats().stalls_for_memory;
  std::string text;
  {
    auto held = h.core().cache().eviction().hold();
    std::thread maker([&] { text = fill(h, all); });
    const bool stalled = fm::test::await([&] { return h.stats().stalls_for_memory != stalls; });
    held.unlock();
    maker.join();
    REQUIRE(stalled);
  }
  INFO(text);
  CHECK(text.find(agent.url()) != std::string::npos);
  for (std::size_t i = 0; i < stored; i += 3)
    if (all[i]->id != i) FAIL("block " << i);
}

TEST_CASE("threads that come when the agents are full read beside them") {
  meddled_agent agent("tcp://127.0.0.1:0", of_memory(16_MiB));
  auto o = over({agent.url()});
  o.cache = 2_MiB;
  o.memory_within = std::chrono::seconds(1);
  fm::heap h(o);
  std::vector<fm::ptr<block>> all;
  REQUIRE_FALSE(fill(h, all).empty());
  // Dirty frames have left what one thread needs in reserve. The reserve of these is larger.
  std::atomic<std::uint64_t> read = 0;
  std::string failed;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        for (std::uint64_t i = 0, at = t * 1009; i < 20'000; ++i, at = (at + 1009) % all.size())
          read += all[at % all.size()]->id == at % all.size();
      } catch (const fm::error& e) {
        const std::lock_guard lock(mutex);
        failed = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failed == "");
  CHECK(read == 4 * 20'000);
}

TEST_CASE("a wait beside a full agent sees a collection that began after it, however long collections rest") {
  meddled_agent agent("tcp://127.0.0.1:0", of_memory(16_MiB));
  auto o = over({agent.url()});
  o.cache = 2_MiB;
  o.collect = true;
  o.memory_within = std::chrono::seconds(2);
  fm::heap h(o);
  std::vector<fm::ptr<block>> all;
  REQUIRE_FALSE(fill(h, all).empty());
  fm::detail::collection_requests& requests = h.core().cache().requests();
  REQUIRE(fm::test::await([&] { return !requests.awaits_collection(); }));
  // As after a cycle in vain that took half a second: the next one comes 4.5 seconds later.
  requests.cycle_begins();
  requests.collected(false, true, std::chrono::milliseconds(500), o.memory_within);
  all.resize(all.size() / 2);
  const std::uint64_t kept = all.size();
  CHECK_NOTHROW(all.push_back(h.make<block>({.id = kept})));
  CHECK(all.size() == kept + 1);
}
