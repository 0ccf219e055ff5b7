// Sections of epochs, the scopes that programs see of them, and what their other side costs: a stamp, an advance, a pause.
#include "fixture.h"

namespace fm::micro {
namespace {

void section_outer(benchmark::State& state) {
  for (auto _ : state) {
    detail::epochs::enter();
    benchmark::ClobberMemory();
    detail::epochs::leave();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(section_outer)->Name("section/outer");

void section_nested(benchmark::State& state) {
  const detail::section outer;
  for (auto _ : state) {
    detail::epochs::enter();
    benchmark::ClobberMemory();
    detail::epochs::leave();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(section_nested)->Name("section/nested");

void scope_outer(benchmark::State& state) {
  for (auto _ : state) {
    const fm::scope s;
    benchmark::DoNotOptimize(s);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(scope_outer)->Name("scope/outer");

void scope_nested(benchmark::State& state) {
  const fm::scope outer;
  for (auto _ : state) {
    const fm::scope s;
    benchmark::DoNotOptimize(s);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(scope_nested)->Name("scope/nested");

void scope_renew(benchmark::State& state) {
  fm::scope s;
  for (auto _ : state) s.renew();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(scope_renew)->Name("scope/renew");

void epoch_stamp(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(detail::epochs::stamp());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(epoch_stamp)->Name("epoch/stamp");

/// A stamp, and the look at all threads that finds it passed.
void epoch_pass(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(detail::epochs::try_pass(detail::epochs::stamp()));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(epoch_pass)->Name("epoch/pass");

/// With nobody inside of a section for long.
void epoch_pause(benchmark::State& state) {
  resident_heap();
  for (auto _ : state)
    if (!detail::epochs::pause(
            std::chrono::seconds(10), [](void*) {}, nullptr))
      state.SkipWithError("threads could not be stopped");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(epoch_pause)->Name("epoch/pause")->UseRealTime();

}  // namespace
}  // namespace fm::micro
