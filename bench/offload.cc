// What tracing on the agents gains: programs that collect while they run, against the same with the compute node tracing
// through its cache; and against themselves with everything local. Both are small, over shm; and once more with heaps of
// 0.4 and 1 GiB over tcp and 4% of headroom, nearer to where the papers have it. PageRank over an RMAT graph, with a managed list of
// predecessors for each vertex or an object for 8 KiB of them, whose ranks are a new vector in every iteration; and a server that reads and
// updates rows in a map for 16 clients at a time, where an update leaves a dead object.
#include "heap/heap_core.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <ranges>
#include <thread>

#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;
using fm::detail::tracing;

fm::cycle_report collect(fm::heap& h) {
  fm::cycle_report r = h.collect("bench");
  if (!r.ok()) throw fm::error(r.status, r.failure);
  return r;
}

// ---- PageRank ----

using edge_list = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

edge_list rmat(unsigned scale, std::uint64_t per_vertex) {
  edge_list edges(per_vertex << scale);
  random_source random(5);
  for (auto& [from, to] : edges)
    for (unsigned bit = 0; bit < scale; ++bit) {
      const double at = random.unit();
      from = from << 1 | std::uint32_t(at >= 0.76);
      to = to << 1 | std::uint32_t((at >= 0.57 && at < 0.76) || at >= 0.95);
    }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return edges;
}

/// An object holds the predecessors of some vertices: how many those are, where each list of them begins and the last one ends,
/// and the lists. It is full with `EdgesMin` edges: with 0, each vertex has one of its own.
template <std::size_t EdgesMin>
class page_rank {
 public:
  static constexpr const char* unit = "M edges/s";

  page_rank(fm::heap& h, const edge_list& edges, unsigned scale)
      : heap_(h), in_(h), out_(h), ranks_(h), edges_(edges.size()) {
    const std::uint32_t n = std::uint32_t{1} << scale;
    std::vector<std::uint32_t> out(n), lists, ends, object;
    auto next = edges.begin();
    for (std::uint32_t v = 0; v < n; ++v) {
      for (; next != edges.end() && next->second == v; ++next) {
        lists.push_back(next->first);
        ++out[next->first];
      }
      ends.push_back(std::uint32_t(lists.size()));
      if (lists.size() < EdgesMin && v + 1 < n) continue;
      const auto k = std::uint32_t(ends.size());
      object.assign({k, k + 2});
      for (const std::uint32_t end : ends) object.push_back(k + 2 + end);
      object.insert(object.end(), lists.begin(), lists.end());
      in_.push_back(k == 1 && lists.empty() ? fm::ptr<std::uint32_t[]>()
                                            : h.array(std::span<const std::uint32_t>(object)));
      lists.clear();
      ends.clear();
    }
    out_.append(out);
    ranks_.append(std::vector<double>(n, 1 / double(n)));
  }

  /// Bytes of plain memory, which count as local.
  [[nodiscard]] std::uint64_t plain_bytes() const noexcept { return ranks_.size() * sizeof(double); }

  // Ranks do not change: each iteration makes new ones.
  double run(std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) iterate();
    return double(edges_) * double(iterations) / 1e6;
  }

 private:
  static constexpr double damping = 0.85;

  void iterate() {
    const auto n = double(ranks_.size());
    double nowhere = 0, sum_of_all = 0;
    share_.clear();
    auto out = out_.begin();
    ranks_.for_each([&](double rank) {
      const std::uint32_t successors = *out;
      ++out;
      sum_of_all += rank;
      if (successors == 0) nowhere += rank;
      share_.push_back(successors == 0 ? 0 : rank / successors);
    });
    if (std::abs(sum_of_all - 1) > 1e-6) throw fm::error(fm::errc::corrupt, "the ranks do not add up");
    const double base = (1 - damping) / n + damping * nowhere / n;
    const fm::vector<double> next(heap_);
    std::vector<double> made;
    in_.for_each_chunk([&](std::span<const fm::ref<std::uint32_t[]>> lists) {
      made.clear();
      for (const auto& list : lists) {
        const fm::scope in_place;
        const auto* in = list.get(in_place);
        if (!in) {
          made.push_back(base);
          continue;
        }
        const std::uint32_t *const at = in->data(), *const begins = at + 1;
        for (std::uint32_t v = 0; v < at[0]; ++v) {
          double sum = 0;
          for (std::uint32_t i = begins[v]; i < begins[v + 1]; ++i) sum += share_[at[i]];
          made.push_back(base + damping * sum);
        }
      }
      next.append(made);
    });
    ranks_ = next;
  }

  fm::heap& heap_;
  fm::vector<fm::ref<std::uint32_t[]>> in_;  ///< predecessors, in the order of vertices; null: of one, which has none
  fm::vector<std::uint32_t> out_;            ///< of each vertex, how many successors it has
  fm::vector<double> ranks_;
  std::vector<double> share_;  ///< what each vertex gives to a successor: read in any order, so it is in plain memory
  std::size_t edges_;
};

