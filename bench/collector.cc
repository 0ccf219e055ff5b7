// The collector: how fast an agent traces, how long the program is stopped, and what a cycle costs a program that goes on. The
// agent has a core of its own; the program and its collector's thread share the other.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <span>
#include <thread>

#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

double seconds_of(std::uint64_t ns) { return double(ns) * 1e-9; }

fm::cycle_report collect(fm::heap& h) {
  fm::cycle_report r = h.collect("bench");
  if (!r.ok()) throw fm::error(r.status, r.failure);
  return r;
}

// Chains of `length` nodes, one root each; the chains' nodes lie scattered, because they are made in turns.
std::vector<fm::ptr<tree_node>> make_chains(fm::heap& h, std::size_t chains, std::size_t length) {
  std::vector<fm::ptr<tree_node>> all(chains);
  for (std::size_t i = 0; i < length; ++i)
    for (std::size_t c = 0; c < chains; ++c) all[c] = h.make<tree_node>({.value = c, .left = all[c]});
  return all;
}

// A binary tree whose nodes are numbered as in a heap and made in a random order: every reference leads somewhere else.
fm::ptr<tree_node> make_tree(fm::heap& h, std::size_t count) {
  std::vector<fm::ptr<tree_node>> nodes(count);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  random_source random(7);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const std::uint32_t i : order) nodes[i] = h.make<tree_node>({.value = i});
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = nodes[i].write();
    if (2 * i + 1 < count) n->left = nodes[2 * i + 1];
    if (2 * i + 2 < count) n->right = nodes[2 * i + 2];
  }
  return nodes[0];
}

void tracing(program& p, const std::string& binary, std::size_t count) {
  const counted_agent agent(p, binary, "shm://", "8GiB");
  fm::heap h({.cache = std::uint64_t{64} << 20, .agents = {agent.url()}, .collect = false});
  const auto measure_all = [&](const char* shape) {
    if (h.evict_all() != fm::errc::ok) throw fm::error(fm::errc::timed_out, "eviction before tracing");
    const std::vector<std::pair<std::string, std::string>> parameters{
        {"objects", std::to_string(count)}, {"object", "64 B"}, {"shape", shape}, {"threads", "1"}};
    p.measure({"tracing", parameters, "M/s", {goal_kind::value_at_least, 12}, {}}, [&] {
      const fm::cycle_report r = collect(h);
      return turn{double(r.agents[0].marked) / 1e6 / seconds_of(r.agents[0].tracing_ns), {}, 0};
    });
    p.measure({"tracing_bytes", parameters, "GB/s", {goal_kind::value_at_least, 1}, {}}, [&] {
      const fm::cycle_report r = collect(h);
      return turn{double(r.agents[0].scanned_bytes) / 1e9 / seconds_of(r.agents[0].tracing_ns), {}, 0};
    });
  };
  {
    const auto chains = make_chains(h, 1024, count / 1024);
    measure_all("1024 chains");
  }
  collect(h);
  const auto root = make_tree(h, count);
  measure_all("tree, scattered");
}

// A program that reads and changes chains, Zipf-distributed, half and half. A change replaces the second node of a chain: one
// dead object, one overwritten reference.
class changing {
 public:
  changing(std::span<const fm::ptr<tree_node>> chains, fm::heap& h)
      : chains_(chains), heap_(h), keys_(chains.size(), 0.99), random_(11) {}

  turn run(double seconds, std::vector<fm::pause_record>* gaps) {
    turn t;
    const std::uint64_t begin = now_ns(), end = begin + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t now = begin, done = 0;
    while (now < end) {
      one();
      const std::uint64_t then = now_ns();
      t.ns.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(then - now, ~std::uint32_t{0})));
      if (gaps && then - now > 20'000)
        gaps->push_back({fm::time_point(std::chrono::nanoseconds(now)), then - now, false});
      now = then;
      ++done;
    }
    t.value = double(now - begin) / double(done);
    return t;
  }

 private:
  void one() {
    const fm::ptr<tree_node>& root = chains_[keys_(random_)];
    if (random_.next() % 2 == 0) {
      sum_ += root->value;
      return;
    }
    const auto w = root.write();
    const fm::ptr<tree_node> second = w->left;
    w->left = heap_.make<tree_node>({.value = second->value, .left = second->left.root()});
  }
  std::span<const fm::ptr<tree_node>> chains_;
  fm::heap& heap_;
  zipf_keys keys_;
  random_source random_;
  std::uint64_t sum_ = 0;
};

// The least share of 10 ms or more that was left to the program, given the stretches in which it was held up.
double least_share(const std::vector<fm::pause_record>& gaps) {
  if (gaps.empty()) return 1;
  constexpr auto around = std::chrono::milliseconds(10);
  return fm::bounded_utilisation(gaps, gaps.front().begin - around, gaps.back().begin + around, around);
}

