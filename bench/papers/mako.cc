// Mako (PLDI 2022): tables 3, 4 and 6, figures 6 to 9. The programs are its two mixes of Cassandra operations (mixes.h), and the transitive
// closure of a graph.
#include <cstdio>

#include "mixes.h"

namespace fm::bench {
namespace {

// Table 4, and 5 with it: everything resident, against plain pointers and operator new.
void translation(program& p, const std::string& binary, const mix& m) {
  const auto keys = p.sized<std::uint64_t>(100'000, 4'096), operations = p.sized<std::uint64_t>(1'000'000, 10'000);
  const row_spec spec{"mako_t4",
                      {{"program", m.name}, {"values", std::to_string(keys)}},
                      "ns",
                      {goal_kind::ratio_at_most, m.translation},
                      "plain pointers"};
  if (!p.wants(spec.name)) return;
  const counted_agent agent(p, binary, "shm://", "2GiB");
  heap h({.cache = 512ull << 20, .agents = {agent.url()}});
  managed_store managed(h, keys);
  plain_store plain(keys);
  client ours(managed, keys, m);
  client theirs(plain, keys, m);
  p.compare(
      spec, [&] { return ours.run(operations); }, [&] { return theirs.run(operations); }, 5);
}

template <std::size_t Bytes>
struct linked {
  ref<linked> next;
  std::array<std::uint64_t, Bytes / 8 - 1> more{};
};

// Table 6: words and entries, bitmaps and books of both sides, of the bytes of the objects.
template <std::size_t Bytes>
void memory(program& p, const std::string& binary, double at_most) {
  if (!p.wants("mako_t6")) return;
  const auto count = p.sized<std::size_t>(1 << 20, 1 << 17);
  const counted_agent agent(p, binary, "shm://", "2GiB");
  heap h({.cache = 16ull << 20, .agents = {agent.url()}, .collect = false});
  ptr<linked<Bytes>> all;
  for (std::size_t i = 0; i < count; ++i) all = h.make<linked<Bytes>>(all);
  if (h.evict_all() != errc::ok) throw error(errc::timed_out, "eviction");
  const verify_report v = h.verify();
  p.measure({"mako_t6",
             {{"object", std::to_string(Bytes) + " B"}, {"objects", std::to_string(count)}},
             "of the objects",
             {goal_kind::value_at_most, at_most},
             {}},
            double(h.stats().hit_bytes + v.agent_metadata_bytes) / double(v.agent_live_bytes));
}

// ---- programs that run while one collection follows the other ----

struct program_of_paper {
  std::string name;
  double pause_ms, longest_ms;  ///< table 3: pauses on average, and the longest
};

// As Spark's example computes it: a set of pairs of vertices, to which each round adds those that one more edge reaches. A round makes a set of
// its own, as Spark does, and leaves the old one as garbage. An object is a pair, behind the list of its first vertex.
class closure {
 public:
  closure(heap& h, std::uint32_t vertices, std::uint32_t edges)
      : heap_(h), successors_(vertices), sets_(vertices), sizes_(vertices) {
    random_source random(5);
    for (std::uint32_t e = 0; e < edges; ++e)
      successors_[random.below(vertices)].push_back(std::uint32_t(random.below(vertices)));
    begin();
  }
  // One list of one round. After the last round it begins again.
  void one() {
    advance(vertex_);
    if (++vertex_ != sets_.size()) return;
    vertex_ = 0;
    if (std::exchange(grown_, false)) return;
    const std::uint64_t all = pairs();
    if (all == 0 || (found_ != 0 && found_ != all)) throw error(errc::corrupt, "two closures of one graph differ");
    found_ = all;
    begin();
  }

 private:
  struct pair {
    ref<pair> next;
    std::uint32_t from = 0, to = 0;
  };
  void begin() {
    for (std::uint32_t v = 0; v < sets_.size(); ++v) {
      sets_[v] = {};
      std::vector<bool> seen(sets_.size());
      sizes_[v] = 0;
      for (const std::uint32_t to : successors_[v]) add(v, to, seen, sets_[v]);
    }
  }
  void add(std::uint32_t from, std::uint32_t to, std::vector<bool>& seen, ptr<pair>& list) {
    if (seen[to]) return;
    seen[to] = true;
    ++sizes_[from];
    list = heap_.make<pair>({.next = list, .from = from, .to = to});
  }
  void advance(std::uint32_t v) {
    std::vector<std::uint32_t> reached;
    {
      const scope s;
      for (const pair* p = sets_[v].get(s); p != nullptr; p = p->next.get(s)) reached.push_back(p->to);
    }
    std::vector<bool> seen(sets_.size());
    ptr<pair> fresh;
    const std::uint64_t before = sizes_[v];
    sizes_[v] = 0;
    for (const std::uint32_t to : reached) add(v, to, seen, fresh);
    for (const std::uint32_t middle : reached)
      for (const std::uint32_t to : successors_[middle]) add(v, to, seen, fresh);
    grown_ |= sizes_[v] != before;
    sets_[v] = std::move(fresh);
  }
  [[nodiscard]] std::uint64_t pairs() const {
    std::uint64_t all = 0;
    for (const std::uint64_t n : sizes_) all += n;
    return all;
  }

  heap& heap_;
  std::vector<std::vector<std::uint32_t>> successors_;
  std::vector<ptr<pair>> sets_;
  std::vector<std::uint64_t> sizes_;
  std::uint32_t vertex_ = 0;
  bool grown_ = false;
  std::uint64_t found_ = 0;
};

// Table 3 and figure 6 (default regions), figures 8 and 9 (others as well). `start` makes the program in the heap and returns its one operation.
template <class Start>
void pauses(program& p, const std::string& binary, const program_of_paper& of, std::uint64_t cache,
            std::uint64_t region_mib, Start&& start) {
  const bool usual = region_mib == 16;
  if (!p.wants("mako_t3") && !p.wants("mako_6") && !p.wants("mako_8") && !p.wants("mako_9")) return;
  agent server(binary, "shm://", p.agent_core(),
               {"--memory", "2GiB", "--log-level", "warning", "--region", std::to_string(region_mib) + "MiB"});
  p.count_cpu_of(server.pid());
  {
    heap h({.cache = std::max<std::uint64_t>(cache, 4 << 20), .agents = {server.url()}, .collect_continuously = true});
    auto one = start(h);
    std::uint64_t done = 0;
    const double seconds = p.sized(3.0, 0.3);
    const heap_stats before = h.stats();
    const std::uint64_t begin = now_ns();
    for (; double(now_ns() - begin) < seconds * 1e9; ++done) one();
    const double per_operation = double(now_ns() - begin) / double(done);
    const heap_stats s = h.stats();
    if (!p.quick() && s.collections == before.collections) throw error(errc::timed_out, "no collection has ended");
    const auto figure = [&](const std::string& name, const char* unit, goal g, double value,
                            const std::vector<std::pair<std::string, std::string>>& more = {}) {
      row_spec spec{
          name, {{"program", of.name}, {"region", std::to_string(region_mib) + " MiB"}, {"cache", "25%"}}, unit, g, {}};
      spec.parameters.insert(spec.parameters.end(), more.begin(), more.end());
      p.measure(spec, value);
    };
    const double mean = s.pause_ns.count == 0 ? 0 : double(s.pause_ns.sum_ns) / double(s.pause_ns.count) * 1e-6;
    if (usual) {
      figure("mako_t3_pause", "ms", {goal_kind::value_at_most, of.pause_ms}, mean);
      figure("mako_t3_longest", "ms", {goal_kind::value_at_most, of.longest_ms}, double(s.pause_ns.max_ns) * 1e-6);
      for (const int ms : {1, 5, 20, 100})
        figure("mako_6", "", {}, s.bmu(std::chrono::milliseconds(ms)), {{"window", std::to_string(ms) + " ms"}});
    }
    figure("mako_8_pause", "ms", {}, mean);
    figure("mako_8_time", "ns", {}, per_operation);
    const verify_report v = h.verify();
    const double regions = double(h.stats().regions * region_mib << 20);
    figure("mako_9", "of the regions", {},
           1 - double(v.agent_live_bytes + v.agent_garbage_bytes) / std::max(regions, 1.0));
    std::fprintf(stderr, "%s, regions of %lu MiB: %lu cycles, %lu pauses\n", of.name.c_str(), region_mib,
                 s.collections - before.collections, s.pause_ns.count);
  }
  p.forget_cpu_of(server.pid());
}

void mix_pauses(program& p, const std::string& binary, const mix& m, std::uint64_t region_mib) {
  const auto keys = p.sized<std::uint64_t>(400'000, 20'000);
  pauses(p, binary, {m.name, m.pause_ms, m.longest_ms}, keys * frame_bytes<128> / 4, region_mib, [&](heap& h) {
    auto store = std::make_unique<managed_store>(h, keys);
    auto c = std::make_unique<client<managed_store>>(*store, keys, m);
    return [store = std::move(store), c = std::move(c)] { c->one(); };
  });
}

// A random graph of so many edges has nearly all of its vertices in one cycle: about 0.8 of all pairs are in its closure.
void closure_pauses(program& p, const std::string& binary) {
  const auto vertices = p.sized<std::uint32_t>(1'000, 100);
  const std::uint64_t pairs = std::uint64_t(vertices) * vertices * 8 / 10;
  pauses(p, binary, {"transitive closure", 9.90, 69.48}, pairs * frame_bytes<16> / 4, 16, [&](heap& h) {
    auto c = std::make_unique<closure>(h, vertices, 3 * vertices);
    return [c = std::move(c)] { c->one(); };
  });
}

// Figure 7: the agent's bytes, live and not, before and after each collection, of those that are live.
void footprint(program& p, const std::string& binary, const mix& m) {
  if (!p.wants("mako_7_before") && !p.wants("mako_7_after")) return;
  const auto keys = p.sized<std::uint64_t>(400'000, 20'000);
  // Full regions alone are evacuated, so they are small, as the heap is.
  const counted_agent agent(p, binary, "shm://", "2GiB", {"--region", "1MiB"});
  heap h({.cache = std::max<std::uint64_t>(keys * frame_bytes<128> / 4, 4 << 20),
          .agents = {agent.url()},
          .collect = false});
  managed_store store(h, keys);
  client c(store, keys, m);
  const auto of_live = [&](const verify_report& v, std::uint64_t live) {
    return double(v.agent_live_bytes + v.agent_garbage_bytes) / double(live);
  };
  std::vector<double> before, after;
  for (int cycle = 0; cycle < p.sized(6, 2); ++cycle) {
    for (std::uint64_t i = 0; i < keys; ++i) c.one();
    const verify_report full = h.verify();
    const cycle_report r = h.collect("bench");
    if (!r.ok()) throw error(r.status, r.failure);
    const verify_report less = h.verify();
    before.push_back(of_live(full, less.agent_live_bytes));
    after.push_back(of_live(less, less.agent_live_bytes));
  }
  const auto figure = [&](const char* name, std::vector<double> values) {
    p.measure({name, {{"program", m.name}, {"cache", "25%"}}, "of the live bytes", {}, {}},
              summarize(std::move(values)).median);
  };
  figure("mako_7_before", before);
  figure("mako_7_after", after);
}

}  // namespace

void mako_rows(program& p, const std::string& binary) {
  for (const mix& m : {cii, cui}) translation(p, binary, m);
  memory<24>(p, binary, 0.2561);
  memory<64>(p, binary, 0.147);
  memory<128>(p, binary, 0.1362);
  mix_pauses(p, binary, cii, 16);
  mix_pauses(p, binary, cui, 16);
  closure_pauses(p, binary);
  for (const std::uint64_t mib : {8, 32}) mix_pauses(p, binary, cii, mib);
  for (const mix& m : {cii, cui}) footprint(p, binary, m);
}

}  // namespace fm::bench
