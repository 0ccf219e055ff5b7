// Writing a graph into parts and reading it back (channel/graph/graph_writer.h, channel/graph/graph_reader.h), an object's share each. The
// parts go to memory and come from there: no channel, no other process.
#include "channel/graph/graph_reader.h"
#include "channel/graph/graph_writer.h"
#include "channel/path/channel_messages.h"
#include "fixture.h"

namespace fm::micro {
namespace {

constexpr benchmark::IterationCount objects = 1 << 13;
constexpr detail::graph_limits limits{1 << 20, 1 << 28};

struct tree {
  std::uint64_t value = 0;
  fm::ref<tree> left, right;
};

fm::ptr<node> make_graph(fm::heap& h, node*) { return make_nodes(h, objects).back(); }

/// Complete, laid out in the order of its values.
fm::ptr<tree> make_graph(fm::heap& h, tree*) {
  std::vector<fm::ptr<tree>> all(objects);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = h.make<tree>({.value = i});
    if (i == 0) continue;
    const auto parent = all[(i - 1) / 2].write();
    (i % 2 == 1 ? parent->left : parent->right) = all[i];
  }
  return all[0];
}

/// Parts in memory, which are used again for every graph.
class part_memory final : public detail::part_sink {
 public:
  std::span<char> next(std::size_t used) override {
    if (current_ != none) used_[current_] = used;
    if (++current_ == parts_.size()) {
      parts_.emplace_back(detail::channel_wire::part_bytes_max / 8);
      used_.push_back(0);
    }
    return {reinterpret_cast<char*>(parts_[current_].data()), parts_[current_].size() * 8};
  }
  void begin() noexcept { current_ = none; }
  void end(std::size_t used) noexcept {
    if (current_ != none) used_[current_] = used;
  }
  [[nodiscard]] std::size_t count() const noexcept { return current_ + 1; }
  [[nodiscard]] std::span<const std::byte> part(std::size_t i) const noexcept {
    return std::as_bytes(std::span(parts_[i])).first(used_[i]);
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::vector<std::uint64_t>> parts_;
  std::vector<std::size_t> used_;
  std::size_t current_ = none;
};

class memory_source final : public detail::part_source {
 public:
  memory_source(const part_memory& parts, std::uint64_t count) : parts_(parts), objects_(count) {}
  part next() override {
    const std::size_t i = at_++;
    return {parts_.part(i), at_ == parts_.count(), objects_};
  }

 private:
  const part_memory& parts_;
  const std::uint64_t objects_;
  std::size_t at_ = 0;
};

/// A writer's counts of one graph.
struct written {
  std::uint64_t objects = 0, bytes = 0;
};

template <class T>
written write_graph(const fm::ptr<T>& root, bool acyclic, part_memory& to) {
  to.begin();
  detail::graph_writer w(detail::schema_of<T>(), limits, acyclic, to);
  w.write(root.slot());
  to.end(w.used());
  return {w.objects(), w.bytes()};
}

/// `acyclic`: the graph is said to be a tree, so that nobody looks objects up.
template <class T>
void graph_write(benchmark::State& state) {
  const fm::ptr<T> root = make_graph(resident_heap(), static_cast<T*>(nullptr));
  const bool acyclic = state.range(0) != 0;
  part_memory parts;
  written w;
  while (state.KeepRunningBatch(objects)) w = write_graph(root, acyclic, parts);
  if (w.objects != objects) state.SkipWithError("the graph has another number of objects");
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() / objects * static_cast<std::int64_t>(w.bytes));
}
BENCHMARK_TEMPLATE(graph_write, node)->Name("graph/write_list")->ArgName("acyclic")->Arg(0)->Arg(1);
BENCHMARK_TEMPLATE(graph_write, tree)->Name("graph/write_tree")->ArgName("acyclic")->Arg(0)->Arg(1);

template <class T>
void graph_read(benchmark::State& state) {
  fm::heap& h = resident_heap();
  const bool acyclic = state.range(0) != 0;
  part_memory parts;
  const written w = write_graph(make_graph(h, static_cast<T*>(nullptr)), acyclic, parts);
  while (state.KeepRunningBatch(objects)) {
    state.PauseTiming();
    collect_garbage(h);
    memory_source source(parts, w.objects);
    state.ResumeTiming();
    detail::graph_reader r(h.cache(), detail::schema_of<T>(), limits, acyclic, source);
    benchmark::DoNotOptimize(r.read(source.next()));
    if (r.objects() != w.objects) state.SkipWithError("the graph has another number of objects");
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() / objects * static_cast<std::int64_t>(w.bytes));
}
BENCHMARK_TEMPLATE(graph_read, node)->Name("graph/read_list")->ArgName("acyclic")->Arg(0)->Arg(1);
BENCHMARK_TEMPLATE(graph_read, tree)->Name("graph/read_tree")->ArgName("acyclic")->Arg(0)->Arg(1);

/// One array without references: its bytes are copied.
void graph_write_array(benchmark::State& state) {
  const fm::ptr<double[]> root = resident_heap().array<double>(static_cast<std::size_t>(state.range(0)));
  part_memory parts;
  for (auto _ : state) benchmark::DoNotOptimize(write_graph(root, true, parts));
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(sizeof(double)));
}
BENCHMARK(graph_write_array)->Name("graph/write_array")->ArgName("doubles")->Arg(16)->Arg(1024)->Arg(1 << 16);

void graph_read_array(benchmark::State& state) {
  fm::heap& h = resident_heap();
  part_memory parts;
  const auto doubles = static_cast<std::size_t>(state.range(0));
  const written w = write_graph(h.array<double>(doubles), true, parts);
  const auto batch = batch_of(state.range(0) * static_cast<std::int64_t>(sizeof(double)));
  while (state.KeepRunningBatch(batch)) {
    for (benchmark::IterationCount i = 0; i < batch; ++i) {
      memory_source source(parts, w.objects);
      detail::graph_reader r(h.cache(), detail::schema_of<double[]>(), limits, true, source);
      benchmark::DoNotOptimize(r.read(source.next()));
    }
    state.PauseTiming();
    collect_garbage(h);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(sizeof(double)));
}
BENCHMARK(graph_read_array)->Name("graph/read_array")->ArgName("doubles")->Arg(16)->Arg(1024)->Arg(1 << 16);

}  // namespace
}  // namespace fm::micro