double quantile_us(std::vector<std::uint32_t> ns, double q) {
  if (ns.empty()) return 0;
  const auto at = ns.begin() + static_cast<std::ptrdiff_t>(q * double(ns.size() - 1));
  std::nth_element(ns.begin(), at, ns.end());
  return double(*at) / 1000;
}

// With more than one mutator they share a core with each other and the collector, so that whoever holds a pause may have to wait
// for the processor; the goals are for one.
void pauses(program& p, const std::string& binary, std::size_t roots, std::size_t length, std::size_t mutators) {
  const counted_agent agent(p, binary, "shm://", "8GiB");
  const std::size_t live = roots * length;
  fm::heap h({.cache = live * frame_bytes<64> / 4, .agents = {agent.url()}, .collect = false});
  const auto chains = make_chains(h, roots, length);
  const double seconds = p.sized(4.0, 1.0);
  const std::vector<std::pair<std::string, std::string>> parameters{{"live objects", std::to_string(live)},
                                                                    {"roots", std::to_string(roots)},
                                                                    {"cache", "25%"},
                                                                    {"mutators", std::to_string(mutators)}};
  const bool alone = mutators == 1;
  std::vector<changing> work;
  for (std::size_t m = 0; m < mutators; ++m)
    work.emplace_back(std::span(chains).subspan(m * (roots / mutators), roots / mutators), h);
  // All of them at once; what is measured is the first.
  const auto run = [&](std::vector<fm::pause_record>* gaps) {
    std::vector<std::thread> others;
    for (std::size_t m = 1; m < mutators; ++m) others.emplace_back([&, m] { work[m].run(seconds, nullptr); });
    turn t = work[0].run(seconds, gaps);
    for (std::thread& o : others) o.join();
    return t;
  };
  run(nullptr);

  const auto bound = [&](goal g) { return alone ? g : goal{}; };
  std::atomic<bool> stop{false};
  std::vector<fm::pause_record> gaps, control_gaps;
  turn cycling, control;
  const auto with_cycles = [&] {
    stop = false;
    std::thread cycles([&] {
      while (!stop.load()) {
        const std::uint64_t seen = h.stats().last_cycle.number;
        h.collect_soon("bench");
        while (h.stats().last_cycle.number == seen)  // to its end, for the turn that follows has none
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    turn t = run(&gaps);
    stop = true;
    cycles.join();
    cycling.ns.insert(cycling.ns.end(), t.ns.begin(), t.ns.end());
    return t;
  };
  const auto without = [&] {
    turn t = run(&control_gaps);
    control.ns.insert(control.ns.end(), t.ns.begin(), t.ns.end());
    return t;
  };
  p.compare({"program_while_cycles_run", parameters, "ns", bound({goal_kind::ratio_at_most, 1.1}), "no cycle"},
            with_cycles, without, 3);
  const auto s = h.stats();
  const auto figure = [&](const char* name, const char* unit, goal g, double value) {
    p.measure({name, parameters, unit, bound(g), {}}, value);
  };
  figure("pause_p50", "us", {goal_kind::value_at_most, 100}, double(s.pause_ns.quantile_ns(0.5)) / 1000);
  figure("pause_p99", "us", {goal_kind::value_at_most, 1000}, double(s.pause_ns.quantile_ns(0.99)) / 1000);
  figure("pause_max", "us", {}, double(s.pause_ns.max_ns) / 1000);
  figure("cycles", "", {}, double(s.collections));
  figure("cycle_ms", "ms", {}, double(s.last_cycle.total_ns) / 1e6);
  figure("stall_p99.99", "us", {goal_kind::value_at_most, 1000}, quantile_us(cycling.ns, 0.9999));
  figure("stall_p99.99_without_cycles", "us", {}, quantile_us(control.ns, 0.9999));
  figure("bmu_10_ms", "", {goal_kind::value_at_least, 0.9}, s.bmu(std::chrono::milliseconds(10)));
  figure("waits_for_pauses_p99", "us", {}, double(s.gate_ns.quantile_ns(0.99)) / 1000);
  figure("waits_for_pauses_max", "us", {}, double(s.gate_ns.max_ns) / 1000);
  figure("least_share_of_10_ms", "", {}, least_share(gaps));
  figure("least_share_of_10_ms_without_cycles", "", {}, least_share(control_gaps));
  std::fprintf(stderr, "%s\n%s\n", s.last_cycle.text().c_str(), s.text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  program p("collector", "Tracing on an agent, pauses, and the program while cycles run");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    tracing(p, binary, p.sized<std::size_t>(1 << 22, 1 << 20));
    for (const std::size_t mutators : {1, 2}) pauses(p, binary, p.sized<std::size_t>(1'000'000, 100'000), 10, mutators);
  });
}
