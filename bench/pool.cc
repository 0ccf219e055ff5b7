// Reads from fm::pool against a bare one-sided read of as many bytes, against asking the agent, and against Redis; and what
// readers notice of a compaction.
#include <array>
#include <atomic>
#include <thread>

#include "peers/bare_read.h"
#include "peers/redis.h"
#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

template <std::size_t Bytes>
struct value {
  std::array<std::uint32_t, Bytes / 4> words{};
};

// Pointers to objects in a scattered order, and a read of each next one that checks what it got. The pointers lie one after the other, so
// that what is measured is the read, and not how the program comes by its pointer.
template <std::size_t Bytes>
class reads {
 public:
  reads(fm::pool& p, std::size_t count) : pool_(p) {
    random_source random(7);
    for (std::uint32_t i = 0; i < count; ++i) {
      value<Bytes> v;
      v.words.fill(i);
      all_.push_back({p.alloc(v), i});
    }
    for (std::size_t i = all_.size(); i > 1; --i) std::swap(all_[i - 1], all_[random.below(i)]);
  }
  turn direct(std::size_t count) {
    return timed(count, [&](fm::pool_ptr<value<Bytes>>& p) { return pool_.read(p); });
  }
  turn by_agent(std::size_t count) {
    return timed(count, [&](fm::pool_ptr<value<Bytes>>& p) { return pool_.rpc_read(p); });
  }

 private:
  template <class F>
  turn timed(std::size_t count, F&& read) {
    turn t;
    t.ns.reserve(count);
    t.value = per_operation(double(count), [&] {
                std::uint64_t last = now_ns();
                for (std::size_t i = 0; i < count; ++i) {
                  object& o = all_[next_ = next_ + 1 == all_.size() ? 0 : next_ + 1];
                  const value<Bytes> v = read(o.pointer);
                  if (v.words.front() != o.word || v.words.back() != o.word)
                    throw fm::error(fm::errc::corrupt, "an object of a pool that holds other bytes");
                  const std::uint64_t now = now_ns();
                  t.ns.push_back(std::uint32_t(now - last));
                  last = now;
                }
              }).value;
    return t;
  }
  struct object {
    fm::pool_ptr<value<Bytes>> pointer;
    std::uint32_t word;
  };
  fm::pool& pool_;
  std::vector<object> all_;
  std::size_t next_ = 0;
};

turn bare(bare_reader& r, std::size_t bytes, std::size_t count, std::uint64_t memory) {
  turn t;
  t.ns.reserve(count);
  std::vector<char> to(bytes);
  random_source random(3);
  const std::uint64_t places = memory / 64 - bytes / 64 - 1;
  t.value = per_operation(double(count), [&] {
              std::uint64_t last = now_ns();
              for (std::size_t i = 0; i < count; ++i) {
                r.read(random.below(places) * 64, to.data(), bytes);
                const std::uint64_t now = now_ns();
                t.ns.push_back(std::uint32_t(now - last));
                last = now;
              }
            }).value;
  return t;
}