// ---- rows in a map ----

struct cell {
  std::uint64_t key = 0, version = 0;
  std::array<std::uint64_t, 6> more{};
};
struct row {
  std::uint64_t key = 0;
  std::array<fm::ref<cell>, 4> cells;
};

class row_map {
 public:
  static constexpr const char* unit = "K ops/s";

  row_map(fm::heap& h, std::uint64_t keys) : heap_(h), map_(h), keys_(keys, 0.99) {
    for (std::uint64_t k = 0; k < keys; ++k) {
      const auto r = h.make<row>({.key = k});
      for (std::size_t c = 0; c < 4; ++c) {
        const auto made = h.make<cell>({.key = k});
        r.write()->cells[c] = made;
      }
      map_.insert_or_assign(k, r);
    }
  }
  // A server's loop: the requests of `in_flight` clients at a time, each a task that awaits remote objects.
  double run(std::uint64_t operations) {
    fm::run_all(std::views::iota(std::uint64_t{0}, operations) | std::views::transform([this](std::uint64_t) {
                  const std::uint64_t key = keys_(random_);
                  return serve(key, random_.next());
                }),
                in_flight);
    return double(operations) / 1e3;
  }
  [[nodiscard]] std::uint64_t plain_bytes() const noexcept { return 0; }

 private:
  static constexpr std::size_t in_flight = 16;

  fm::task<> serve(std::uint64_t key, std::uint64_t bits) {
    const fm::ptr<row> found = map_.find(key);
    const auto r = co_await found.fetch();
    if (r->key != key) throw fm::error(fm::errc::corrupt, "a row is another, or gone");
    const fm::ref<cell>& c = r->cells[bits >> 1 & 3];
    const auto was = co_await c.fetch();
    if (was->key != key) throw fm::error(fm::errc::corrupt, "a cell is another");
    if ((bits & 1) == 0) co_return;
    const fm::ptr<cell> fresh = heap_.make<cell>({.key = key, .version = was->version + 1});
    found.write()->cells[bits >> 1 & 3] = fresh;
  }

  fm::heap& heap_;
  fm::hash_map<std::uint64_t, fm::ref<row>> map_;
  zipf_keys keys_;
  random_source random_{3};
};

// ---- sides ----

struct side_options {
  std::uint64_t cache = 0;
  std::uint64_t every = 0;  ///< bytes allocated between two cycles
  double share = 1;         ///< of a core, for the owner's part of a cycle
  bool tell = false;
  tracing who = tracing::agents;
  std::string transport, memory;
};

