// The heap larger than memory: key-value reads and a 50:50 mix over values of 128 bytes, with local memory a quarter of the
// data, enforced on both sides by memory cgroups of the same limit. The peer is the same program on the kernel's swap.
// Values are behind a table of references, or in an ordered map: fm::map against std::map behind a shared mutex.
#include <cstdio>

#include "peers/plain_key_value.h"
#include "support/key_value.h"
#include "support/limits.h"
#include "support/managed.h"

namespace {

using namespace fm::bench;

struct managed_value {
  std::uint64_t key = 0;
  std::uint64_t written = 0;
  std::array<std::uint64_t, 14> words{};
};
static_assert(sizeof(managed_value) == sizeof(kv_value));

class managed_store {
 public:
  managed_store(fm::heap& h, std::uint64_t keys) {
    kv_value plain;
    for (std::uint64_t key = 0; key < keys; ++key) {
      fill_value(plain, key);
      managed_value v{.key = plain.key, .written = 0};
      std::copy_n(plain.words, 14, v.words.begin());
      if (key % chunk_keys == 0) table_.push_back(h.array<fm::ref<managed_value>>(chunk_keys));
      const fm::ptr<managed_value> value = h.make<managed_value>(v);
      auto chunk = table_.back().write();
      (*chunk)[key % chunk_keys] = value;
    }
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) {
    const fm::scope s;
    const managed_value* v = (*table_[key / chunk_keys].get(s))[key % chunk_keys].get(s);
    std::uint64_t sum = v->key;
    for (const std::uint64_t w : v->words) sum += w;
    return sum;
  }
  void write(std::uint64_t key, std::uint64_t n) {
    const fm::scope s;
    (*table_[key / chunk_keys].get(s))[key % chunk_keys].write()->written += n;
  }

 private:
  // The table is managed as the values are, in pieces that are worth fetching; only the roots of the pieces stay.
  static constexpr std::uint64_t chunk_keys = 512;
  std::vector<fm::ptr<fm::ref<managed_value>[]>> table_;
};

/// The values in a map in the order of their keys.
class managed_map {
 public:
  managed_map(fm::heap& h, std::uint64_t keys) : all_(h) {
    kv_value plain;
    for (std::uint64_t key = 0; key < keys; ++key) {
      fill_value(plain, key);
      managed_value v{.key = plain.key, .written = 0};
      std::copy_n(plain.words, 14, v.words.begin());
      all_.insert(plain.key, v);
    }
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) {
    const auto v = all_.find(key);
    std::uint64_t sum = v->key;
    for (const std::uint64_t w : v->words) sum += w;
    return sum;
  }
  void write(std::uint64_t key, std::uint64_t n) {
    all_.update(key, [n](managed_value& v) { v.written += n; });
  }

 private:
  fm::map<std::uint64_t, managed_value> all_;
};

// The workers `managed_kv <keys> <cache bytes> <url>...` and `managed_map` with the same arguments.
template <class Store>
int managed_main(const std::vector<std::string>& args) {
  const std::uint64_t keys = std::stoull(args.at(0));
  fm::heap h({.cache = std::stoull(args.at(1)), .agents = {args.begin() + 2, args.end()}});
  Store store(h, keys);
  return serve_commands({{"keys", double(keys)}}, [&](const std::vector<std::string>& words) {
    const auto before = h.stats();
    figures f = run_key_value(store, keys, words);
    f["misses"] = double(h.stats().misses - before.misses);
    return f;
  });
}

std::string decimals(double v) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", v);
  return text;
}

struct settings {
  std::uint64_t keys = 0;
  double local = 0.25, cache_share = 0;
  std::string binary, transport;
};

/// How values are found: the workers of both sides, and the goals for reads.
struct layout {
  std::string row, ours, peer, peer_name;
  double cache_share;
  std::uint64_t peer_operations;  ///< a turn
  double (*goal)(const std::string& transport, double zipf);
};
const layout table{"key_value",
                   "managed_kv",
                   "plain_kv",
                   "plain pointers on RAM-disk swap",
                   0.55,
                   300'000,
                   [](const std::string& transport, double zipf) {
                     return transport == "shm" ? (zipf > 0 ? 5.0 : 4.0) : (zipf > 0 ? 2.0 : 1.0);
                   }};
