// The fixtures of the micro benchmarks: the object that they reach, the heaps that they reach it in, and marking without a cycle.
//
// Invariant: a heap is opened once, by the first benchmark that needs it. resident_heap and remote_heap neither collect nor evict by
// themselves; a benchmark finds them without the objects of earlier ones. Included by the files of this folder only.
#pragma once

#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <cstdint>
#include <farmem/farmem.h>
#include <vector>

namespace fm::micro {

/// An object of 64 bytes with two references.
struct node {
  std::uint64_t value = 0;
  fm::ref<node> next, other;
  std::array<std::uint64_t, 5> rest{};
};

/// Everything in it stays resident: its cache is larger than all that a benchmark makes. Collects first; once a benchmark.
fm::heap& resident_heap();
/// For misses and evictions: one fetch brings one object. Collects first; once a benchmark.
fm::heap& remote_heap();
/// For allocation: its collector runs when it is due. Closed by `marking`, since one heap of a process marks at a time.
fm::heap& collected_heap();
/// Closes all of them. No handle to their objects may be used afterwards.
void close_heaps() noexcept;
/// Has close_heaps call `f` first: it lets objects go that a benchmark keeps for others.
void at_close(void (*f)());

/// `n` nodes of `h`, numbered by their values, each with the one before as its `next`.
std::vector<fm::ptr<node>> make_nodes(fm::heap& h, std::size_t n);

/// Frees what earlier batches of a benchmark have left. With the clock stopped. Throws the error that ended the collection.
void collect_garbage(fm::heap& h);

/// How many objects with payloads of `bytes` to make between two collections: so many that the collections take less time than
/// the making, and so few that they fit in the cache of resident_heap beside everything else.
constexpr benchmark::IterationCount batch_of(std::int64_t bytes) {
  constexpr std::int64_t together = 16 << 20, objects_max = 1 << 16;
  return std::clamp(together / bytes, std::int64_t{1}, objects_max);
}

/// While it lives, threads log what they overwrite, as they do while a cycle marks; nobody traces.
class marking {
 public:
  marking();
  ~marking();
  marking(const marking&) = delete;
  marking& operator=(const marking&) = delete;
  /// Throws the full logs away, which a cycle would take.
  void discard_logs();
};

}  // namespace fm::micro