template <std::size_t Bytes>
void read_rows(program& p, const std::string& transport, const std::string& url) {
  const std::size_t objects = p.sized<std::size_t>(16'000'000 / (Bytes + 64), 2'000);
  const auto count = p.sized<std::size_t>(transport == "shm" ? 500'000 : 20'000, 2'000);
  const row_spec spec{"read",
                      {{"transport", transport}, {"value", std::to_string(Bytes) + " B"}},
                      "ns",
                      {goal_kind::ratio_at_most, Bytes <= 256 ? 1.02 : 1.05},
                      "bare one-sided read"};
  const row_spec rpc{"rpc_read", spec.parameters, "ns", {}, "asking the agent"};
  if (!p.wants("read") && !p.wants("rpc_read")) return;
  fm::pool pool({.agents = {url}, .name = "read " + std::to_string(Bytes), .tenant = fm::pool_tenant::random()});
  reads<Bytes> r(pool, objects);
  constexpr std::uint64_t memory = 64 << 20;
  bare_reader peer(transport, p.agent_core(), memory);
  p.count_cpu_of(peer.pid());
  p.compare(
      spec, [&] { return r.direct(count); }, [&] { return bare(peer, Bytes, count, memory); });
  p.forget_cpu_of(peer.pid());
  p.compare(
      rpc, [&] { return r.direct(count); }, [&] { return r.by_agent(std::min<std::size_t>(count, 50'000)); }, 5);
}

void redis_row(program& p, const std::string& transport, const std::string& url) {
  const row_spec spec{"redis_get", {{"transport", transport}, {"value", "224 B"}}, "ns", {}, "Redis GET on loopback"};
  if (!p.wants(spec.name)) return;
  try {
    redis peer(p.agent_core());
    const std::size_t objects = p.sized<std::size_t>(200'000, 2'000), count = p.sized<std::size_t>(30'000, 2'000);
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < objects; ++i) peer.set(keys.emplace_back(std::to_string(i)), std::string(224, 'v'));
    fm::pool pool({.agents = {url}, .name = "redis", .tenant = fm::pool_tenant::random()});
    reads<224> r(pool, objects);
    random_source random(5);
    p.count_cpu_of(peer.pid());
    p.compare(
        spec, [&] { return r.direct(count); },
        [&] {
          turn t;
          t.value = per_operation(double(count), [&] {
                      std::uint64_t last = now_ns();
                      for (std::size_t i = 0; i < count; ++i) {
                        if (peer.get(keys[random.below(objects)]) != 224)
                          throw fm::error(fm::errc::corrupt, "redis gave another value");
                        const std::uint64_t now = now_ns();
                        t.ns.push_back(std::uint32_t(now - last));
                        last = now;
                      }
                    }).value;
          return t;
        },
        5);
    p.forget_cpu_of(peer.pid());
  } catch (const fm::error& e) {
    p.left_out(spec, e.what());
  }
}

std::uint64_t active_bytes(const fm::pool& pool) {
  std::uint64_t bytes = 0;
  for (const fm::pool_agent_stats& a : pool.stats().agents) bytes += a.frame_bytes - a.waiting_bytes;
  return bytes;
}

// A quarter of many small objects is left; a reader goes on through the compaction: of a call, which makes its steps one after
// the other, or that which the agent begins by itself, beside its other work.
void compaction_rows(program& p, const std::string& url, bool by_call) {
  const std::vector<std::pair<std::string, std::string>> parameters{
      {"transport", "shm"},
      {"objects", std::to_string(p.sized(1'000'000, 40'000))},
      {"value", "32 B"},
      {"freed", "75%"},
      {"compaction", by_call ? "by call" : "by the agent"}};
  if (!p.wants("compaction_during")) return;
  const auto objects = p.sized<std::size_t>(1'000'000, 40'000), reads_a_turn = p.sized<std::size_t>(2'000'000, 20'000);
  constexpr double begins_above = 0.7495;
  fm::pool pool({.agents = {url},
                 .name = "compaction",
                 .tenant = fm::pool_tenant::random(),
                 .compact_above = by_call ? 0 : begins_above});
  std::vector<fm::pool_ptr<value<32>>> left, dead;
  random_source random(11);
  {
    std::vector<fm::pool_ptr<value<32>>> all;
    for (std::uint32_t i = 0; i < objects; ++i) {
      value<32> v;
      v.words.fill(i);
      all.push_back(pool.alloc(v));
    }
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
    left.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(objects / 4));
    dead.assign(all.begin() + static_cast<std::ptrdiff_t>(objects / 4), all.end());
  }
  // The agent begins with the last ones.
  const auto free_until = [&](std::size_t n) {
    for (; dead.size() > n; dead.pop_back()) pool.free(dead.back());
  };
  free_until(by_call ? 0 : objects / 500);
  const std::uint64_t before_bytes = active_bytes(pool);
  std::vector<std::uint32_t> ns;
  // Reads until `enough` says so; reads a second.
  const auto read = [&](const std::function<bool(std::size_t)>& enough) {
    ns.clear();
    const std::uint64_t begin = now_ns();
    std::uint64_t last = begin;
    std::size_t done = 0;
    for (; !enough(done); ++done) {
      const value<32> v = pool.read(left[random.below(left.size())]);
      if (v.words.front() != v.words.back()) throw fm::error(fm::errc::corrupt, "a torn object");
      const std::uint64_t now = now_ns();
      ns.push_back(std::uint32_t(now - last));
      last = now;
    }
    return double(done) / (double(last - begin) * 1e-9) / 1e6;
  };
  const auto fixed = [&](std::size_t n) { return n >= reads_a_turn; };
  read(fixed);
  const double before = read(fixed);
  const std::uint64_t longest_before = *std::max_element(ns.begin(), ns.end());
  std::atomic<bool> over{false};
  std::exception_ptr failed;
  fm::pool_compaction made;
  const auto moved = [&] {
    std::uint64_t n = 0;
    for (const auto& a : pool.stats().agents)
      for (const auto& c : a.classes) n += c.objects_moved;
    return n;
  };
  // Until the agent has moved nothing for a while.
  const auto await_agent = [&] {
    free_until(0);
    std::uint64_t seen = 0;
    for (int still = 0; still < 5 || seen == 0; ++still) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      made.objects_moved = moved();
      if (std::exchange(seen, made.objects_moved) != made.objects_moved) still = 0;
      if (still > 5000) throw fm::error(fm::errc::timed_out, "the agent does not compact the pool");
    }
  };
  // The call waits for the agent's steps, spinning at first: beside the reader it would take half of what is measured.
  std::thread compactor([&] {
    if (p.pinned()) pin_to_core(0, p.agent_core());
    try {
      if (by_call)
        made = pool.compact();
      else
        await_agent();
    } catch (...) {
      failed = std::current_exception();
    }
    over = true;
  });
  const double during = read([&](std::size_t n) { return over.load(std::memory_order_relaxed) && n != 0; });
  compactor.join();
  if (failed) std::rethrow_exception(failed);
  const std::uint64_t longest = *std::max_element(ns.begin(), ns.end());
  const double after = read(fixed);
  const auto ratio_row = [&](const std::string& name, double v, const goal& g) {
    p.measure({name, parameters, "of before", g, {}}, v / before);
  };
  p.measure({"compaction_before", parameters, "Mops/s", {}, {}}, before);
  ratio_row("compaction_during", during, {goal_kind::value_at_least, 0.9});
  ratio_row("compaction_after", after, {goal_kind::value_at_least, 0.9});
  p.measure({"compaction_longest_read", parameters, "ms", {goal_kind::value_at_most, 1}, {}}, double(longest) * 1e-6);
  p.measure({"compaction_longest_read_before", parameters, "ms", {}, {}}, double(longest_before) * 1e-6);
  p.measure({"compaction_objects_moved", parameters, "", {}, {}}, double(made.objects_moved));
  const double ideal = double(before_bytes) * double(left.size()) / double(objects);
  p.measure({"compaction_memory", parameters, "of the ideal", {}, {}}, double(active_bytes(pool)) / ideal);
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"bare_memory", bare_memory_main}});
  program p("pool", "Reads of shared objects, against bare one-sided reads and Redis, and compaction beside them");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const counted_agent agent(p, binary, url, "4GiB");
      read_rows<16>(p, transport, agent.url());
      read_rows<44>(p, transport, agent.url());
      read_rows<224>(p, transport, agent.url());
      read_rows<1024>(p, transport, agent.url());
      read_rows<4096>(p, transport, agent.url());
      redis_row(p, transport, agent.url());
      if (transport == "shm")
        for (const bool by_call : {true, false}) compaction_rows(p, agent.url(), by_call);
    }
  });
}
