// CoRM (Taranov, Di Girolamo, Hoefler, SIGMOD 2021): figures 9 and 10, 12 to 17. Objects are a hundredth of the paper's.
#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <unistd.h>

#include "../peers/bare_read.h"
#include "../support/zipf.h"
#include "papers.h"

namespace fm::bench {
namespace {

struct value {
  std::array<std::uint32_t, 8> words{};
};
using pointer = fm::pool_ptr<value>;
using pointers = std::vector<pointer>;
using parameters = std::vector<std::pair<std::string, std::string>>;
constexpr std::uint64_t bare_bytes = 1 << 20;

value value_of(std::uint32_t word) {
  value v;
  v.words.fill(word);
  return v;
}
void check(const value& v) {
  for (const std::uint32_t w : v.words)
    if (w != v.words[0]) throw error(errc::corrupt, "a torn object of a pool");
}

pool_options options_for(const std::string& url, const std::string& name) {
  return {.agents = {url}, .name = name, .tenant = pool_tenant::random(), .compact_above = 0};
}

pointers allocate(pool& p, std::size_t count) {
  pointers all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(p.alloc(value_of(std::uint32_t(i))));
  return all;
}

// Frees all but about one in `out_of`; what is left.
pointers thin_out(pool& p, const pointers& all, std::uint64_t out_of) {
  random_source random(11);
  pointers left;
  for (const pointer& q : all) {
    if (random.below(out_of) == 0)
      left.push_back(q);
    else
      p.free(q);
  }
  return left;
}

// Those of `left` whose object is not where they say any more. Reading on the way learns the table's words.
pointers indirect_ones(pool& p, const pointers& left) {
  pointers moved;
  for (const pointer& q : left) {
    pointer corrected = q;
    check(p.read(corrected));
    if (corrected.address().hint() != q.address().hint()) moved.push_back(q);
  }
  if (moved.empty()) throw error(errc::not_found, "no object has changed its slot in a compaction");
  return moved;
}

class operations {
 public:
  operations(program& p, const std::string& binary, const std::string& transport, const std::string& url)
      : program_(p),
        transport_(transport),
        agent_(p, binary, url, "1GiB"),
        pool_(options_for(agent_.url(), "operations")),
        bare_(transport, p.agent_core(), bare_bytes),
        count_(p.sized<std::size_t>(4'000, 200)) {
    p.count_cpu_of(bare_.pid());
  }
  ~operations() { program_.forget_cpu_of(bare_.pid()); }
  operations(const operations&) = delete;
  operations& operator=(const operations&) = delete;

  // Figure 9, and the right half of figure 10: what a call costs beyond a bare one.
  void over_a_bare_call() {
    pointers standing = allocate(pool_, count_), made;
    const auto nothing = [] {};
    row("corm_9_alloc", 0.5, nothing, [&](std::size_t i) { (void)pool_.alloc(value_of(std::uint32_t(i))); });
    row(
        "corm_9_free", 0.5, [&] { made = allocate(pool_, count_); }, [&](std::size_t i) { pool_.free(made[i]); });
    row("corm_9_write", 0, nothing, [&](std::size_t i) { pool_.write(standing[i], value_of(1)); });
    row("corm_9_read_by_call", 0, nothing, [&](std::size_t i) { check(pool_.rpc_read(standing[i])); });
  }

  // Figure 10: the same by pointers whose objects have moved.
  void indirect() {
    const pointers left = thin_out(pool_, allocate(pool_, 10 * count_), 4);
    (void)pool_.compact();
    pointers moved = indirect_ones(pool_, left), direct = moved;
    for (pointer& q : direct) check(pool_.read(q));
    const auto compare = [&](const char* name, goal g, const char* peer, auto&& ours, auto&& theirs) {
      program_.compare(
          {name, {{"transport", transport_}, {"value", "32 B"}}, "ns", g, peer}, [&] { return each(moved, ours); },
          [&] { return each(direct, theirs); }, 5);
    };
    const auto by_call = [&](pointer& q) { check(pool_.rpc_read(q)); };
    const auto one_sided = [&](pointer& q) { check(pool_.read(q)); };
    const auto write = [&](pointer& q) { pool_.write(q, value_of(2)); };
    compare("corm_10_read_by_call", {goal_kind::ratio_at_most, 1.05}, "direct pointers", by_call, by_call);
    compare("corm_10_write", {goal_kind::ratio_at_most, 1.05}, "direct pointers", write, write);
    compare("corm_10_correction", {goal_kind::ratio_at_most, 1}, "asking the agent", one_sided, by_call);
    // Each is released once: an old pointer that is released again is none.
    std::size_t next = 0;
    row(
        "corm_10_release", 0.3, [] {},
        [&](std::size_t) {
          if (next == direct.size()) throw error(errc::not_found, "too few objects have moved");
          pool_.release(direct[next++]);
        },
        std::clamp<std::size_t>(direct.size() / 40, 1, count_));  // enough for 39 turns
  }

 private:
  // Medians of turns of both, the difference in µs. A bare call takes the lane that calls of a pool take. `at_most` 0: the paper's text has no figure.
  template <class Prepare, class F>
  void row(const char* name, double at_most, Prepare&& prepare, F&& operation, std::size_t count = 0) {
    if (count == 0) count = count_;
    const row_spec spec{name,
                        {{"transport", transport_}, {"value", "32 B"}},
                        "us",
                        at_most == 0 ? goal{} : goal{goal_kind::value_at_most, at_most},
                        {}};
    program_.measure(
        spec,
        [&] {
          prepare();
          const double bare = medians(count, [&](std::size_t) { bare_.call(32); }).value;
          turn t = medians(count, operation);
          t.value = (t.value - bare) / 1000;
          return t;
        },
        5);
  }
  // Every pointer is a copy, so that an indirect one stays so.
  template <class F>
  turn each(const pointers& all, F&& operation) {
    return medians(std::min(count_, all.size()), [&](std::size_t i) {
      pointer q = all[i];
      operation(q);
    });
  }

  program& program_;
  std::string transport_;
  counted_agent agent_;
  pool pool_;
  bare_reader bare_;
  std::size_t count_;
};

// ---- figures 12, 13 ----

class clients {
 public:
  clients(const std::string& url, const pool& pool, const std::string& file, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      all_.emplace_back("corm_client", std::vector<std::string>{url, pool.tenant().text(), file}, -2);
  }
  // All at once; thousands of operations a second, from the first begin to the last end.
  turn run(const std::string& reads, const std::string& s, std::size_t each, bool by_call) {
    for (worker& c : all_)
      c.post("run " + reads + " " + s + " " + std::to_string(each) + " " + std::to_string(++seed_) + " " +
             (by_call ? "1" : "0"));
    double begin = 1e300, end = 0;
    for (worker& c : all_) {
      const figures f = c.answer("run");
      begin = std::min(begin, f.at("begin"));
      end = std::max(end, f.at("end"));
      failed += f.at("failed");
      one_sided += f.at("one_sided");
    }
    return {double(all_.size() * each) / (end - begin) * 1e6, {}, 0};
  }
  double failed = 0, one_sided = 0;  ///< one-sided reads that met a change or a moved object, and all

