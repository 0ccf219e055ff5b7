// What compaction leaves of a pool's memory: CoRM's synthetic traces (section 4.4), with identities by birth, with objects that keep
// their offsets, with random ids of 8, 12 and 16 bits, and with those and offsets where ids are too short, beside Mesh's rule, no compaction, and the ideal; its Redis traces (section 4.4.3) with 1 to 32 allocating threads; and how often two blocks with random ids can be merged,
// beside the paper's formula.
#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <thread>
#include <tuple>

#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

/// Of an agent in this process: what is measured is bytes, which are the same behind every transport.
constexpr std::uint64_t memory = 2ull << 30;

struct trace {
  std::uint32_t bytes;  ///< of a slot; the payload is what fits
  std::uint64_t objects;
  double freed;
};

/// Which objects of a trace are freed: the same for all strategies.
std::vector<bool> freed_of(const trace& t) {
  random_source random(t.bytes * 100 + std::uint64_t(t.freed * 100));
  std::vector<bool> freed(t.objects);
  for (std::uint64_t i = 0; i < t.objects; ++i) freed[i] = random.unit() < t.freed;
  return freed;
}

std::uint64_t frames_in(const fm::pool& pool) {
  std::uint64_t bytes = 0;
  for (const fm::pool_agent_stats& a : pool.stats().agents) {
    for (const fm::pool_class_stats& c : a.classes) bytes += c.blocks * c.block_bytes;
  }
  return bytes;
}

struct outcome {
  double before = 0, after = 0, conflicts = 0;  ///< bytes of blocks; share of the merges tried
};

/// Of one arena that is compacted when it is told to.
fm::pool_options bare_pool(std::uint64_t block, fm::pool_identity identity, fm::pool_fallback fallback) {
  return {.agents = {"local:"},
          .name = "memory",
          .tenant = fm::pool_tenant::random(),
          .block = block,
          .arenas = 1,
          .identity = identity,
          .fallback = fallback,
          .compact_above = 0,
          .keep = fm::duration::zero(),
          .local_memory = memory};
}

outcome run_pool(const trace& t, fm::pool_identity identity, std::uint64_t block,
                 fm::pool_fallback fallback = fm::pool_fallback::none) {
  fm::pool pool(bare_pool(block, identity, fallback));
  const std::vector<std::byte> payload(t.bytes - 24);
  const std::vector<bool> freed = freed_of(t);
  std::vector<fm::pool_address> all;
  for (std::uint64_t i = 0; i < t.objects; ++i) all.push_back(pool.alloc_bytes(payload));
  for (std::uint64_t i = 0; i < t.objects; ++i)
    if (freed[i]) pool.free(all[i]);
  outcome o;
  o.before = double(frames_in(pool));
  const fm::pool_compaction made = pool.compact();
  o.after = double(frames_in(pool));
  std::uint64_t in_conflict = 0;
  for (const fm::pool_agent_stats& a : pool.stats().agents)
    for (const fm::pool_class_stats& c : a.classes) in_conflict += c.merges_in_conflict;
  if (made.merges_tried != 0) o.conflicts = double(in_conflict) / double(made.merges_tried);
  return o;
}

/// Bytes of blocks after merging pairs whose objects have no offset in common, by Mesh's SplitMesher with 64 probes.
double run_mesh(const trace& t, std::uint64_t block) {
  const std::uint64_t slots = block / t.bytes, words = (slots + 63) / 64;
  const std::vector<bool> freed = freed_of(t);
  std::vector<std::vector<std::uint64_t>> spans;
  for (std::uint64_t i = 0; i < t.objects; ++i) {
    if (i % slots == 0) spans.emplace_back(words, 0);
    if (!freed[i]) spans.back()[i % slots / 64] |= std::uint64_t{1} << i % slots % 64;
  }
  std::erase_if(spans, [](const auto& s) { return std::all_of(s.begin(), s.end(), [](auto w) { return w == 0; }); });
  random_source random(9);
  for (std::size_t i = spans.size(); i > 1; --i) std::swap(spans[i - 1], spans[random.below(i)]);
  const std::size_t half = spans.size() / 2;
  std::vector<bool> gone(spans.size());
  for (std::size_t probe = 0; probe < std::min<std::size_t>(64, half); ++probe)
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t j = half + (i + probe) % half;
      if (gone[i] || gone[j]) continue;
      bool meet = false;
      for (std::uint64_t w = 0; w < words; ++w) meet |= (spans[i][w] & spans[j][w]) != 0;
      if (!meet) gone[j] = gone[i] = true;  // a pair is one span from here on, and is not merged again
    }
  const auto pairs = std::uint64_t(std::count(gone.begin(), gone.end(), true)) / 2;
  return double((spans.size() - pairs) * block);
}

