// The simulated policies that the cache is compared with (bench/policy): small traces with results worked out by hand,
// and what holds for every trace.
#include "bench/policy/simulators.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace fm::bench;

namespace {

/// One letter an access: which of them hit.
std::string hits(std::unique_ptr<policy_simulator> policy, const std::string& letters) {
  std::string out;
  for (const char c : letters) out += policy->access(static_cast<std::uint32_t>(c - 'a')) ? '+' : '.';
  return out;
}

trace letters(const std::string& text) {
  trace t;
  for (const char c : text) t.push_back(static_cast<std::uint32_t>(c - 'a'));
  return t;
}

}  // namespace

TEST_CASE("LRU: the object that was not used for longest leaves") {
  // c evicts b, since a was used after it; b evicts a, c being younger.
  CHECK(hits(simulate_lru(8, 2), "abacbca") == "..+..+.");
  CHECK(hits(simulate_lru(8, 1), "aab") == ".+.");
}

TEST_CASE("LRU: a loop that is one longer than the cache never hits") {
  CHECK(hits(simulate_lru(8, 3), "abcdabcd") == "........");
}

TEST_CASE("SIEVE: the hand passes over what was used, and goes on where it stopped") {
  // d: the hand passes a, which was used, and evicts b. The queue is a c d, the hand at c. e evicts c.
  // The hand is at d, so a, whose mark is gone, is still there.
  CHECK(hits(simulate_sieve(8, 3), "abcadea") == "...+..+");
  // Where nothing is used again, the oldest leaves.
  CHECK(hits(simulate_sieve(8, 3), "abcdabcd") == "........");
}

TEST_CASE("S3-FIFO: what is used once leaves by the small queue, and a ghost comes back to the main queue") {
  // A cache of 10: one small, nine main. Eleven once-used objects evict a. As a ghost it enters main, and then stays
  // however many objects pass through the small queue.
  auto policy = simulate_s3_fifo(64, 10);
  for (std::uint32_t key = 0; key < 11; ++key) REQUIRE_FALSE(policy->access(key));
  REQUIRE_FALSE(policy->access(0));
  for (std::uint32_t key = 11; key < 60; ++key) REQUIRE_FALSE(policy->access(key));
  REQUIRE(policy->access(0));
}

TEST_CASE("S3-FIFO: what was used twice on trial enters the main queue, and once is not enough") {
  for (const bool twice : {false, true}) {
    auto policy = simulate_s3_fifo(64, 10);
    policy->access(0);
    policy->access(0);
    if (twice) policy->access(0);
    for (std::uint32_t key = 1; key < 30; ++key) policy->access(key);
    REQUIRE(policy->access(0) == twice);
  }
}

TEST_CASE("Belady: the object that is used again last leaves") {
  // Capacity 2: c evicts b (next use later than a's), then b evicts c, which is not used again.
  CHECK(belady_misses(letters("abacab"), 3, 2, 0) == 4);
  CHECK(belady_misses(letters("abcabcabc"), 3, 2, 0) == 6);
  CHECK(belady_misses(letters("abcabcabc"), 3, 3, 0) == 3);
  CHECK(belady_misses(letters("abacab"), 3, 2, 4) == 1);
}

TEST_CASE("Belady: of a loop of N objects a cache of C keeps C - 1 for the next round") {
  // Of the accesses after the first N - 1, (C - 1) / (N - 1) hit.
  const trace t = loop_trace({"loop", 100, 100 * 99, 1}, 100);
  CHECK(t.size() - belady_misses(t, 100, 50, 0) == (t.size() - 99) * 49 / 99);
}

TEST_CASE("no policy misses less than Belady, and none more than every access") {
  constexpr std::uint32_t keys = 2'000;
  for (const std::string& name : usual_traces()) {
    const trace t = named_trace({name, keys, 40'000, 7});
    REQUIRE(t.size() == 40'000);
    for (const std::uint64_t capacity : {1u, 20u, 200u, 1'000u, 2'000u}) {
      const std::uint64_t least = belady_misses(t, keys, capacity, 0);
      for (const named_policy& policy : simulated_policies()) {
        const std::uint64_t misses = policy.misses(t, keys, capacity, 0);
        INFO(name << ", " << policy.name << ", " << capacity);
        CHECK(misses >= least);
        CHECK(misses <= t.size());
        if (capacity == keys) CHECK(misses == least);  // each key once
      }
    }
  }
}

TEST_CASE("a trace is the same whenever it is made, and names keys that there are") {
  for (const std::string& name : usual_traces()) {
    const trace_spec spec{name, 1'000, 10'000, 3};
    const trace t = named_trace(spec);
    CHECK(t == named_trace(spec));
    CHECK(*std::max_element(t.begin(), t.end()) < 1'000);
  }
}
