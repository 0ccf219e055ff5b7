// Semeru (OSDI 2020): table 5, tracing near the data and through the cache; figure 9, how much memory a program takes on the agents; figure 13,
// fetches of a whole program with and without objects that are laid out anew. The cache holds a quarter of the objects, as in the paper.
#include "heap/heap_core.h"
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "../support/scattered_tree.h"
#include "mixes.h"

namespace fm::bench {
namespace {

using fm::detail::tracing;
using tree = fm::ptr<tree_node>;

cycle_report collect(heap& h, evacuate which = evacuate::sparse) {
  cycle_report r = h.collect("bench", which);
  if (!r.ok()) throw error(r.status, r.failure);
  return r;
}

// MB/s of the home copies of live objects, by the time that marking took.
turn traced(heap& h, tracing who) {
  h.core().gc().trace_by(who);
  const cycle_report r = collect(h);
  constexpr double home_bytes = sizeof(tree_node) + 8;
  return {double(r.marked) * home_bytes / 1e6 / (double(r.mark_ns) * 1e-9), {}, 0};
}

// Lets a process run for a share of each 10 ms, as a quota of the kernel's scheduler would: a processor with a lower frequency.
class slow_process {
 public:
  slow_process(pid_t pid, double share) : pid_(pid), share_(share), thread_([this] { run(); }) {}
  ~slow_process() {
    over_ = true;
    thread_.join();
  }
  slow_process(const slow_process&) = delete;
  slow_process& operator=(const slow_process&) = delete;

