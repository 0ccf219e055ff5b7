// Which objects the cache keeps: misses an access of one trace through a real heap, beside LRU, S3-FIFO, SIEVE and
// Belady's optimum with as many objects as fit into the memory that the heap used. Each object is charged with its
// frame. Counts, not times: the ratio of ours to a peer is that of misses.
#include "policy/simulators.h"

#include <cstdio>
#include <map>
#include <optional>

#include "support/managed.h"

namespace {

using namespace fm::bench;

using object = blob<240>;
constexpr std::uint64_t object_frame = frame_bytes<240>;

struct settings {
  std::uint64_t keys = 0, accesses = 0;
  std::string trace, transport, binary;
  bool no_elastic = false, tell = false;
};

struct outcome {
  double misses = 0;          ///< an access, after the warm-up
  std::uint64_t fit = 0;      ///< objects whose frames fit into what the cache used
  double untouched = 0;       ///< of the neighbours that left or were used: the share that was never used
  std::uint64_t brought = 0;  ///< neighbours
};

/// The trace through a heap. The first half warms the cache.
outcome run_heap(const settings& set, const trace& t, double share, const std::string& url) {
  const std::uint64_t data = set.keys * object_frame;
  fm::heap_options o{.cache = static_cast<std::uint64_t>(static_cast<double>(data) * share),
                     .collect = false,
                     .elastic = !set.no_elastic};
  if (url.empty())
    o.local_memory = 2 * data + (64u << 20);
  else
    o.agents = {url};
  fm::heap h(o);
  std::vector<fm::ptr<object>> all;
  all.reserve(set.keys);
  for (std::uint64_t key = 0; key < set.keys; ++key) all.push_back(h.make<object>({.number = key}));
  if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "evicting what was made");

  constexpr std::uint64_t samples = 64;
  const std::uint64_t half = t.size() / 2, every = std::max<std::uint64_t>(1, half / samples);
  std::uint64_t used = 0, looks = 0;
  fm::heap_stats before{};
  for (std::uint64_t i = 0; i < t.size(); ++i) {
    if (i == half) before = h.stats();
    if (i >= half && i % every == 0) {
      used += h.stats().cache_used_bytes;
      ++looks;
    }
    if (all[t[i]]->number != t[i]) throw fm::error(fm::errc::corrupt, "another object than the trace asked for");
  }
  const fm::heap_stats after = h.stats();
  if (set.tell) std::fprintf(stderr, "%s\n", after.text().c_str());
  outcome out;
  out.misses = static_cast<double>(after.misses - before.misses) / static_cast<double>(t.size() - half);
  out.fit = std::max<std::uint64_t>(1, used / std::max<std::uint64_t>(1, looks) / object_frame);
  const std::uint64_t never = after.elastic_untouched - before.elastic_untouched;
  const std::uint64_t touched = after.elastic_touches - before.elastic_touches;
  out.brought = after.elastic_installs - before.elastic_installs;
  if (never + touched != 0) out.untouched = static_cast<double>(never) / static_cast<double>(never + touched);
  return out;
}

std::string decimals(double v) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", v);
  return text;
}

void compare(program& p, const settings& set, const std::string& name, const trace& t, double share,
             const std::string& transport, const std::string& url) {
  const row_spec base{"misses",
                      {{"transport", transport},
                       {"trace", name},
                       {"cache", decimals(share) + " of the data"},
                       {"objects", std::to_string(set.keys)},
                       {"value", "240 B"}},
                      "an access",
                      {},
                      ""};
  outcome ours;
  try {
    std::optional<counted_agent> agent;
    if (!url.empty()) agent.emplace(p, set.binary, url, std::to_string((set.keys * 1024 >> 20) + 128) + "MiB");
    ours = run_heap(set, t, share, agent ? agent->url() : "");
  } catch (const fm::error& e) {
    p.left_out(base, e.what());
    return;
  }
  const bool loops = name == "loop" || name == "scans";
  for (const named_policy& policy : simulated_policies()) {
    const double peer =
        static_cast<double>(policy.misses(t, static_cast<std::uint32_t>(set.keys), ours.fit, t.size() / 2)) /
        static_cast<double>(t.size() - t.size() / 2);
    row_spec spec = base;
    spec.peer_name = policy.name;
    if (!loops && policy.name == "LRU") spec.wanted = {goal_kind::ratio_at_most, 1.10};
    if (!loops && policy.name == "S3-FIFO") spec.wanted = {goal_kind::ratio_at_most, 1.05};
    p.compare(
        spec,
        [&] {
          return turn{ours.misses, {}, 0};
        },
        [&] {
          return turn{peer, {}, 0};
        },
        1);
  }
  if (set.no_elastic) return;
  row_spec spec = base;
  spec.name = "neighbours_never_used";
  spec.unit = "of those that came along";
  // Fewer than one in a hundred misses are attempts to find out whether the program walks: the window is one.
  spec.wanted = {goal_kind::value_at_most, 0.5};
  const bool window_is_one =
      static_cast<double>(ours.brought) < 0.01 * ours.misses * static_cast<double>(t.size() - t.size() / 2);
  if (window_is_one)
    p.left_out(spec, "the window is one: fewer than one neighbour for a hundred misses");
  else
    p.measure(spec, ours.untouched);
  spec.name = "neighbours";
  spec.unit = "an access";
  spec.wanted = {};
  p.measure(spec, static_cast<double>(ours.brought) / static_cast<double>(t.size() - t.size() / 2));
}

}  // namespace

int main(int argc, char** argv) {
  program p(
      "policy",
      "Misses of the cache on generated traces, against LRU, S3-FIFO, SIEVE and Belady's optimum in as much memory");
  settings set;
  p.option("--agent", set.binary, "the farmem-agent to run");
  p.option("--objects", set.keys, "objects (0: 400,000, quick 20,000)");
  p.option("--accesses", set.accesses, "accesses (0: ten times the objects)");
  p.option("--trace", set.trace, "only this one: hot, shifting, zipf-S, scans or loop");
  p.option("--transport", set.transport, "only this one (local, shm or tcp; empty: all)");
  p.option("--no-elastic", set.no_elastic, "fetch no neighbours");
  p.option("--tell", set.tell, "print the heap's statistics");
  p.parse(argc, argv);
  if (set.keys == 0) set.keys = p.sized<std::uint64_t>(400'000, 20'000);
  if (set.accesses == 0) set.accesses = 10 * set.keys;
  return p.run([&] {
    for (const std::string& name : set.trace.empty() ? usual_traces() : std::vector{set.trace}) {
      const trace t = named_trace({name, static_cast<std::uint32_t>(set.keys), set.accesses, 1});
      for (const double share : {0.1, 0.25, 0.5}) {
        auto all = transports();
        all.insert(all.begin(), {"local", ""});
        for (const auto& [transport, url] : all) {
          if (set.transport.empty() || set.transport == transport) compare(p, set, name, t, share, transport, url);
        }
      }
    }
  });
}