/// A heap with an agent of its own and a program over it.
template <class Work>
class side {
 public:
  template <class Make>
  side(program& p, const std::string& binary, const side_options& o, Make&& make)
      : agent_(p, binary, o.transport == "tcp" ? "tcp://127.0.0.1:0" : "shm://", o.memory),
        heap_({.cache = o.cache,
               .agents = {agent_.url()},
               .collect = true,
               .collect_every = o.every,
               .collect_share = o.share}),
        tell_(o.tell) {
    heap_.core().gc().trace_by(o.who);
    work_ = make(heap_);
    collect(heap_);
  }
  /// Units a second. Ends with an untimed cycle, so that none is under way when the other side runs.
  turn run(std::uint64_t amount) {
    const fm::heap_stats before = heap_.stats();
    const std::uint64_t begin = now_ns();
    const double done = work_->run(amount);
    const double ms = double(now_ns() - begin) * 1e-6;
    const turn t{done / (ms * 1e-3), {}, 0};
    const fm::heap_stats s = heap_.stats();
    cycles = s.collections - before.collections;
    if (cycles != 0) last = s.last_cycle;
    if (tell_) tell(before, s, ms);
    collect(heap_);
    return t;
  }
  /// What a turn was made of.
  static void tell(const fm::heap_stats& a, const fm::heap_stats& b, double ms) {
    const auto k = [](std::uint64_t n) { return double(n) * 1e-3; };
    std::fprintf(
        stderr,
        "  %.1f ms: %.1fK misses (%.1f ms), %.1fK prefetches, %.1fK neighbours (%.1fK used), %.1fK touches (%.1fK "
        "moved), "
        "%.1fK dropped, %.1fK written, %.1f MiB fetched, %.1f MiB written, %.1fK allocated, %lu stalls, %lu cycles\n",
        ms, k(b.misses - a.misses), double(b.miss_ns.sum_ns - a.miss_ns.sum_ns) * 1e-6, k(b.prefetches - a.prefetches),
        k(b.elastic_installs - a.elastic_installs), k(b.elastic_touches - a.elastic_touches), k(b.touches - a.touches),
        k(b.relocations - a.relocations), k(b.dropped_objects - a.dropped_objects),
        k(b.written_objects - a.written_objects), double(b.fetched_bytes - a.fetched_bytes) / (1 << 20),
        double(b.written_bytes - a.written_bytes) / (1 << 20), k(b.allocated_objects - a.allocated_objects),
        b.stalls_for_memory - a.stalls_for_memory, b.collections - a.collections);
  }
  turn run_while_collecting(std::uint64_t amount) {
    std::atomic<bool> stop{false};
    std::thread collecting([&] {
      while (!stop.load()) (void)heap_.collect("always");
    });
    const std::uint64_t begin = now_ns();
    const double done = work_->run(amount);
    turn t{done / (double(now_ns() - begin) * 1e-9), {}, 0};
    stop = true;
    collecting.join();
    return t;
  }
  fm::cycle_report last;     ///< of those that started by themselves
  std::uint64_t cycles = 0;  ///< in the last turn

 private:
  counted_agent agent_;
  fm::heap heap_;
  bool tell_;
  std::unique_ptr<Work> work_;
};

/// What the program's objects take after it was built.
struct live_bytes {
  std::uint64_t home = 0, cached = 0;  ///< as home copies; as frames
  std::uint64_t plain = 0;             ///< plain memory of the program, which is local
};
template <class Make>
live_bytes measure_live(Make&& make) {
  fm::heap h({.cache = std::uint64_t{4} << 30, .collect = false});
  const auto work = make(h);
  collect(h);
  live_bytes live;
  live.plain = work->plain_bytes();
  for (const fm::type_stats& t : h.stats(fm::detail_level::types).types) {
    live.home += t.bytes;
    live.cached += t.bytes + t.objects * 24;  // prefix, and rounding to 16
  }
  return live;
}

struct goals {
  double local, offloaded, all_local;
};
constexpr goals all_goals[] = {{0.50, 1.75, 1.08}, {0.25, 2.57, 1.32}, {0.13, 4.1, 0}};

struct settings {
  std::string binary;
  double headroom = 0.2, share = 1;
  std::uint64_t scale = 0;
  bool tell = false;
  int rounds = 3;
  std::string transport = "shm", memory = "2GiB";  ///< memory of each side's agent
};

/// As in the papers: a heap that is much larger than a processor's caches, on another machine, and collected often.
settings large(settings s) {
  s.transport = "tcp";
  s.memory = "4GiB";
  s.headroom = 0.04;
  s.rounds = 2;  // of long turns, because a cycle takes seconds
  return s;
}

