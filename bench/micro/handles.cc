// Handles, pins and weak handles: making and dropping them, and reaching a resident object through them.
#include <algorithm>
#include <random>

#include "fixture.h"

namespace fm::micro {
namespace {

/// One object, which stays in the processor's first cache, or so many that they do not, in no order.
std::vector<fm::ptr<node>> reached(const benchmark::State& state) {
  auto nodes = make_nodes(resident_heap(), static_cast<std::size_t>(state.range(0)));
  std::shuffle(nodes.begin(), nodes.end(), std::mt19937_64(1));
  return nodes;
}

void handle_copy(benchmark::State& state) {
  const fm::ptr<node> one = resident_heap().make<node>();
  for (auto _ : state) {
    fm::ptr<node> again(one);
    benchmark::DoNotOptimize(again);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_copy)->Name("handle/copy");

void handle_copy_marking(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), 4096);
  marking now;
  std::size_t i = 0;
  constexpr int batch = 1 << 14;
  while (state.KeepRunningBatch(batch)) {
    for (int n = 0; n < batch; ++n) {
      fm::ptr<node> again(nodes[i++ % nodes.size()]);
      benchmark::DoNotOptimize(again);
    }
    state.PauseTiming();
    now.discard_logs();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_copy_marking)->Name("handle/copy_marking");

void handle_move(benchmark::State& state) {
  fm::ptr<node> one = resident_heap().make<node>(), other;
  while (state.KeepRunningBatch(2)) {
    other = std::move(one);
    benchmark::DoNotOptimize(other);
    one = std::move(other);
    benchmark::DoNotOptimize(one);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_move)->Name("handle/move");

void handle_assign(benchmark::State& state) {
  const auto nodes = make_nodes(resident_heap(), 2);
  fm::ptr<node> one = nodes[0];
  std::size_t i = 0;
  for (auto _ : state) {
    one = nodes[++i & 1];
    benchmark::DoNotOptimize(one);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_assign)->Name("handle/assign");

void handle_weak_make(benchmark::State& state) {
  const fm::ptr<node> one = resident_heap().make<node>();
  for (auto _ : state) {
    fm::weak<node> w(one);
    benchmark::DoNotOptimize(w);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_weak_make)->Name("handle/weak_make");

void handle_weak_lock(benchmark::State& state) {
  const fm::ptr<node> one = resident_heap().make<node>();
  const fm::weak<node> w(one);
  for (auto _ : state) {
    fm::ptr<node> locked = w.lock();
    benchmark::DoNotOptimize(locked);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_weak_lock)->Name("handle/weak_lock");

void handle_arrow(benchmark::State& state) {
  const auto nodes = reached(state);
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(nodes[i]->value);
    if (++i == nodes.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_arrow)->Name("handle/arrow")->ArgName("objects")->Arg(1)->Arg(65536);

void handle_get_in_scope(benchmark::State& state) {
  const auto nodes = reached(state);
  const fm::scope s;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(nodes[i].get(s)->value);
    if (++i == nodes.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_get_in_scope)->Name("handle/get_in_scope")->ArgName("objects")->Arg(1)->Arg(65536);

void handle_read_pin(benchmark::State& state) {
  const auto nodes = reached(state);
  std::size_t i = 0;
  for (auto _ : state) {
    const auto pin = nodes[i].read();
    benchmark::DoNotOptimize(pin->value);
    if (++i == nodes.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_read_pin)->Name("handle/read_pin")->ArgName("objects")->Arg(1)->Arg(65536);

void handle_write_pin(benchmark::State& state) {
  const auto nodes = reached(state);
  std::size_t i = 0;
  for (auto _ : state) {
    const auto pin = nodes[i].write();
    pin->value += 1;
    benchmark::ClobberMemory();
    if (++i == nodes.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_write_pin)->Name("handle/write_pin")->ArgName("objects")->Arg(1)->Arg(65536);

/// Each step loads a reference and reaches what it names: a chain of dependent loads.
void handle_walk(benchmark::State& state) {
  const auto count = state.range(0);
  const auto nodes = make_nodes(resident_heap(), static_cast<std::size_t>(count));
  while (state.KeepRunningBatch(count)) {
    const fm::scope s;
    std::uint64_t sum = 0;
    for (const node* n = nodes.back().get(s); n != nullptr; n = n->next.get(s)) sum += n->value;
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(handle_walk)->Name("handle/walk")->ArgName("objects")->Arg(256)->Arg(65536);

}  // namespace
}  // namespace fm::micro
