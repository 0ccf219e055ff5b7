// Allocation by size in the steady state: objects are dropped at once, and the collector runs when it is due. Time is wall
// time, and the CPU time is the process's, because the collector works on a thread of its own.
#include "fixture.h"

namespace fm::micro {
namespace {

/// Payloads of state.range(0) bytes: an array's length is 8 of them.
void allocation_array(benchmark::State& state) {
  fm::heap& h = collected_heap();
  const auto elements = static_cast<std::size_t>(state.range(0)) - 8;
  for (auto _ : state) benchmark::DoNotOptimize(h.array<char>(elements));
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(allocation_array)
    ->Name("allocation/array")
    ->ArgName("bytes")
    ->RangeMultiplier(4)
    ->Range(16, 64 << 10)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

void allocation_object(benchmark::State& state) {
  fm::heap& h = collected_heap();
  for (auto _ : state) benchmark::DoNotOptimize(h.make<node>());
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sizeof(node)));
}
BENCHMARK(allocation_object)->Name("allocation/object")->UseRealTime()->MeasureProcessCPUTime();

/// Each object replaces the oldest of `kept`: it dies after so many allocations.
void allocation_kept(benchmark::State& state) {
  fm::heap& h = collected_heap();
  std::vector<fm::ptr<node>> kept(static_cast<std::size_t>(state.range(0)));
  std::size_t i = 0;
  for (auto _ : state) {
    kept[i] = h.make<node>();
    if (++i == kept.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sizeof(node)));
}
BENCHMARK(allocation_kept)
    ->Name("allocation/kept")
    ->ArgName("kept")
    ->Arg(1 << 10)
    ->Arg(1 << 16)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace fm::micro