 private:
  std::vector<worker> all_;
  int seed_ = 0;
};

void mixes(program& p, const std::string& binary) {
  if (!p.wants("corm_12") && !p.wants("corm_13")) return;
  const auto objects = p.sized<std::size_t>(80'000, 2'000), each = p.sized<std::size_t>(10'000, 300);
  const counted_agent agent(p, binary, "shm://", "1GiB");
  pool pool(options_for(agent.url(), "mixes"));
  const pointers all = allocate(pool, objects);
  const std::string file = "/tmp/farmem-bench-papers-" + std::to_string(getpid());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(all.data()), std::streamsize(all.size() * sizeof all[0]));
  clients two(agent.url(), pool, file, 2);
  unlink(file.c_str());
  for (const auto& distribution : {std::pair{"uniform", "0"}, {"zipf 0.99", "0.99"}})
    for (const char* const reads : {"0.5", "0.95", "1"}) {
      const char *const keys = distribution.first, *const s = distribution.second;
      const bool only_reads = reads == std::string("1"), skewed = s != std::string("0");
      const goal g = only_reads                    ? goal{goal_kind::ratio_at_least, skewed ? 3.1 : 2.5}
                     : reads == std::string("0.5") ? goal{goal_kind::ratio_at_least, 2}
                                                   : goal{};
      two.failed = two.one_sided = 0;
      p.compare(
          {"corm_12",
           {{"transport", "shm"},
            {"keys", keys},
            {"reads", reads},
            {"clients", "2"},
            {"objects", std::to_string(objects)}},
           "K/s",
           g,
           "reads by call"},
          [&] { return two.run(reads, s, only_reads ? 10 * each : each, false); },
          [&] { return two.run(reads, s, each, true); }, 3);
      if (!skewed || reads != std::string("0.5")) continue;
      p.measure({"corm_13",
                 {{"transport", "shm"}, {"keys", keys}, {"reads", reads}, {"clients", "2"}},
                 "of all",
                 {goal_kind::value_at_most, 0.001},
                 {}},
                two.failed / std::max(1.0, two.one_sided));
    }
}

// Figure 14: as many objects in memory that is full, and in memory of which half was freed.
void fragmented(program& p, const std::string& binary) {
  if (!p.wants("corm_14")) return;
  const auto objects = p.sized<std::size_t>(80'000, 2'000), reads = p.sized<std::size_t>(400'000, 4'000);
  const counted_agent agent(p, binary, "shm://", "1GiB");
  pool full(options_for(agent.url(), "full")), half(options_for(agent.url(), "half"));
  pointers packed = allocate(full, objects), sparse = thin_out(half, allocate(half, 2 * objects), 2);
  sparse.resize(std::min(sparse.size(), packed.size()));
  packed.resize(sparse.size());
  const auto read = [&](pool& from, const pointers& all) {
    random_source random(3);
    const zipf_keys keys(all.size(), 0.6);
    std::vector<std::uint32_t> order(reads);
    for (std::uint32_t& o : order) o = std::uint32_t(keys(random));
    return rate(double(reads), 1e6, [&] {
      for (const std::uint32_t i : order) check(from.read(all[i]));
    });
  };
  p.compare(
      {"corm_14",
       {{"transport", "shm"}, {"keys", "zipf 0.6"}, {"objects", std::to_string(packed.size())}},
       "M/s",
       {goal_kind::ratio_at_least, 1.25},
       "half of it freed"},
      [&] { return read(full, packed); }, [&] { return read(half, sparse); }, 5);
}

// Figure 15: so many threads allocate one object each, which makes as many blocks. µs of the call `compact`, and the merges that it made.
std::pair<double, double> compaction_of(pool& pool, std::size_t blocks) {
  pointers made(blocks);
  for (pointer& q : made) std::thread([&] { q = pool.alloc(value_of(1)); }).join();
  const std::uint64_t begin = now_ns();
  const pool_compaction c = pool.compact();
  const double us = double(now_ns() - begin) / 1000;
  if (c.merges_made == 0) throw error(errc::not_found, "no block was merged: all objects were in one");
  for (const pointer& q : made) pool.free(q);
  return {us, double(c.merges_made)};
}

pool pool_of_arenas(const counted_agent& agent, std::uint32_t block, std::uint32_t arenas) {
  pool_options o = options_for(agent.url(), "compaction " + std::to_string(block) + " " + std::to_string(arenas));
  o.block = block;
  o.arenas = arenas;
  return pool(o);
}

void compaction_time(program& p, const std::string& binary) {
  if (!p.wants("corm_15") && !p.wants("corm_15_threads")) return;
  const counted_agent agent(p, binary, "shm://", "1GiB");
  for (const auto& [block, at_most] : {std::pair{4u << 10, 100.0}, {64u << 10, 1'000.0}, {1u << 20, 12'000.0}}) {
    // The paper's text has a time for the smallest and the largest.
    const goal g = block == 64u << 10 ? goal{} : goal{goal_kind::value_at_most, at_most};
    pool pool = pool_of_arenas(agent, block, 16);
    p.measure({"corm_15", {{"block", std::to_string(block >> 10) + " KiB"}, {"blocks", "16"}}, "us", g, {}}, [&] {
      const auto [us, merges] = compaction_of(pool, 16);
      return turn{us / merges, {}, 0};
    });
  }
  // By the number of threads: the paper's collection of blocks, 10 µs for 2 and 31 µs for 16, and 100 µs for each block that is merged.
  for (const auto& [threads, at_most] : {std::pair{2u, 110.0}, {4u, 0.0}, {8u, 0.0}, {16u, 1'531.0}}) {
    pool pool = pool_of_arenas(agent, 4u << 10, threads);
    p.measure({"corm_15_threads",
               {{"threads", std::to_string(threads)}, {"block", "4 KiB"}},
               "us",
               at_most == 0 ? goal{} : goal{goal_kind::value_at_most, at_most},
               {}},
              [&, threads = threads] {
                return turn{compaction_of(pool, threads).first, {}, 0};
              });
  }
}

// Figure 17 with everything that an agent holds for the pool, for each byte of payload: blocks, with headers, and books. The paper counts blocks
// and ids.
void memory_in_all(program& p, const std::string& binary) {
  if (!p.wants("corm_17_full") && !p.wants("corm_17_freed")) return;
  for (const auto& [payload, at_most] : {std::pair{32u, 1.5}, {200u, 1.15}}) {
    const counted_agent agent(p, binary, "shm://", "1GiB");
    pool pool(options_for(agent.url(), "all"));
    const auto held = [&] {
      const pool_agent_stats s = pool.stats().agents.at(0);
      return double(s.frame_bytes + s.books_bytes);
    };
    const double empty = held();
    const std::vector<std::byte> bytes(payload);
    std::vector<pool_address> all;
    for (std::size_t i = 0; i < p.sized<std::size_t>(1 << 20, 1 << 15); ++i) all.push_back(pool.alloc_bytes(bytes));
    const auto figure = [&](const char* name, const char* unit, double bound, double value) {
      p.measure({name, {{"payload", std::to_string(payload) + " B"}}, unit, {goal_kind::value_at_most, bound}, {}},
                value);
    };
    const double full = (held() - empty) / (double(all.size()) * payload);
    figure("corm_17_full", "a byte", at_most, full);
    random_source random(payload);
    std::size_t left = 0;
    for (const pool_address& a : all) {
      if (random.unit() < 0.9)
        pool.free(a);
      else
        ++left;
    }
    (void)pool.compact();
    figure("corm_17_freed", "of full", 1.1, (held() - empty) / (double(left) * payload) / full);
  }
}

// Figure 16: one reader before and during a compaction, by call and one-sided.
void readers_beside(program& p, const std::string& binary, bool by_call) {
  if (!p.wants("corm_16")) return;
  const auto objects = p.sized<std::size_t>(80'000, 4'000),
             reads = p.sized<std::size_t>(by_call ? 20'000 : 500'000, 2'000);
  const parameters of{{"transport", "shm"},
                      {"reads", by_call ? "by call" : "one-sided"},
                      {"objects", std::to_string(objects)},
                      {"freed", "75%"}};
  std::vector<double> during, longest, after;
  for (int round = 0; round < p.sized(3, 1); ++round) {
    const counted_agent agent(p, binary, "shm://", "1GiB");
    pool pool(options_for(agent.url(), "readers"));
    pointers left = thin_out(pool, allocate(pool, objects), 4);
    std::uint64_t slowest = 0;
    // Sequentially, as the paper's client. Reads until `enough`; reads a second.
    const auto read = [&](auto&& enough) {
      const std::uint64_t begin = now_ns();
      std::uint64_t last = begin;
      std::size_t done = 0;
      slowest = 0;
      for (; !enough(done); ++done) {
        pointer& q = left[done % left.size()];
        check(by_call ? pool.rpc_read(q) : pool.read(q));
        const std::uint64_t now = now_ns();
        slowest = std::max(slowest, now - last);
        last = now;
      }
      return double(done) / double(last - begin);
    };
    const auto fixed = [&](std::size_t n) { return n >= reads; };
    read(fixed);
    const double before = read(fixed);
    std::atomic<bool> over{false};
    std::exception_ptr failed;
    std::thread compactor([&] {
      if (p.pinned()) pin_to_core(0, p.agent_core());
      try {
        (void)pool.compact();
      } catch (...) {
        failed = std::current_exception();
      }
      over = true;
    });
    during.push_back(read([&](std::size_t n) { return over.load(std::memory_order_relaxed) && n != 0; }) / before);
    compactor.join();
    if (failed) std::rethrow_exception(failed);
    longest.push_back(double(slowest) * 1e-6);
    after.push_back(read([&](std::size_t n) { return n >= left.size(); }) / before);
  }
  const auto figure = [&](const char* name, const char* unit, goal g, std::vector<double> values) {
    p.measure({name, of, unit, g, {}}, summarize(std::move(values)).median);
  };
  figure("corm_16_during", "of before", {goal_kind::value_at_least, by_call ? 0.78 : 0.95}, during);
  figure("corm_16_correcting", "of before", {goal_kind::value_at_least, 0.95}, after);
  figure("corm_16_longest", "ms", by_call ? goal{goal_kind::value_at_most, 700} : goal{}, longest);
}

}  // namespace

int corm_client_main(const std::vector<std::string>& args) {
  pool pool({.agents = {args.at(0)}, .name = "mixes", .tenant = pool_tenant::parse(args.at(1))});
  std::ifstream in(args.at(2), std::ios::binary | std::ios::ate);
  pointers all(std::size_t(in.tellg()) / sizeof(pointer));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(all.data()), std::streamsize(all.size() * sizeof all[0]));
  for (const pointer& q : all) check(pool.read(q));
  return serve_commands({}, [&](const std::vector<std::string>& words) {
    const double reads = std::stod(words.at(1));
    const bool by_call = words.at(5) == "1";
    random_source random(std::stoull(words.at(4)));
    const zipf_keys keys(all.size(), std::stod(words.at(2)));
    std::vector<std::pair<std::uint32_t, bool>> order(std::stoull(words.at(3)));
    std::size_t one_sided = 0;
    for (auto& [key, read] : order) {
      key = std::uint32_t(keys(random));
      read = random.unit() < reads;
      one_sided += read && !by_call;
    }
    const pool_stats before = pool.stats();
    const std::uint64_t begin = now_ns();
    for (const auto& [key, read] : order) {
      if (!read)
        pool.write(all[key], value_of(key));
      else
        check(by_call ? pool.rpc_read(all[key]) : pool.read(all[key]));
    }
    const std::uint64_t end = now_ns();
    const pool_stats s = pool.stats();
    return figures{{"begin", double(begin)},
                   {"end", double(end)},
                   {"failed", double(s.torn - before.torn + s.moved - before.moved)},
                   {"one_sided", double(one_sided)}};
  });
}

void corm_rows(program& p, const std::string& binary) {
  if (p.wants("corm_9") || p.wants("corm_10")) {
    for (const auto& [transport, url] : transports()) {
      operations o(p, binary, transport, url);
      o.over_a_bare_call();
      o.indirect();
    }
  }
  mixes(p, binary);
  fragmented(p, binary);
  compaction_time(p, binary);
  memory_in_all(p, binary);
  readers_beside(p, binary, true);
  readers_beside(p, binary, false);
}

}  // namespace fm::bench
