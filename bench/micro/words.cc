// Transitions of the HIT word (farmem/detail/barriers/word.h), one object each: the touch of a cold one, the first write to a clean one,
// the miss of a remote one by hint and by slot, eviction. The fast paths, which make none, are in handles.cc.
//
// Bits are set here by hand, where the cache would set them in the course of evicting: cold as cooling does, clean as the end of a
// write-back does. Nobody evicts meanwhile (fixture.h), and every batch undoes what it set.
#include "fixture.h"

namespace fm::micro {
namespace {

constexpr std::size_t batch_objects = 4096;

/// Runs `operate` on each of a batch of objects, after `prepare` has changed all of their words, with the clock stopped.
template <class Prepare, class Operate>
void transitions(benchmark::State& state, fm::heap& h, Prepare&& prepare, Operate&& operate) {
  const auto nodes = make_nodes(h, batch_objects);
  while (state.KeepRunningBatch(batch_objects)) {
    state.PauseTiming();
    prepare(nodes);
    state.ResumeTiming();
    for (const fm::ptr<node>& n : nodes) operate(n);
  }
  state.SetItemsProcessed(state.iterations());
}

void set_bits(const std::vector<fm::ptr<node>>& nodes, detail::word_t bits) {
  const detail::section in_section;
  for (const fm::ptr<node>& n : nodes) detail::word_at(n.slot()).fetch_or(bits, std::memory_order_acq_rel);
}

void send_home(benchmark::State& state, fm::heap& h) {
  if (h.evict_all() != fm::errc::ok) state.SkipWithError("objects did not leave the cache in time");
}

void word_touch(benchmark::State& state) {
  transitions(
      state, resident_heap(), [](const auto& nodes) { set_bits(nodes, detail::word::cold_bit); },
      [](const fm::ptr<node>& n) { benchmark::DoNotOptimize(n->value); });
}
BENCHMARK(word_touch)->Name("word/cold_to_warm");

void word_dirty(benchmark::State& state) {
  transitions(
      state, resident_heap(), [](const auto& nodes) { set_bits(nodes, detail::word::clean_bit); },
      [](const fm::ptr<node>& n) { n.write()->value = 1; });
}
BENCHMARK(word_dirty)->Name("word/clean_to_dirty");

/// From an agent in this process, which is read as a one-sided read would.
void word_miss(benchmark::State& state) {
  fm::heap& h = remote_heap();
  transitions(
      state, h, [&](const auto&) { send_home(state, h); },
      [](const fm::ptr<node>& n) { benchmark::DoNotOptimize(n->value); });
}
BENCHMARK(word_miss)->Name("word/miss_by_hint");

/// Of a slot that nothing is known of: the agent is asked, and answers with the hints of the slot's page.
void word_miss_by_slot(benchmark::State& state) {
  fm::heap& h = remote_heap();
  constexpr std::size_t pages = 32;
  const auto nodes = make_nodes(h, pages * detail::page_slots);
  while (state.KeepRunningBatch(pages)) {
    state.PauseTiming();
    send_home(state, h);
    {
      const detail::section in_section;
      for (const fm::ptr<node>& n : nodes) detail::word_at(n.slot()).store(detail::word::unknown);
    }
    state.ResumeTiming();
    for (std::size_t i = 0; i < nodes.size(); i += detail::page_slots) benchmark::DoNotOptimize(nodes[i]->value);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(word_miss_by_slot)->Name("word/miss_by_slot");

/// The time until the cache is empty, an object's share of it.
template <class Prepare>
void evictions(benchmark::State& state, Prepare&& prepare) {
  fm::heap& h = remote_heap();
  constexpr std::size_t objects = 16 * batch_objects;
  const auto nodes = make_nodes(h, objects);
  send_home(state, h);
  while (state.KeepRunningBatch(objects)) {
    state.PauseTiming();
    for (const fm::ptr<node>& n : nodes) prepare(n);
    state.ResumeTiming();
    send_home(state, h);
  }
  state.SetItemsProcessed(state.iterations());
}

void word_evict_clean(benchmark::State& state) {
  evictions(state, [](const fm::ptr<node>& n) { benchmark::DoNotOptimize(n->value); });
}
BENCHMARK(word_evict_clean)->Name("word/evict_clean")->UseRealTime();

void word_evict_dirty(benchmark::State& state) {
  evictions(state, [](const fm::ptr<node>& n) { n.write()->value += 1; });
}
BENCHMARK(word_evict_dirty)->Name("word/evict_dirty")->UseRealTime();

void word_prefetch_resident(benchmark::State& state) {
  const fm::ptr<node> one = resident_heap().make<node>();
  for (auto _ : state) benchmark::DoNotOptimize(fm::prefetch(one));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(word_prefetch_resident)->Name("word/prefetch_resident");

}  // namespace
}  // namespace fm::micro
