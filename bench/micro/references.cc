// References in fields of managed objects: loading and storing them, with and without a cycle that marks. The object is pinned
// throughout, so that the write barrier of the object itself is not part of the figure.
#include "fixture.h"

namespace fm::micro {
namespace {

constexpr std::size_t targets = 4096;  // more than a log remembers, so that marking logs every store

void reference_load(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), 2);
  const auto pin = nodes[1].read();
  for (auto _ : state) {
    fm::ptr<node> p = pin->next;
    benchmark::DoNotOptimize(p);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_load)->Name("reference/load");

void reference_arrow(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), 2);
  const auto pin = nodes[1].read();
  for (auto _ : state) benchmark::DoNotOptimize(pin->next->value);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_arrow)->Name("reference/arrow");

void reference_store(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), targets);
  const auto pin = nodes[0].write();
  std::size_t i = 0;
  for (auto _ : state) {
    pin->other = nodes[i++ % targets];
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_store)->Name("reference/store");

/// `distinct`: how many objects are overwritten in turn. A log keeps what it has just logged once, so that few cost less.
void reference_store_marking(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), targets);
  const auto distinct = static_cast<std::size_t>(state.range(0));
  const auto pin = nodes[0].write();
  marking now;
  std::size_t i = 0;
  constexpr int batch = 1 << 14;
  while (state.KeepRunningBatch(batch)) {
    for (int n = 0; n < batch; ++n) {
      pin->other = nodes[i++ % distinct];
      benchmark::ClobberMemory();
    }
    state.PauseTiming();
    now.discard_logs();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_store_marking)->Name("reference/store_marking")->ArgName("distinct")->Arg(2)->Arg(targets);

void reference_exchange(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), targets);
  const auto pin = nodes[0].write();
  std::size_t i = 0;
  for (auto _ : state) {
    fm::ptr<node> old = pin->other.exchange(nodes[i++ % targets]);
    benchmark::DoNotOptimize(old);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_exchange)->Name("reference/exchange");

void reference_compare_exchange(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), 2);
  const auto pin = nodes[0].write();
  pin->other = nodes[0];
  std::size_t i = 0;
  for (auto _ : state) {
    const bool stored = pin->other.compare_exchange(nodes[i & 1], nodes[(i + 1) & 1]);
    ++i;
    if (!stored) state.SkipWithError("the reference held another object");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(reference_compare_exchange)->Name("reference/compare_exchange");

}  // namespace
}  // namespace fm::micro
