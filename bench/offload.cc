// What tracing on the agents gains: programs that collect while they run, against the same with the compute node tracing
// through its cache; and against themselves with everything local. PageRank over an RMAT graph whose ranks are new objects in
// every iteration, and reads and updates of rows in a map, where an update leaves a dead object.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
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

struct rank_value {
  double rank = 0, share = 0;  ///< the rank, and what each successor gets of it
  std::array<std::uint64_t, 2> more{};
};
struct vertex {
  fm::ref<rank_value> value;
  fm::ref<fm::ref<vertex>[]> in;
  std::uint64_t out_count = 0;
};

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

class page_rank {
 public:
  static constexpr const char* unit = "M edges/s";

  page_rank(fm::heap& h, const edge_list& edges, unsigned scale) : heap_(h), edges_(edges.size()) {
    const std::size_t n = std::size_t{1} << scale;
    vertices_.resize(n);
    for (auto& v : vertices_) v = h.make<vertex>({.value = h.make<rank_value>({.rank = 1 / double(n)})});
    for (std::size_t i = 0; i < edges.size();) {
      std::size_t end = i;
      while (end < edges.size() && edges[end].second == edges[i].second) ++end;
      const auto in = h.array<fm::ref<vertex>>(end - i);
      for (std::size_t k = i; k < end; ++k) {
        const fm::ptr<vertex>& from = vertices_[edges[k].first];
        ++from.write()->out_count;
        const auto w = in.write();
        (*w)[k - i] = from;
      }
      vertices_[edges[i].second].write()->in = in;
      i = end;
    }
  }

  // Each iteration makes a new value for every vertex; the old ones die.
  double run(std::uint64_t iterations) {
    const auto n = double(vertices_.size());
    for (std::uint64_t i = 0; i < iterations; ++i) {
      double nowhere = 0, sum_of_all = 0;
      each([&](const fm::ptr<vertex>& v) {
        const fm::ptr<rank_value> was = v->value;
        const std::uint64_t out = v->out_count;
        const double rank = was->rank;
        sum_of_all += rank;
        if (out == 0) nowhere += rank;
        v.write()->value = heap_.make<rank_value>({.rank = rank, .share = out == 0 ? 0 : rank / double(out)});
      });
      if (std::abs(sum_of_all - 1) > 1e-6) throw fm::error(fm::errc::corrupt, "the ranks do not add up");
      const double base = (1 - damping) / n + damping * nowhere / n;
      each([&](const fm::ptr<vertex>& v) {
        const fm::ptr<fm::ref<vertex>[]> in = v->in;
        const double sum = in ? shares(in) : 0;
        v->value.write()->rank = base + damping * sum;
      });
    }
    return double(edges_) * double(iterations) / 1e6;
  }

 private:
  static constexpr double damping = 0.85;
  static constexpr std::size_t ahead = 32;

  template <class F>
  void each(F&& f) {
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
      if (i % ahead == 0) fm::prefetch(std::span(vertices_).subspan(i, std::min(2 * ahead, vertices_.size() - i)));
      f(vertices_[i]);
    }
  }
  static double shares(const fm::ptr<fm::ref<vertex>[]>& in) {
    double sum = 0;
    const auto pin = in.read();
    const std::span<const fm::ref<vertex>> refs(pin->begin(), pin->size());
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (i % ahead == 0) fm::prefetch(refs.subspan(i, std::min(2 * ahead, refs.size() - i)));
      sum += refs[i]->value->share;
    }
    return sum;
  }

  fm::heap& heap_;
  std::vector<fm::ptr<vertex>> vertices_;
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
  double run(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::uint64_t key = keys_(random_), bits = random_.next();
      const auto found = map_.find(key);
      if (!found || (*found)->key != key) throw fm::error(fm::errc::corrupt, "a row is another, or gone");
      const fm::ptr<row> r = *found;
      const std::size_t c = bits >> 1 & 3;
      const fm::ptr<cell> was = r->cells[c];
      if (was->key != key) throw fm::error(fm::errc::corrupt, "a cell is another");
      if ((bits & 1) == 0) continue;
      const auto fresh = heap_.make<cell>({.key = key, .version = was->version + 1});
      r.write()->cells[c] = fresh;
    }
    return double(operations) / 1e3;
  }

 private:
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
  tracing who = tracing::agents;
};

