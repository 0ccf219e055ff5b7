// Operations of ordered maps whose nodes are all resident, beside the same of a std::map behind a std::shared_mutex.
#include <map>
#include <mutex>
#include <ranges>
#include <shared_mutex>

#include "fixture.h"

namespace fm::micro {
namespace {

using number = std::uint64_t;
constexpr number elements = 1 << 20;
constexpr number scanned = 100;

/// Visits all numbers below `elements`, scattered: the order in which maps are filled.
number scattered(number i) { return i * 0x9e3779b1 % elements; }
/// Some number below `elements`: what is asked for is not in the order in which memory was allocated.
number some(number i) { return detail::mix_hash(i) % elements; }

/// The peer: readers share the lock.
class locked_map {
 public:
  std::optional<number> find(number k) const {
    const std::shared_lock lock(mutex_);
    const auto at = map_.find(k);
    return at == map_.end() ? std::nullopt : std::optional(at->second);
  }
  void insert_or_assign(number k, number v) {
    const std::lock_guard lock(mutex_);
    map_.insert_or_assign(k, v);
  }
  bool erase(number k) {
    const std::lock_guard lock(mutex_);
    return map_.erase(k) != 0;
  }
  number sum(number first, number last) const {
    const std::shared_lock lock(mutex_);
    number n = 0;
    for (auto at = map_.lower_bound(first); at != map_.end() && at->first < last; ++at) n += at->second;
    return n;
  }
  template <class R>
  void bulk_load(R&& sorted) {
    std::map<number, number> all;
    for (const auto& [k, v] : sorted) all.emplace_hint(all.end(), k, v);
    const std::lock_guard lock(mutex_);
    map_.swap(all);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<number, number> map_;
};
struct managed_map : fm::map<number, number> {
  managed_map() : fm::map<number, number>(resident_heap()) {}
  [[nodiscard]] number sum(number first, number last) const {
    number n = 0;
    for (const auto& [k, v] : this->range(first, last)) n += v;
    return n;
  }
};

/// A map of all numbers, made in the order that a program would: scattered.
template <class Map>
Map& filled() {
  static std::unique_ptr<Map> all;
  static std::once_flag once;
  std::call_once(once, [] {
    all = std::make_unique<Map>();
    for (number i = 0; i < elements; ++i) all->insert_or_assign(scattered(i), i);
    collect_garbage(resident_heap());
    at_close([] { all.reset(); });
  });
  return *all;
}

template <class Map>
void find(benchmark::State& state) {
  const Map& m = filled<Map>();
  number i = static_cast<number>(state.thread_index()) * elements / 2;
  for (auto _ : state) benchmark::DoNotOptimize(m.find(some(i++)));
  state.SetItemsProcessed(state.iterations());
}
template <class Map>
void assign(benchmark::State& state) {
  Map& m = filled<Map>();
  number i = static_cast<number>(state.thread_index()) * elements / 2;
  for (auto _ : state) {
    m.insert_or_assign(some(i), i);
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
/// Nine lookups for one change.
template <class Map>
void mixed(benchmark::State& state) {
  Map& m = filled<Map>();
  number i = static_cast<number>(state.thread_index()) * elements / 2;
  for (auto _ : state) {
    if (i % 10 == 0)
      m.insert_or_assign(some(i), i);
    else
      benchmark::DoNotOptimize(m.find(some(i)));
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
template <class Map>
void erase_insert(benchmark::State& state) {
  Map& m = filled<Map>();
  number i = 0;
  for (auto _ : state) {
    const number k = some(i++);
    benchmark::DoNotOptimize(m.erase(k));
    m.insert_or_assign(k, k);
  }
  state.SetItemsProcessed(state.iterations());
}
template <class Map>
void scan(benchmark::State& state) {
  const Map& m = filled<Map>();
  number i = 0;
  for (auto _ : state) {
    const number k = some(i++);
    benchmark::DoNotOptimize(m.sum(k, k + scanned));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(scanned));
}
template <class Map>
void insert(benchmark::State& state) {
  constexpr benchmark::IterationCount batch = 1 << 18;
  while (state.KeepRunningBatch(batch)) {
    state.PauseTiming();
    auto m = std::make_unique<Map>();
    state.ResumeTiming();
    for (number i = 0; i < batch; ++i) m->insert_or_assign(some(i), i);
    state.PauseTiming();
    m.reset();
    collect_garbage(resident_heap());
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}
template <class Map>
void bulk_load(benchmark::State& state) {
  constexpr benchmark::IterationCount batch = 1 << 18;
  const auto sorted = std::views::iota(number{0}, static_cast<number>(batch)) |
                      std::views::transform([](number i) { return std::pair(i, i); });
  while (state.KeepRunningBatch(batch)) {
    state.PauseTiming();
    auto m = std::make_unique<Map>();
    state.ResumeTiming();
    m->bulk_load(sorted);
    state.PauseTiming();
    m.reset();
    collect_garbage(resident_heap());
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}

#define FM_MICRO_PAIR(operation)                              \
  BENCHMARK(operation<managed_map>)->Name("map/" #operation); \
  BENCHMARK(operation<locked_map>)->Name("map/" #operation "/std")
#define FM_MICRO_THREADS(operation)                                                                  \
  BENCHMARK(operation<managed_map>)->Name("map/" #operation)->Threads(1)->Threads(2)->UseRealTime(); \
  BENCHMARK(operation<locked_map>)->Name("map/" #operation "/std")->Threads(1)->Threads(2)->UseRealTime()

FM_MICRO_THREADS(find);
FM_MICRO_THREADS(assign);
FM_MICRO_THREADS(mixed);
FM_MICRO_PAIR(erase_insert);
FM_MICRO_PAIR(insert);
FM_MICRO_PAIR(scan);
FM_MICRO_PAIR(bulk_load);

}  // namespace
}  // namespace fm::micro