 private:
  void run() {
    constexpr std::chrono::microseconds period(10'000);
    const auto runs = std::chrono::microseconds(std::lround(share_ * double(period.count())));
    while (!over_) {
      std::this_thread::sleep_for(runs);
      kill(pid_, SIGSTOP);
      std::this_thread::sleep_for(period - runs);
      kill(pid_, SIGCONT);
    }
  }
  const pid_t pid_;
  const double share_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

void tracing_rows(program& p, const std::string& binary) {
  if (!p.wants("semeru_t5")) return;
  const auto count = p.sized<std::size_t>(1 << 19, 1 << 15);
  const counted_agent agent(p, binary, "shm://", "2GiB");
  heap h({.cache = std::max<std::uint64_t>(count * frame_bytes<64> / 4, 2 << 20),
          .agents = {agent.url()},
          .collect = false,
          .collect_share = 1});
  const tree root = make_scattered_tree(h, count);
  go_home(h);
  // The paper's processor has 1.2 GHz in place of 2.6 then.
  constexpr double slow = 1.2 / 2.6;
  for (const auto& [share, at_least] : {std::pair{1.0, 9.8}, {slow, 4.45}}) {
    const auto by_agents = [&, share = share] {
      if (share == 1.0) return traced(h, tracing::agents);
      const slow_process agent_is_slow(agent.pid(), share);
      return traced(h, tracing::agents);
    };
    p.compare(
        {"semeru_t5",
         {{"transport", "shm"},
          {"objects", std::to_string(count)},
          {"object", "64 B"},
          {"cache", "25%"},
          {"agent", share == 1.0 ? "full speed" : "46% of its speed"}},
         "MB/s",
         {goal_kind::ratio_at_least, at_least},
         "the owner traces"},
        by_agents, [&] { return traced(h, tracing::compute_node); }, 3);
  }
}

// Regions of a program's heap on the agent, on average from its first full collection on, in MiB.
double regions_of(const std::string& binary, program& p, const mix& m, tracing who, bool continuously) {
  const auto keys = p.sized<std::uint64_t>(200'000, 20'000), operations = 10 * keys;
  const agent server(binary, "shm://", p.agent_core(),
                     {"--memory", "1GiB", "--log-level", "warning", "--region", "1MiB"});
  p.count_cpu_of(server.pid());
  double mean = 0;
  {
    heap h({.cache = std::max<std::uint64_t>(keys * frame_bytes<128> / 4, 4 << 20),
            .agents = {server.url()},
            .collect_continuously = continuously});
    h.core().gc().trace_by(who);
    managed_store store(h, keys);
    client c(store, keys, m);
    double sum = 0, samples = 0;
    for (std::uint64_t i = 0; i < operations; ++i) {
      c.one();
      if (i % 1024 != 0) continue;
      const heap_stats s = h.stats();
      if (s.collections == 0 && !p.quick()) continue;
      sum += double(s.regions);
      ++samples;
    }
    if (samples == 0) throw error(errc::timed_out, "no collection has ended");
    mean = sum / samples;
  }
  p.forget_cpu_of(server.pid());
  return mean;
}

// Figure 9, a and b: against a collector that traces through the cache. Figure 9c: with and without tracing all the while.
void footprint_rows(program& p, const std::string& binary) {
  if (!p.wants("semeru_9ab") && !p.wants("semeru_9c")) return;
  const auto row = [&](const char* name, const mix& m, const char* peer, bool ours_continuously, tracing theirs) {
    p.compare(
        {name,
         {{"transport", "shm"}, {"program", m.name}, {"cache", "25%"}},
         "MiB",
         {goal_kind::ratio_at_most, 1},
         peer},
        [&] {
          return turn{regions_of(binary, p, m, tracing::agents, ours_continuously), {}, 0};
        },
        [&] {
          return turn{regions_of(binary, p, m, theirs, false), {}, 0};
        },
        3);
  };
  for (const mix& m : {cii, cui}) {
    row("semeru_9ab", m, "the owner traces", false, tracing::compute_node);
    row("semeru_9c", m, "collections by need", true, tracing::agents);
  }
}

// Depth first; every hundredth node gets a new left child, which takes over the references of the old one.
void walk_and_change(heap& h, const tree& root, std::size_t count) {
  std::size_t seen = 0;
  std::vector<tree> open{root};
  while (!open.empty()) {
    const tree node = std::move(open.back());
    open.pop_back();
    if (!node) continue;
    if (++seen % 100 == 0) {
      if (const tree old = node->left.root()) {
        const tree fresh =
            h.make<tree_node>({.value = old->value, .left = old->left.root(), .right = old->right.root()});
        node.write()->left = fresh;
      }
    }
    open.push_back(node->right.root());
    open.push_back(node->left.root());
  }
  if (seen != count) throw error(errc::corrupt, "the tree is another");
}

// Fetches that the program waits for, from the first walk to the last, collections included.
double misses_of_program(const std::string& url, std::size_t count, std::size_t walks, bool ordered) {
  heap h({.cache = std::max<std::uint64_t>(count * frame_bytes<64> / 4, 2 << 20),
          .agents = {url},
          .collect = false,
          .collect_share = 1,
          .evacuation = {.order = ordered ? evacuation_order::depth_first : evacuation_order::address,
                         .below_live_ratio = ordered ? 1.0 : 0.5}});
  const tree root = make_scattered_tree(h, count);
  go_home(h);
  const std::uint64_t before = h.stats().misses;
  for (std::size_t i = 0; i < walks; ++i) {
    collect(h);
    walk_and_change(h, root, count);
  }
  return double(h.stats().misses - before) / double(count * walks);
}

void locality_row(program& p, const std::string& binary) {
  if (!p.wants("semeru_13")) return;
  const auto count = p.sized<std::size_t>(1 << 18, 1 << 15), walks = p.sized<std::size_t>(6, 2);
  // Full regions alone are evacuated, so they are small, as the heap is.
  const agent server(binary, "shm://", p.agent_core(),
                     {"--memory", "1GiB", "--log-level", "warning", "--region", "1MiB"});
  p.count_cpu_of(server.pid());
  p.compare(
      {"semeru_13",
       {{"transport", "shm"}, {"nodes", std::to_string(count)}, {"cache", "25%"}, {"walks", std::to_string(walks)}},
       "a node",
       {goal_kind::ratio_at_most, 1 / 8.76},
       "objects stay in the order in which they were made"},
      [&] {
        return turn{misses_of_program(server.url(), count, walks, true), {}, 0};
      },
      [&] {
        return turn{misses_of_program(server.url(), count, walks, false), {}, 0};
      },
      1);
  p.forget_cpu_of(server.pid());
}

}  // namespace

void semeru_rows(program& p, const std::string& binary) {
  tracing_rows(p, binary);
  footprint_rows(p, binary);
  locality_row(p, binary);
}

}  // namespace fm::bench