/// A heap with an agent of its own and a program over it.
template <class Work>
class side {
 public:
  template <class Make>
  side(program& p, const std::string& binary, const side_options& o, Make&& make)
      : agent_(p, binary, "shm://", "2GiB"),
        heap_({.cache = o.cache,
               .agents = {agent_.url()},
               .collect = true,
               .collect_every = o.every,
               .collect_share = o.share}) {
    heap_.core().gc().trace_by(o.who);
    work_ = make(heap_);
    collect(heap_);
  }
  /// Units a second. Ends with an untimed cycle, so that none is under way when the other side runs.
  turn run(std::uint64_t amount) {
    const std::uint64_t before = heap_.stats().collections, begin = now_ns();
    const double done = work_->run(amount);
    turn t{done / (double(now_ns() - begin) * 1e-9), {}, 0};
    const fm::heap_stats s = heap_.stats();
    cycles = s.collections - before;
    if (cycles != 0) last = s.last_cycle;
    collect(heap_);
    return t;
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
  std::unique_ptr<Work> work_;
};

/// What the program's objects take after it was built.
struct live_bytes {
  std::uint64_t home = 0, cached = 0;  ///< as home copies; as frames
};
template <class Make>
live_bytes measure_live(Make&& make) {
  fm::heap h({.cache = std::uint64_t{1} << 30, .collect = false});
  const auto work = make(h);
  collect(h);
  live_bytes live;
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
  double headroom = 0.5, share = 1;
  int rounds = 3;
};

template <class Work, class Make>
void compare_all(program& p, const settings& set, const std::string& name, std::uint64_t amount, Make&& make) {
  const live_bytes live = measure_live(make);
  const auto every = std::uint64_t(double(live.home) * set.headroom);
  const auto build = [&](std::uint64_t cache, tracing who) {
    return std::make_unique<side<Work>>(p, set.binary, side_options{cache, every, set.share, who}, make);
  };
  // Nothing leaves this cache; its collector has this machine only.
  const auto local = build(std::max<std::uint64_t>(live.cached * 4, 64 << 20), tracing::compute_node);
  for (const goals& g : all_goals) {
    const auto cache = std::max<std::uint64_t>(std::uint64_t(double(live.cached) * g.local), 1 << 20);
    const std::vector<std::pair<std::string, std::string>> parameters{
        {"local", std::to_string(int(g.local * 100)) + "%"},
        {"live", std::to_string(live.cached >> 20) + " MiB"},
        {"a cycle every", std::to_string(int(set.headroom * 100)) + "% of it"}};
    const auto ours = build(cache, tracing::agents);
    const auto run = [&](side<Work>& s) { return [&s, amount] { return s.run(amount); }; };
    if (p.wants(name + "_offloaded")) {
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
    if (g.all_local != 0) {
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
                 name == "pagerank" ? "ns/edge" : "us/op",
                 {goal_kind::ratio_at_most, g.all_local},
                 "everything local"},
                slow(*ours), slow(*local), set.rounds);
    }
    if (name == "pagerank" && g.local == 0.25) {
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
  p.parse(argc, argv);
  return p.run([&] {
    const unsigned scale = p.sized(16u, 12u);
    const edge_list edges = rmat(scale, 16);
    compare_all<page_rank>(p, set, "pagerank", p.sized<std::uint64_t>(9, 9),
                           [&](fm::heap& h) { return std::make_unique<page_rank>(h, edges, scale); });
    compare_all<row_map>(p, set, "mix", p.sized<std::uint64_t>(1'000'000, 100'000), [&](fm::heap& h) {
      return std::make_unique<row_map>(h, p.sized<std::uint64_t>(50'000, 8'000));
    });
  });
}
