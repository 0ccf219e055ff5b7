// Operations of containers whose chunks, pages and blocks are all resident.
#include <numeric>
#include <string>

#include "fixture.h"

namespace fm::micro {
namespace {

using number = std::uint64_t;
constexpr benchmark::IterationCount elements = 1 << 16;

fm::vector<number> filled_vector() {
  std::vector<number> values(elements);
  std::iota(values.begin(), values.end(), number{0});
  fm::vector<number> v(resident_heap());
  v.append(values);
  return v;
}

/// Visits all numbers below `elements`, scattered.
number scattered(number i) { return i * 0x9e3779b1 % elements; }

// ---- vector ----

void vector_push_back(benchmark::State& state) {
  fm::heap& h = resident_heap();
  while (state.KeepRunningBatch(elements)) {
    state.PauseTiming();
    collect_garbage(h);
    fm::vector<number> v(h);
    state.ResumeTiming();
    for (number i = 0; i < elements; ++i) v.push_back(i);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(vector_push_back)->Name("vector/push_back");

void vector_push_pop(benchmark::State& state) {
  const fm::vector<number> v = filled_vector();
  for (auto _ : state) {
    v.push_back(1);
    v.pop_back();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(vector_push_pop)->Name("vector/push_and_pop");

void vector_at(benchmark::State& state) {
  const fm::vector<number> v = filled_vector();
  number i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(v.at(scattered(i++)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(vector_at)->Name("vector/at");

void vector_set(benchmark::State& state) {
  const fm::vector<number> v = filled_vector();
  number i = 0;
  for (auto _ : state) {
    v.set(scattered(i), i);
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(vector_set)->Name("vector/set");

void vector_iterate(benchmark::State& state) {
  const fm::vector<number> v = filled_vector();
  while (state.KeepRunningBatch(elements)) benchmark::DoNotOptimize(std::accumulate(v.begin(), v.end(), number{0}));
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sizeof(number)));
}
BENCHMARK(vector_iterate)->Name("vector/iterate");

void vector_chunks(benchmark::State& state) {
  const fm::vector<number> v = filled_vector();
  while (state.KeepRunningBatch(elements)) {
    number sum = 0;
    v.for_each_chunk([&](std::span<const number> c) { sum = std::accumulate(c.begin(), c.end(), sum); });
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sizeof(number)));
}
BENCHMARK(vector_chunks)->Name("vector/for_each_chunk");

// ---- hash_map ----

fm::hash_map<number, number> filled_map() {
  fm::hash_map<number, number> m(resident_heap());
  for (number k = 0; k < elements; ++k) m.insert_or_assign(k, k);
  return m;
}

void map_find(benchmark::State& state) {
  const auto m = filled_map();
  number i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(m.find(scattered(i++)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_find)->Name("hash_map/find");

void map_find_absent(benchmark::State& state) {
  const auto m = filled_map();
  number i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(m.contains(elements + scattered(i++)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_find_absent)->Name("hash_map/find_absent");

void map_insert(benchmark::State& state) {
  fm::heap& h = resident_heap();
  while (state.KeepRunningBatch(elements)) {
    state.PauseTiming();
    collect_garbage(h);
    fm::hash_map<number, number> m(h);
    state.ResumeTiming();
    for (number k = 0; k < elements; ++k) m.insert_or_assign(k, k);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_insert)->Name("hash_map/insert");

void map_assign(benchmark::State& state) {
  const auto m = filled_map();
  number i = 0;
  for (auto _ : state) {
    m.insert_or_assign(scattered(i), i);
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_assign)->Name("hash_map/assign");

void map_update(benchmark::State& state) {
  const auto m = filled_map();
  number i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(m.update(scattered(i++), [](number& v) { ++v; }));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_update)->Name("hash_map/update");

void map_erase_insert(benchmark::State& state) {
  const auto m = filled_map();
  number i = 0;
  for (auto _ : state) {
    const number k = scattered(i++);
    benchmark::DoNotOptimize(m.erase(k));
    m.insert_or_assign(k, k);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(map_erase_insert)->Name("hash_map/erase_and_insert");

// ---- queue ----

/// `waiting` elements stay in the queue: with none, its only block is used again and again.
void queue_push_pop(benchmark::State& state) {
  fm::heap& h = resident_heap();
  fm::queue<number> q(h);
  for (std::int64_t i = 0; i < state.range(0); ++i) q.push(1);
  constexpr int batch = 1 << 16;
  while (state.KeepRunningBatch(batch)) {
    for (int i = 0; i < batch; ++i) {
      q.push(1);
      benchmark::DoNotOptimize(q.pop());
    }
    state.PauseTiming();
    collect_garbage(h);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(queue_push_pop)->Name("queue/push_and_pop")->ArgName("waiting")->Arg(0)->Arg(4096);

// ---- string ----

void string_make(benchmark::State& state) {
  fm::heap& h = resident_heap();
  const std::string text(static_cast<std::size_t>(state.range(0)), 'x');
  const auto batch = batch_of(state.range(0));
  while (state.KeepRunningBatch(batch)) {
    for (benchmark::IterationCount i = 0; i < batch; ++i) benchmark::DoNotOptimize(h.str(text));
    state.PauseTiming();
    collect_garbage(h);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(string_make)->Name("string/make")->ArgName("bytes")->Arg(16)->Arg(256)->Arg(4096);

/// The operations that look at all of a text.
template <class Look>
void string_looks(benchmark::State& state, Look&& look) {
  const std::string text(static_cast<std::size_t>(state.range(0)), 'x');
  const fm::string s = resident_heap().str(text);
  for (auto _ : state) look(s, text);
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void string_compare(benchmark::State& state) {
  string_looks(state, [](const fm::string& s, const std::string& text) { benchmark::DoNotOptimize(s == text); });
}
BENCHMARK(string_compare)->Name("string/compare")->ArgName("bytes")->Arg(16)->Arg(256)->Arg(4096);

void string_hash(benchmark::State& state) {
  string_looks(state, [](const fm::string& s, const std::string&) { benchmark::DoNotOptimize(s.hash()); });
}
BENCHMARK(string_hash)->Name("string/hash")->ArgName("bytes")->Arg(16)->Arg(256)->Arg(4096);

void string_copy_out(benchmark::State& state) {
  string_looks(state, [](const fm::string& s, const std::string&) { benchmark::DoNotOptimize(s.str()); });
}
BENCHMARK(string_copy_out)->Name("string/copy_out")->ArgName("bytes")->Arg(16)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace fm::micro