/// The agent's records of blocks and objects beside the blocks: for each object that is left, after compaction.
void books_rows(program& p) {
  for (const std::uint64_t block : {64u << 10, 1u << 20})
    for (const std::uint32_t payload : {8u, 32u, 232u, 1000u}) {
      fm::pool pool(bare_pool(block, fm::pool_identity::birth, fm::pool_fallback::birth));
      const std::vector<std::byte> bytes(payload);
      random_source random(payload);
      std::vector<fm::pool_address> all;
      const auto count = p.sized<std::uint64_t>(1u << 20, 1u << 15);
      const auto books = [&] { return double(pool.stats().agents.at(0).books_bytes); };
      const double empty = books();
      for (std::uint64_t i = 0; i < count; ++i) all.push_back(pool.alloc_bytes(bytes));
      std::uint64_t live = 0;
      for (const fm::pool_address& a : all) {
        if (random.unit() < 0.9)
          pool.free(a);
        else
          ++live;
      }
      pool.compact();
      const auto row = [&](const char* what, const char* unit, double v) {
        p.measure({"books",
                   {{"block", std::to_string(block >> 10) + " KiB"},
                    {"payload", std::to_string(payload) + " B"},
                    {"of", what}},
                   unit,
                   {},
                   {}},
                  v);
      };
      row("frames", "B an object", double(frames_in(pool)) / double(live));
      row("books", "B an object", (books() - empty) / double(live));
    }
}

void trace_rows(program& p) {
  constexpr std::uint64_t block = 1 << 20;
  for (const std::uint32_t bytes : {256u, 1024u, 4096u, 16384u})
    for (const double freed : {0.4, 0.6, 0.8, 0.9}) {
      const trace t{bytes, p.sized<std::uint64_t>(128u << 20, 4u << 20) / bytes, freed};
      std::uint64_t live = 0;
      for (const bool f : freed_of(t)) live += !f;
      const double ideal = double(live * bytes);
      const auto row = [&](const std::string& strategy, double v) {
        p.measure({"memory",
                   {{"slot", std::to_string(bytes) + " B"},
                    {"freed", std::to_string(int(freed * 100 + 0.5)) + "%"},
                    {"by", strategy}},
                   "of the ideal",
                   {},
                   {}},
                  v / ideal);
      };
      const outcome birth = run_pool(t, fm::pool_identity::birth, block);
      row("nobody", birth.before);
      row("birth", birth.after);
      row("offset", run_pool(t, fm::pool_identity::offset, block).after);
      row("random 8", run_pool(t, fm::pool_identity::random_8, block).after);
      row("random 12", run_pool(t, fm::pool_identity::random_12, block).after);
      row("random 16", run_pool(t, fm::pool_identity::random_16, block).after);
      for (const auto& [bits, identity] : {std::pair{8, fm::pool_identity::random_8},
                                           {12, fm::pool_identity::random_12},
                                           {16, fm::pool_identity::random_16}})
        row("hybrid " + std::to_string(bits), run_pool(t, identity, block, fm::pool_fallback::offset).after);
      row("Mesh's rule", run_mesh(t, block));
    }
}

/// What Redis asks an allocator for in one of CoRM's traces: keys and values, each an object of its own.
struct redis_trace {
  std::string name;
  std::vector<std::uint32_t> bytes;            ///< of the objects, in order; a key is followed by its value
  std::uint64_t capacity = ~std::uint64_t{0};  ///< in payload; beyond, the oldest are freed
  std::size_t spared = 0;  ///< of those after the first so many, a random half of the keys is freed in the end
  bool frees_half = false;
};