const layout ordered{"ordered_map",
                     "managed_map",
                     "plain_map",
                     "std::map on RAM-disk swap",
                     0.7,
                     30'000,
                     [](const std::string&, double) { return 3.0; }};

void against_swap(program& p, const settings& set, const layout& l, const std::string& transport,
                  const std::string& url) {
  if (!p.wants(l.row)) return;
  const double cache_share = set.cache_share > 0 ? set.cache_share : l.cache_share;
  const std::uint64_t data = kv_data_bytes(set.keys), limit = std::uint64_t(double(data) * set.local);
  const int core = p.pinned() ? 0 : -1;
  const row_spec base{l.row,
                      {{"transport", transport},
                       {"keys", std::to_string(set.keys)},
                       {"value", "128 B"},
                       {"local", decimals(set.local)},
                       {"cache", decimals(cache_share) + " of local"}},
                      "Kops/s",
                      {},
                      l.peer_name};
  try {
    const ram_swap disk(2 * data, 0);
    const memory_cgroup ours_limit("ours", limit), peer_limit("peer", limit);
    const counted_agent agent(p, set.binary, url, std::to_string((data * 4) >> 20) + "MiB");
    int seed = 0;
    for (const double zipf : {0.99, 0.0}) {
      // Workers of its own for each distribution: a kernel that finds nothing to swap out kills the peer now and then, and
      // the rows after that can still be had.
      row_spec spec = base;
      spec.parameters.emplace_back("zipf", decimals(zipf));
      try {
        worker ours(l.ours,
                    {std::to_string(set.keys), std::to_string(std::uint64_t(double(limit) * cache_share)), agent.url()},
                    core, ours_limit.procs());
        worker peer(l.peer, {std::to_string(set.keys)}, core, peer_limit.procs());
        p.count_cpu_of(ours.pid());
        p.count_cpu_of(peer.pid());
        for (const double writes : {0.0, 0.5}) {
          const auto run = [&](worker& w, std::uint64_t operations) {
            const std::string command = "run " + decimals(zipf) + " " + decimals(writes) + " " +
                                        std::to_string(operations) + " " + std::to_string(++seed) + " 0";
            return turn{w.ask(command).at("ops_per_s") / 1e3, {}, 0};
          };
          row_spec row = spec;
          row.parameters.emplace_back("writes", decimals(writes));
          if (writes == 0.0) row.wanted = {goal_kind::ratio_at_least, l.goal(transport, zipf)};
          p.compare(
              row, [&] { return run(ours, p.sized<std::uint64_t>(1'000'000, 50'000)); },
              [&] { return run(peer, p.sized<std::uint64_t>(l.peer_operations, 20'000)); }, 7);
        }
        p.forget_cpu_of(ours.pid());
        p.forget_cpu_of(peer.pid());
        ours.finish();  // the next one needs the agent's memory
      } catch (const fm::error& e) {
        p.left_out(spec, e.what());
      }
    }
  } catch (const fm::error& e) {
    p.left_out(base, e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv,
                         {{"managed_kv", managed_main<managed_store>},
                          {"managed_map", managed_main<managed_map>},
                          {"plain_kv", plain_key_value_main},
                          {"plain_map", plain_map_main}});
  program p(
      "zipf",
      "Key-value reads and writes with local memory a quarter of the data, against the kernel's swap on a RAM disk");
  settings set;
  p.option("--agent", set.binary, "the farmem-agent to run");
  p.option("--keys", set.keys, "keys (0: 2 Mi, quick 128 Ki)");
  p.option("--local", set.local, "local memory as a share of the data");
  p.option("--cache-share", set.cache_share,
           "the cache as a share of local memory; tables and the program need the rest (0: 0.55, maps 0.7)");
  p.option("--transport", set.transport, "only this one (shm or tcp; empty: both)");
  p.parse(argc, argv);
  if (set.keys == 0) set.keys = p.sized<std::uint64_t>(1 << 21, 1 << 17);
  return p.run([&] {
    for (const layout* l : {&table, &ordered})
      for (const auto& [transport, url] : transports())
        if (set.transport.empty() || set.transport == transport) against_swap(p, set, *l, transport, url);
  });
}
