// Mako (PLDI 2022): tables 3, 4 and 6, figures 6 and 8. The programs are its two mixes of Cassandra operations, with values of 128 bytes:
// CII inserts 60%, updates 20% and reads 20%; CUI updates 60% and inserts 40%. An update replaces the value, so that it leaves garbage.
#include <cstdio>
#include <memory>

#include "../support/zipf.h"
#include "papers.h"

namespace fm::bench {
namespace {

struct mix {
  const char* name;
  double inserts, updates;
  double translation;           ///< table 4: the price of address translation
  double pause_ms, longest_ms;  ///< table 3: pauses on average, and the longest
};
constexpr mix cii{"CII", 0.6, 0.2, 1.0969, 4.63, 11.84};
constexpr mix cui{"CUI", 0.4, 0.6, 1.0618, 5.34, 13.55};

using managed_value = blob<128>;
struct plain_value {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 15> more{};
};

// The keys are a circle of places: an insert takes the oldest key's, so that as many values live all the while.
class managed_store {
 public:
  managed_store(heap& h, std::uint64_t keys) : heap_(h) {
    for (std::uint64_t k = 0; k < keys; k += chunk) chunks_.push_back(h.array<ref<managed_value>>(chunk));
    for (std::uint64_t k = 0; k < keys; ++k) put(k);
  }
  void put(std::uint64_t key) {
    const ptr<managed_value> fresh = heap_.make<managed_value>({.number = key});
    const scope s;
    (*chunks_[key / chunk].get_for_write(s))[key % chunk] = fresh;
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const {
    const scope s;
    const managed_value* v = (*chunks_[key / chunk].get(s))[key % chunk].get(s);
    std::uint64_t sum = v->number;
    for (const std::uint64_t w : v->more) sum += w;
    return sum;
  }

 private:
  static constexpr std::uint64_t chunk = 512;
  heap& heap_;
  std::vector<ptr<ref<managed_value>[]>> chunks_;
};

class plain_store {
 public:
  explicit plain_store(std::uint64_t keys) : values_(keys) {
    for (std::uint64_t k = 0; k < keys; ++k) put(k);
  }
  void put(std::uint64_t key) {
    values_[key] = std::make_unique<plain_value>();
    values_[key]->number = key;
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const {
    const plain_value& v = *values_[key];
    std::uint64_t sum = v.number;
    for (const std::uint64_t w : v.more) sum += w;
    return sum;
  }

 private:
  std::vector<std::unique_ptr<plain_value>> values_;
};

template <class Store>
class client {
 public:
  client(Store& store, std::uint64_t keys, const mix& m) : store_(store), keys_(keys), popular_(keys, 0.99), mix_(m) {}
  void one() {
    const double what = random_.unit();
    if (what < mix_.inserts) {
      store_.put(next_ = next_ + 1 == keys_ ? 0 : next_ + 1);
      return;
    }
    const std::uint64_t key = popular_(random_);
    if (what < mix_.inserts + mix_.updates) return store_.put(key);
    if (store_.read(key) != key) throw error(errc::corrupt, "a value of another key");
  }
  turn run(std::size_t operations) {
    return per_operation(double(operations), [&] {
      for (std::size_t i = 0; i < operations; ++i) one();
    });
  }

 private:
  Store& store_;
  std::uint64_t keys_, next_ = 0;
  zipf_keys popular_;
  mix mix_;
  random_source random_{3};
};

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

// Table 3 and figure 6 (default regions), figure 8 (others): a quarter of the heap local, one collection after the other.
void pauses(program& p, const std::string& binary, const mix& m, std::uint64_t region_mib) {
  const bool usual = region_mib == 16;
  if (!p.wants("mako_t3") && !p.wants("mako_6") && !p.wants("mako_8")) return;
  const auto keys = p.sized<std::uint64_t>(400'000, 20'000);
  agent server(binary, "shm://", p.agent_core(),
               {"--memory", "2GiB", "--log-level", "warning", "--region", std::to_string(region_mib) + "MiB"});
  p.count_cpu_of(server.pid());
  {
    heap h({.cache = std::max<std::uint64_t>(keys * frame_bytes<128> / 4, 4 << 20),
            .agents = {server.url()},
            .collect_continuously = true});
    managed_store store(h, keys);
    client c(store, keys, m);
    std::uint64_t done = 0;
    const double seconds = p.sized(3.0, 0.3);
    const heap_stats before = h.stats();
    const std::uint64_t begin = now_ns();
    for (; double(now_ns() - begin) < seconds * 1e9; ++done) c.one();
    const double per_operation = double(now_ns() - begin) / double(done);
    const heap_stats s = h.stats();
    if (!p.quick() && s.collections == before.collections) throw error(errc::timed_out, "no collection has ended");
    const auto figure = [&](const std::string& name, const char* unit, goal g, double value,
                            const std::vector<std::pair<std::string, std::string>>& more = {}) {
      row_spec spec{
          name, {{"program", m.name}, {"region", std::to_string(region_mib) + " MiB"}, {"cache", "25%"}}, unit, g, {}};
      spec.parameters.insert(spec.parameters.end(), more.begin(), more.end());
      p.measure(spec, value);
    };
    const double mean = s.pause_ns.count == 0 ? 0 : double(s.pause_ns.sum_ns) / double(s.pause_ns.count) * 1e-6;
    if (usual) {
      figure("mako_t3_pause", "ms", {goal_kind::value_at_most, m.pause_ms}, mean);
      figure("mako_t3_longest", "ms", {goal_kind::value_at_most, m.longest_ms}, double(s.pause_ns.max_ns) * 1e-6);
      for (const int ms : {1, 5, 20, 100})
        figure("mako_6", "", {}, s.bmu(std::chrono::milliseconds(ms)), {{"window", std::to_string(ms) + " ms"}});
    }
    figure("mako_8_pause", "ms", {}, mean);
    figure("mako_8_time", "ns", {}, per_operation);
    std::fprintf(stderr, "%s, regions of %lu MiB: %lu cycles, %lu pauses\n", m.name, region_mib,
                 s.collections - before.collections, s.pause_ns.count);
  }
  p.forget_cpu_of(server.pid());
}

}  // namespace

void mako_rows(program& p, const std::string& binary) {
  for (const mix& m : {cii, cui}) translation(p, binary, m);
  memory<24>(p, binary, 0.2561);
  memory<64>(p, binary, 0.147);
  memory<128>(p, binary, 0.1362);
  pauses(p, binary, cii, 16);
  pauses(p, binary, cui, 16);
  for (const std::uint64_t mib : {8, 32}) pauses(p, binary, cii, mib);
}

}  // namespace fm::bench