template <class Work, class Make>
void compare_all(program& p, const settings& set, const std::string& name, std::uint64_t amount, Make&& make) {
  // Blocks are so few objects that there is nothing to trace.
  const bool offloaded = name != "pagerank_blocks" && p.wants(name + "_offloaded");
  const bool far = set.transport == "shm" && p.wants(name + "_far");
  const bool cycles = name == "pagerank" && p.wants(name + "_while_cycles_run");
  if (!offloaded && !far && !cycles) return;
  const live_bytes live = measure_live(make);
  const auto every = std::uint64_t(double(live.home) * set.headroom);
  const auto build = [&](std::uint64_t cache, tracing who) {
    return std::make_unique<side<Work>>(
        p, set.binary, side_options{cache, every, set.share, set.tell, who, set.transport, set.memory}, make);
  };
  // As in the papers, local memory is a share of the heap that the collector keeps to: what is live, and what is allocated
  // until the next cycle.
  const double heap_bytes = double(live.cached) * (1 + set.headroom);
  // Nothing leaves this cache; its collector has this machine only.
  const auto local = far ? build(std::max<std::uint64_t>(live.cached * 16, 64 << 20), tracing::compute_node) : nullptr;
  for (const goals& g : all_goals) {
    const double for_cache = heap_bytes * g.local - double(live.plain);
    const auto cache = std::uint64_t(std::max(for_cache, double(1 << 20)));
    const std::vector<std::pair<std::string, std::string>> parameters{
        {"transport", set.transport},
        {"local", std::to_string(int(g.local * 100)) + "%"},
        {"of", std::to_string(std::uint64_t(heap_bytes) >> 20) + " MiB"},
        {"live", std::to_string(live.cached >> 20) + " MiB"},
        {"a cycle every", std::to_string(int(set.headroom * 100)) + "% of that"}};
    const auto ours = build(cache, tracing::agents);
    const auto run = [&](side<Work>& s) { return [&s, amount] { return s.run(amount); }; };
    if (offloaded) {
      const auto peer = build(cache, tracing::compute_node);
      p.compare({name + "_offloaded",
                 parameters,
                 Work::unit,
                 {goal_kind::ratio_at_least, g.offloaded},
                 "the compute node traces"},
                run(*ours), run(*peer), set.rounds);
      for (const side<Work>* each : {ours.get(), peer.get()})
        std::fprintf(stderr, "%s: %lu cycles in the last turn; %s\n", each == peer.get() ? "peer" : "ours",
                     each->cycles, each->last.text().c_str());
    }
    if (far && g.all_local != 0) {
      // A slowdown: the other way round, the time for the same work.
      const auto slow = [&](side<Work>& s) {
        return [&s, amount] {
          turn t = s.run(amount);
          t.value = 1e3 / t.value;
          return t;
        };
      };
      p.compare({name + "_far",
                 parameters,
                 name == "mix" ? "us/op" : "ns/edge",
                 {goal_kind::ratio_at_most, g.all_local},
                 "everything local"},
                slow(*ours), slow(*local), set.rounds);
    }
    if (cycles && g.local == 0.25) {
      const auto invert = [](turn t) {
        t.value = 1e3 / t.value;
        return t;
      };
      p.compare(
          {"pagerank_while_cycles_run", parameters, "ns/edge", {goal_kind::ratio_at_most, 1.10}, "no cycle asked for"},
          [&] { return invert(ours->run_while_collecting(amount)); }, [&] { return invert(ours->run(amount)); },
          set.rounds);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  program p("offload",
            "Programs that collect with agents that trace, against tracing on the compute node and all local");
  settings set;
  p.option("--agent", set.binary, "the farmem-agent to run");
  p.option("--headroom", set.headroom, "bytes allocated between two cycles, as a share of the live bytes");
  p.option("--share", set.share, "heap_options::collect_share of all sides; at 1 none puts its cycles off");
  p.option("--tell", set.tell, "print what every turn was made of");
  p.option("--scale", set.scale, "of the RMAT graph; 0: 18, or 12 with --quick");
  p.parse(argc, argv);
  return p.run([&] {
    const auto scale = unsigned(set.scale != 0 ? set.scale : p.sized<std::uint64_t>(18, 12));
    const edge_list edges = rmat(scale, 16);
    compare_all<page_rank<0>>(p, set, "pagerank", 10,
                              [&](fm::heap& h) { return std::make_unique<page_rank<0>>(h, edges, scale); });
    compare_all<page_rank<2048>>(p, set, "pagerank_blocks", 10,
                                 [&](fm::heap& h) { return std::make_unique<page_rank<2048>>(h, edges, scale); });
    compare_all<row_map>(p, set, "mix", p.sized<std::uint64_t>(1'000'000, 100'000), [&](fm::heap& h) {
      return std::make_unique<row_map>(h, p.sized<std::uint64_t>(50'000, 8'000));
    });
    compare_all<row_map>(p, large(set), "mix_large", p.sized<std::uint64_t>(5'000'000, 100'000), [&](fm::heap& h) {
      return std::make_unique<row_map>(h, p.sized<std::uint64_t>(2'200'000, 8'000));
    });
    const auto scale_of_large = p.sized(22u, 12u);
    const edge_list many = p.wants("pagerank_large_offloaded") ? rmat(scale_of_large, 16) : edge_list();
    compare_all<page_rank<0>>(p, large(set), "pagerank_large", 3,
                              [&](fm::heap& h) { return std::make_unique<page_rank<0>>(h, many, scale_of_large); });
  });
}