std::vector<redis_trace> redis_traces(program& p) {
  const auto some = [&](std::size_t n) { return p.sized<std::size_t>(n, n / 20); };
  const auto add = [](redis_trace& t, std::size_t keys, const std::function<std::uint32_t()>& value) {
    for (std::size_t i = 0; i < keys; ++i) {
      t.bytes.push_back(8);
      t.bytes.push_back(value());
    }
  };
  random_source random(17);
  redis_trace t1{"t1", {}}, t2{"t2", {}}, t3{"t3", {}};
  add(t1, some(10'000), [&] { return std::uint32_t(1024 + random.below(15 * 1024 + 1)); });
  t2.capacity = some(100u << 20);
  add(t2, some(700'000), [] { return 150; });
  add(t2, some(170'000), [] { return 300; });
  add(t3, 5, [] { return 160u << 10; });
  t3.spared = t3.bytes.size();
  t3.frees_half = true;
  add(t3, some(50'000), [] { return 150; });
  return {t1, t2, t3};
}

/// Threads that allocate side by side; which one makes an object is chosen at random, as in the paper.
class allocating_threads {
 public:
  allocating_threads(fm::pool& pool, std::size_t n) : pool_(pool), work_(n), turn_(std::ptrdiff_t(n) + 1) {
    for (std::size_t i = 0; i < n; ++i) threads_.emplace_back([this, i] { run(work_[i]); });
  }
  allocating_threads(const allocating_threads&) = delete;
  allocating_threads& operator=(const allocating_threads&) = delete;
  ~allocating_threads() {
    over_ = true;
    turn_.arrive_and_wait();
    for (std::thread& t : threads_) t.join();
  }
  /// Makes those objects, and adds where they are.
  void make(std::span<const std::uint32_t> bytes, std::vector<fm::pool_address>& all) {
    const std::size_t before = all.size();
    all.resize(before + bytes.size());
    for (auto& w : work_) w.clear();
    for (std::size_t i = 0; i < bytes.size(); ++i)
      work_[random_.below(work_.size())].push_back({bytes[i], &all[before + i]});
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
    if (failed_) throw fm::error(fm::errc::quota_exceeded, "an object of a Redis trace");
  }

 private:
  struct wanted {
    std::uint32_t bytes;
    fm::pool_address* to;
  };
  void run(const std::vector<wanted>& mine) {
    std::vector<std::byte> payload;
    for (;;) {
      turn_.arrive_and_wait();
      if (over_) return;
      for (const wanted& w : mine) {
        payload.resize(w.bytes);
        if (const auto made = pool_.try_alloc_bytes(payload))
          *w.to = *made;
        else
          failed_ = true;
      }
      turn_.arrive_and_wait();
    }
  }

  fm::pool& pool_;
  std::vector<std::vector<wanted>> work_;
  random_source random_{23};
  std::barrier<> turn_;
  std::atomic<bool> over_{false}, failed_{false};
  std::vector<std::thread> threads_;
};

struct redis_outcome {
  double before = 0, after = 0, ideal = 0;
};

redis_outcome run_redis(const redis_trace& t, std::size_t threads, fm::pool_identity identity,
                        fm::pool_fallback fallback) {
  fm::pool pool(bare_pool(1 << 20, identity, fallback));
  std::vector<fm::pool_address> all;
  all.reserve(t.bytes.size());
  allocating_threads makers(pool, threads);
  std::uint64_t live = 0;
  std::size_t oldest = 0;
  for (std::size_t i = 0; i < t.bytes.size();) {
    const std::size_t n = std::min<std::size_t>(4096, t.bytes.size() - i);
    makers.make(std::span(t.bytes).subspan(i, n), all);
    for (const std::size_t end = i + n; i < end; ++i) live += t.bytes[i];
    for (; live > t.capacity; ++oldest) {
      live -= t.bytes[oldest];
      pool.free(all[oldest]);
    }
  }
  random_source random(31);
  for (std::size_t i = t.spared; t.frees_half && i + 1 < all.size(); i += 2) {
    if (random.below(2) != 0) continue;
    pool.free(all[i]);
    pool.free(all[i + 1]);
  }
  redis_outcome o;
  o.before = double(frames_in(pool));
  pool.compact();
  o.after = double(frames_in(pool));
  for (const fm::pool_agent_stats& a : pool.stats().agents)
    for (const fm::pool_class_stats& c : a.classes) o.ideal += double(c.objects * c.slot_bytes);
  return o;
}

void redis_rows(program& p) {
  using fm::pool_fallback;
  using fm::pool_identity;
  for (const redis_trace& t : redis_traces(p))
    for (const std::size_t threads : {1u, 2u, 4u, 8u, 16u, 32u}) {
      const auto row = [&](const std::string& strategy, double bytes, const redis_outcome& o) {
        p.measure({"redis_memory",
                   {{"trace", t.name}, {"threads", std::to_string(threads)}, {"by", strategy}},
                   "of the ideal",
                   {},
                   {}},
                  bytes / o.ideal);
      };
      const redis_outcome birth = run_redis(t, threads, pool_identity::birth, pool_fallback::birth);
      row("nobody", birth.before, birth);
      row("birth", birth.after, birth);
      for (const auto& [name, identity, otherwise] :
           {std::tuple{"offset", pool_identity::offset, pool_fallback::offset},
            {"random 16", pool_identity::random_16, pool_fallback::none},
            {"hybrid 16", pool_identity::random_16, pool_fallback::offset}}) {
        const redis_outcome o = run_redis(t, threads, identity, otherwise);
        row(name, o.after, o);
      }
    }
}

/// No id of b1 is among those of b2, all drawn from n (CoRM, section 3.4).
double formula(double n, double b) {
  return std::exp(2 * std::lgamma(n - b + 1) - std::lgamma(n - 2 * b + 1) - std::lgamma(n + 1));
}

// Blocks with exactly as many objects each that two fit into one and three do not.
void probability_rows(program& p) {
  for (const auto& [identity, bits] : {std::pair{fm::pool_identity::random_8, 8},
                                       {fm::pool_identity::random_12, 12},
                                       {fm::pool_identity::random_16, 16}})
    for (const std::uint64_t block : {4096u, 16384u, 65536u}) {
      constexpr std::uint32_t slot = 64;
      const std::uint64_t slots = block / slot, keep = slots / 2 - slots / 16, blocks = p.sized<std::uint64_t>(500, 40);
      if (slots > (std::uint64_t{1} << bits)) continue;
      fm::pool pool(bare_pool(block, identity, fm::pool_fallback::none));
      std::map<std::uint32_t, std::vector<fm::pool_address>> of_block;
      const std::vector<std::byte> payload(slot - 24);
      for (std::uint64_t i = 0; i < blocks * slots; ++i) {
        const fm::pool_address a = pool.alloc_bytes(payload);
        of_block[a.block()].push_back(a);
      }
      for (auto& [number, all] : of_block)
        for (std::size_t i = keep; i < all.size(); ++i) pool.free(all[i]);
      const fm::pool_compaction made = pool.compact();
      if (made.merges_tried == 0) continue;
      std::uint64_t in_conflict = 0;
      for (const fm::pool_agent_stats& a : pool.stats().agents)
        for (const fm::pool_class_stats& c : a.classes) in_conflict += c.merges_in_conflict;
      const double measured = 1 - double(in_conflict) / double(made.merges_tried);
      const std::vector<std::pair<std::string, std::string>> parameters{
          {"ids", std::to_string(bits) + " bits"},
          {"block", std::to_string(block >> 10) + " KiB"},
          {"objects", std::to_string(keep) + " of " + std::to_string(slots)}};
      p.measure({"merge_probability", parameters, "measured", {}, {}}, measured);
      p.measure({"merge_probability", parameters, "by the formula", {}, {}}, formula(double(1 << bits), double(keep)));
    }
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {});
  program p("pool_memory", "What compaction leaves of a pool's memory, beside other rules and the ideal");
  p.parse(argc, argv);
  return p.run([&] {
    if (p.wants("memory")) trace_rows(p);
    if (p.wants("books")) books_rows(p);
    if (p.wants("redis_memory")) redis_rows(p);
    if (p.wants("merge_probability")) probability_rows(p);
  });
}
