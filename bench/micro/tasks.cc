// Coroutine tasks whose objects are resident: running one, awaiting a fetch that has nothing to fetch, awaiting another task, and
// running many at a time.
#include <ranges>

#include "fixture.h"

namespace fm::micro {
namespace {

constexpr benchmark::IterationCount awaits = 1024;

fm::task<std::uint64_t> answer() { co_return 1; }

void task_run(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(fm::run(answer()));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(task_run)->Name("task/run");

fm::task<std::uint64_t> fetch_each(const std::vector<fm::ptr<node>>& nodes) {
  std::uint64_t sum = 0;
  for (const fm::ptr<node>& n : nodes) {
    const auto pin = co_await n.fetch();
    sum += pin->value;
  }
  co_return sum;
}

void task_fetch(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), awaits);
  while (state.KeepRunningBatch(awaits)) benchmark::DoNotOptimize(fm::run(fetch_each(nodes)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(task_fetch)->Name("task/await_fetch");

fm::task<std::uint64_t> await_each(benchmark::IterationCount n) {
  std::uint64_t sum = 0;
  for (benchmark::IterationCount i = 0; i < n; ++i) sum += co_await answer();
  co_return sum;
}

void task_await(benchmark::State& state) {
  while (state.KeepRunningBatch(awaits)) benchmark::DoNotOptimize(fm::run(await_each(awaits)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(task_await)->Name("task/await_task");

fm::task<std::uint64_t> look(fm::ptr<node> n) {
  const auto pin = co_await n.fetch();
  co_return pin->value;
}

void task_run_all(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), awaits);
  const auto in_flight = static_cast<std::size_t>(state.range(0));
  while (state.KeepRunningBatch(awaits))
    benchmark::DoNotOptimize(fm::run_all(nodes | std::views::transform(look), in_flight));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(task_run_all)->Name("task/run_all")->ArgName("in_flight")->Arg(1)->Arg(16);

}  // namespace
}  // namespace fm::micro
