// Agents that are full: the heap uses all of them first, reads go on, collections do not take the cores, and the error
// says who is full.
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
  meddled_agent large("tcp://127.0.0.1:0", of_memory(32_MiB)), small_one("tcp://127.0.0.1:0", of_memory(8_MiB));
  auto o = over({large.url(), small_one.url()});
  o.cache = 2_MiB;
  o.collect = true;
  o.memory_within = std::chrono::seconds(2);
  fm::heap h(o);
  std::vector<fm::ptr<block>> all;
  const std::string text = fill(h, all);
  INFO(text);
  // Agents keep some of their memory for the cleaner; each is used but for less than that.
  CHECK(all.size() * sizeof(block) > 28_MiB);
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
