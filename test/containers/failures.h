// How the tests of containers make operations fail: each fetch in turn, or for want of room in the cache.
#pragma once

#include <vector>

#include "containers/sparing_agent.h"

namespace fm::test {

/// Calls `run` of what `make` gives, and of which nothing is in the cache: first no read is answered, then one, then two,
/// until it does not throw. Each time `check` looks at what is left, with what it threw or errc::ok.
template <class Make, class Run, class Check>
void fail_each_fetch(heap& h, sparing_agent& agent, Make&& make, Run&& run, Check&& check) {
  constexpr std::int64_t most = 400;
  errc result = errc::not_found;
  int failures = 0;
  for (std::int64_t reads = 0; result != errc::ok; reads += std::int64_t{effort_divisor}) {
    INFO(reads << " reads are answered");
    REQUIRE(reads < most);
    const auto made = make();
    REQUIRE(h.evict_all() == errc::ok);
    agent.gives = reads;
    result = code_of([&] { run(made); });
    agent.gives = agent.unlimited;
    REQUIRE((result == errc::ok || result == errc::access_denied));
    failures += result != errc::ok;
    check(made, result);
  }
  REQUIRE(failures > 0);
}

/// Calls `change`, before which nothing is in the cache: first no read is answered, then one, then two, until it does not
/// throw, and returns true. `check` looks at what is left each time that it threw. Returns how often that was.
template <class Change, class Check>
std::uint64_t change_at_last(heap& h, sparing_agent& agent, Change&& change, Check&& check) {
  for (std::int64_t reads = 0;; ++reads) {
    REQUIRE(reads < 40);
    REQUIRE(h.evict_all() == errc::ok);
    agent.gives = reads;
    bool changed = false;
    const errc result = code_of([&] { changed = change(); });
    agent.gives = agent.unlimited;
    if (result == errc::ok) {
      REQUIRE(changed);
      return static_cast<std::uint64_t>(reads);
    }
    REQUIRE(result == errc::access_denied);
    check();
  }
}

/// Options of a heap in which calls find the cache full at once.
inline heap_options impatient(std::chrono::milliseconds within = std::chrono::milliseconds(20)) {
  auto o = tiny();
  o.collect = o.collect_young = false;
  o.memory_within = within;
  return o;
}

/// Objects that are pinned until nothing fits, large ones and then small ones: new ones and then, in the readers' share,
/// others.
class full_cache {
 public:
  explicit full_cache(heap& h) : heap_(h) {
    std::vector<ptr<char[]>> large, small;
    while (large.size() < 8) large.push_back(h.array<char>(60'000));
    while (small.size() < 400) small.push_back(h.array<char>(400));
    REQUIRE(h.evict_all() == errc::ok);
    for (const std::size_t bytes : {60'000, 400})
      while (code_of([&] { pins_.push_back(h.array<char>(bytes).read()); }) == errc::ok) REQUIRE(pins_.size() < 1'000);
    for (const auto* spare : {&large, &small})
      (void)code_of([&] {
        for (const ptr<char[]>& s : *spare) pins_.push_back(s.read());
      });
  }
  /// Unpins a few. When none is left, what is dirty could not be written within memory_within: the machine is slow.
  void make_room() {
    if (!pins_.empty()) {
      pins_.erase(pins_.end() - 1 - std::ptrdiff_t(pins_.size() / 32), pins_.end());
      return;
    }
    REQUIRE(++without_pins_ < 1'000);
    REQUIRE(heap_.evict_all() == errc::ok);
  }
  void make_all_room() {
    pins_.clear();
    REQUIRE(heap_.evict_all() == errc::ok);
  }

 private:
  heap& heap_;
  std::vector<read_pin<char[]>> pins_;
  int without_pins_ = 0;
};

/// Calls `run` in a full cache, and makes room bit by bit until it does not throw; or, if what it changes need not be as
/// before after a throw, until then. Returns how often it has thrown, and in `result` what it threw last or errc::ok.
template <class Run>
int fail_without_room(heap& h, bool strong, errc& result, Run&& run) {
  full_cache full(h);
  int failures = 0;
  for (;; full.make_room()) {
    result = code_of(run);
    if (result == errc::ok) break;
    REQUIRE(result == errc::cache_full);
    ++failures;
    if (!strong) break;
  }
  full.make_all_room();
  return failures;
}

}  // namespace fm::test
