// Operations of queues that fail: each fetch in turn, or for want of room in the cache. The table of
// docs/how-to/containers.md says what each leaves.
#include <deque>
#include <functional>

#include "containers/failures.h"

using namespace fm::test;

namespace {

using numbers = std::deque<std::uint64_t>;
using managed = fm::queue<std::uint64_t>;

constexpr std::uint64_t of_block = 125;  ///< elements
constexpr std::uint64_t added = 1'000'000;

struct operation {
  const char* name;
  std::uint64_t pushed, popped;  ///< before it: elements from 0
  std::function<void(const managed&)> run;
  std::function<void(numbers&)> on_oracle;
};
const std::vector<operation> operations{
    {"size", 300, 7, [](auto& q) { (void)q.size(); }, [](auto&) {}},
    {"empty", 300, 7, [](auto& q) { (void)q.empty(); }, [](auto&) {}},
    {"front", 300, 7, [](auto& q) { (void)q.front(); }, [](auto&) {}},
    {"push", 300, 7, [](auto& q) { q.push(added); }, [](auto& o) { o.push_back(added); }},
    {"push that needs a block", 2 * of_block, 7, [](auto& q) { q.push(added); }, [](auto& o) { o.push_back(added); }},
    {"the first push", 0, 0, [](auto& q) { q.push(added); }, [](auto& o) { o.push_back(added); }},
    {"push to what is empty again", 300, 300, [](auto& q) { q.push(added); }, [](auto& o) { o.push_back(added); }},
    {"pop", 300, 7, [](auto& q) { (void)q.pop(); }, [](auto& o) { o.pop_front(); }},
    {"try_pop", 300, 7, [](auto& q) { (void)q.try_pop(); }, [](auto& o) { o.pop_front(); }},
    {"pop that empties a block", 300, of_block - 1, [](auto& q) { (void)q.pop(); }, [](auto& o) { o.pop_front(); }},
    {"pop of the last", 300, 299, [](auto& q) { (void)q.pop(); }, [](auto& o) { o.pop_front(); }},
    {"try_pop of nothing", 300, 300, [](auto& q) { (void)q.try_pop(); }, [](auto&) {}},
};

managed queue_before(fm::heap& h, const operation& op) {
  managed q(h);
  for (std::uint64_t i = 0; i < op.pushed; ++i) q.push(i);
  for (std::uint64_t i = 0; i < op.popped; ++i) q.pop();
  return q;
}
/// Looks at what an operation left, which threw, or did not: at the elements, and at what is pushed behind them.
void require_left(const operation& op, const managed& q, bool threw) {
  numbers expected;
  for (std::uint64_t i = op.popped; i < op.pushed; ++i) expected.push_back(i);
  if (!threw) op.on_oracle(expected);
  REQUIRE(q.size() == expected.size());
  for (std::uint64_t i = 0; i < of_block + 1; ++i) {
    expected.push_back(2 * added + i);
    q.push(expected.back());
  }
  numbers left;
  while (!q.empty()) {
    left.push_back(q.front());
    REQUIRE(q.pop() == left.back());
  }
  REQUIRE(left == expected);
}

}  // namespace

TEST_CASE("a queue is as before when any fetch fails") {
  sparing_agent agent;
  fm::heap h(agent.options());
  for (const operation& op : operations) {
    INFO(op.name);
    fail_each_fetch(
        h, agent, [&] { return queue_before(h, op); }, op.run,
        [&](const managed& q, fm::errc result) { require_left(op, q, result != fm::errc::ok); });
  }
  require_sound(h);
}

TEST_CASE("a queue is as before when the cache is full") {
  int failures = 0;
  for (const operation& op : operations) {
    INFO(op.name);
    fm::heap h(impatient(std::chrono::milliseconds(5)));
    const managed q = queue_before(h, op);
    fm::errc result{};
    // Each throw is looked at: the operation is made again in a queue of its own.
    failures += fail_without_room(h, true, result, [&] { op.run(q); });
    require_left(op, q, result != fm::errc::ok);
    const managed other = queue_before(h, op);
    failures += fail_without_room(h, false, result, [&] { op.run(other); });
    require_left(op, other, result != fm::errc::ok);
    require_sound(h);
  }
  REQUIRE(failures > 20);
}
