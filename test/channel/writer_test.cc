// The sender's walk over a graph, part by part: how far it looks ahead for what to fetch.
#include "base/channel_limits.h"
#include "heap/heap_core.h"

#include "fixture.h"
#include "recorder.h"

using namespace channel_test;
using namespace fm::detail;

namespace {

constexpr graph_limits no_limits{1u << 20, 1u << 30};

/// A recorder that calls a function of the test whenever a part is asked for, as one that waits for its window may be.
class told_of_parts final : public part_sink {
 public:
  explicit told_of_parts(std::function<void()> told) : told_(std::move(told)) {}
  std::span<char> next(std::size_t used) override {
    told_();
    return kept_.next(used);
  }

 private:
  std::function<void()> told_;
  recorder kept_;
};

}  // namespace

TEST_CASE("a sender that misses looks at a bounded number of pending objects for some to fetch with it") {
  constexpr std::uint64_t looks = channel_limits::looks_ahead;
  fm::heap_options o = small();
  o.elastic = false;  // resident is what was asked for
  fm::heap h(o);
  std::vector<fm::ptr<node>> all;
  for (std::uint64_t i = 0; i < looks + 2; ++i) all.push_back(h.make<node>({.id = i}));
  const auto roots = h.array<fm::ref<node>>(looks + 2);
  {
    const fm::write_pin w = roots.write();
    for (std::uint64_t i = 0; i < looks + 2; ++i) (*w)[i] = all[i];
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (std::uint64_t i = 1; i < looks; ++i) REQUIRE(all[i]->id == i);
  const auto is_remote = [&](std::uint64_t i) { return word::is_remote(word_at(all[i].slot()).load()); };
  REQUIRE((is_remote(0) && is_remote(looks) && is_remote(looks + 1)));
  // The first misses, and is written before the others.
  bool last_was_fetched = false, next_was_not = false;
  told_of_parts to([&] {
    if (is_remote(0)) return;
    last_was_fetched = last_was_fetched || !is_remote(looks);
    next_was_not = next_was_not || is_remote(looks + 1);
  });
  graph_writer w(schema_of<fm::ref<node>[]>(), no_limits, false, to);
  w.write(roots.slot());
  CHECK(last_was_fetched);
  CHECK(next_was_not);
  CHECK(w.objects() == looks + 3);
}
