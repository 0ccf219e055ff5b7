// fm::paged under programs that know nothing of it, against the same programs on the kernel's swap with the same local memory
// (both limited by a memory cgroup), against everything resident, and blocks of one size against elastic ones.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "support/limits.h"
#include "support/managed.h"
#include "support/range_workloads.h"

namespace {

using namespace fm::bench;

constexpr std::uint64_t threads_named_within_ns = 10'000'000'000;  // a guard against renaming; it takes microseconds

// The threads of the range that work ahead of the program and behind it get all cores, as the kernel's get that do the same for swap.
// Those that serve faults stay beside the program. A thread takes its name some time after the range is open, so this waits for both.
void unpin_background() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN); ++i) CPU_SET(i, &all);
  std::set<std::string> missing{"fm-paged-ahead", "fm-paged-evict"};
  for (const std::uint64_t until = now_ns() + threads_named_within_ns; !missing.empty();) {
    if (now_ns() > until) throw fm::error(fm::errc::timed_out, "no thread is called " + *missing.begin());
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (missing.contains(name) && sched_setaffinity(std::stoi(task.path().filename()), sizeof all, &all) == 0)
        missing.erase(name);
    }
    sched_yield();
  }
}

// What was fetched and sampled from one moment to another.
fm::paged_stats sampled_between(const fm::paged_stats& before, fm::paged_stats after) {
  for (std::size_t i = 0; i < fm::paged_stats::orders; ++i) {
    after.beside_pages[i] -= before.beside_pages[i];
    after.sampled_pages[i] -= before.sampled_pages[i];
    after.sampled_used[i] -= before.sampled_used[i];
  }
  after.ahead_pages -= before.ahead_pages;
  after.ahead_sampled -= before.ahead_sampled;
  after.ahead_used -= before.ahead_used;
  return after;
}

// The worker `paged <bytes> <local bytes> <block> <elastic> <sigbus> <url>`; also answers what the range says about itself.
int paged_main(const std::vector<std::string>& args) {
  const std::uint64_t bytes = std::stoull(args.at(0));
  fm::paged_options o{.capacity = 2 * bytes, .local = std::stoull(args.at(1)), .agents = {args.at(5)}};
  o.block = std::stoull(args.at(2));
  o.elastic = args.at(3) == "1";
  if (o.block == 4096) o.read_ahead = 0;
  o.faults = args.at(4) == "1" ? fm::fault_mode::sigbus : fm::fault_mode::threads;
  const fm::paged far(o);
  unpin_background();
  // The map and the lines share the range by way of its resource.
  auto* const lines = static_cast<std::byte*>(far.resource()->allocate(bytes, 4096));
  range_workloads w({lines, bytes}, far.resource());
  return serve_commands({}, [&](const std::vector<std::string>& command) {
    const fm::paged_stats before = far.stats();
    figures f = w.run(command);
    const fm::paged_stats after = far.stats();
    f["accuracy"] = sampled_between(before, after).prefetch_accuracy();
    f["fetched"] = double(after.fetched_bytes - before.fetched_bytes);
    return f;
  });
}

// The worker `plain <bytes>`.
int plain_main(const std::vector<std::string>& args) {
  const std::uint64_t bytes = std::stoull(args.at(0));
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw fm::error(fm::errc::out_of_memory, args.at(0) + " bytes");
  range_workloads w({static_cast<std::byte*>(at), bytes}, std::pmr::new_delete_resource());
  return serve_commands({}, [&](const std::vector<std::string>& command) { return w.run(command); });
}

struct workload {
  std::string name, unit;
  bool in_order;  ///< most of its accesses are
  double scale;
  std::vector<std::string> prepare;  ///< commands before the first turn
  std::string command;               ///< of a turn; `@` stands for a seed
};

std::vector<workload> workloads(const program& p, std::uint64_t bytes) {
  const std::string few = std::to_string(p.sized(200'000, 5'000));  // of which many cost a fault
  const std::string keys = std::to_string(bytes / 200);  // a node and its share of the table take about as many bytes
  return {{"scan", "MiB/s", true, 1 << 20, {"fill"}, "scan 2"},
          {"hash", "MiB/s", true, 1 << 20, {"fill"}, "hash 1"},
          {"random", "Kops/s", false, 1e3, {"fill"}, "lines " + few + " 0 @"},
          {"zipf", "Kops/s", false, 1e3, {"fill"}, "lines " + few + " 0.99 @"},
          {"sort", "MiB/s", true, 1 << 20, {}, "sort @"},
          {"map", "Kops/s", false, 1e3, {"map " + keys}, "find " + few + " 0.05 @"}};
}

std::string percent(double share) { return std::to_string(int(share * 100 + 0.5)) + "%"; }

class measured {
 public:
  measured(program& p, const workload& w, worker&& of) : program_(p), workload_(w), worker_(std::move(of)) {
    for (const std::string& c : w.prepare) worker_.ask(c);
    program_.count_cpu_of(worker_.pid());
  }
  ~measured() {
    program_.forget_cpu_of(worker_.pid());
    worker_.finish();  // the agent has no room for many ranges at a time
  }
  measured(const measured&) = delete;
  measured& operator=(const measured&) = delete;
  turn operator()() {
    std::string command = workload_.command;
    if (const auto at = command.find('@'); at != std::string::npos) command.replace(at, 1, std::to_string(++seed_));
    last_ = worker_.ask(command);
    return {last_.at("units_per_s") / workload_.scale, {}, 0};
  }
  [[nodiscard]] const figures& last() const { return last_; }

 private:
  program& program_;
  const workload& workload_;
  worker worker_;
  figures last_;
  int seed_ = 0;
};

class paged_bench {
 public:
  paged_bench(program& p, std::uint64_t bytes, const std::string& transport, const counted_agent& agent)
      : p_(p), bytes_(bytes), transport_(transport), agent_(agent) {}

  void against_swap(const workload& w, double local) {
    row_spec spec = row("swap_" + w.name, w, local);
    spec.peer_name = "plain memory on RAM-disk swap";
    if (transport_ == "shm" && w.name == "scan") spec.wanted = {goal_kind::ratio_at_least, 2};
    if (transport_ == "shm" && w.name == "random" && local == 0.25) spec.wanted = {goal_kind::ratio_at_least, 1.3};
    if (!p_.wants(spec.name)) return;
    try {
      const auto limit = std::uint64_t(double(bytes_) * local) + own_bytes;
      const ram_swap disk(3 * bytes_, w.in_order ? 3 : 0);  // vm.page-cluster as it is better for each
      const memory_cgroup ours_limit("ours", limit), peer_limit("peer", limit);
      measured ours(p_, w, paged(local, 64 << 10, true, false, ours_limit.procs()));
      measured peer(p_, w, worker("plain", {std::to_string(bytes_)}, core(), peer_limit.procs()));
      p_.compare(
          spec, [&] { return ours(); }, [&] { return peer(); }, 3);
    } catch (const fm::error& e) {
      p_.left_out(spec, e.what());
    }
  }
  void against_memory(const workload& w, double local) {
    row_spec spec = row("resident_" + w.name, w, local);
    spec.peer_name = "everything in plain memory";
    if (transport_ == "shm" && w.name == "scan") spec.wanted = {goal_kind::ratio_at_least, 0.9};
    if (transport_ == "shm" && local == 0.5 && (w.name == "sort" || w.name == "map" || w.name == "zipf"))
      spec.wanted = {goal_kind::ratio_at_least, 1 / 1.06};
    if (!p_.wants(spec.name)) return;
    measured ours(p_, w, paged(local, 64 << 10, true, false, {}));
    measured peer(p_, w, worker("plain", {std::to_string(bytes_)}, core()));
    p_.compare(
        spec, [&] { return ours(); }, [&] { return peer(); }, 3);
  }
  void against_sigbus(const workload& w, double local) {
    row_spec spec = row("sigbus_" + w.name, w, local);
    spec.peer_name = "handler threads";
    if (!p_.wants(spec.name)) return;
    measured ours(p_, w, paged(local, 64 << 10, true, true, {}));
    measured peer(p_, w, paged(local, 64 << 10, true, false, {}));
    p_.compare(
        spec, [&] { return ours(); }, [&] { return peer(); }, 3);
  }
  // Elastic blocks against each fixed size: the row for the best of them has the goal.
  void blocks(const workload& w, double local) {
    for (const std::uint64_t block : {4u << 10, 16u << 10, 64u << 10}) {
      row_spec spec = row("blocks_" + w.name, w, local);
      spec.parameters.emplace_back("fixed", std::to_string(block >> 10) + " KiB");
      spec.peer_name = "blocks of one size";
      spec.wanted = {goal_kind::ratio_at_least, 0.95};
      if (!p_.wants(spec.name)) return;
      measured ours(p_, w, paged(local, 64 << 10, true, false, {}));
      measured peer(p_, w, paged(local, block, false, false, {}));
      p_.compare(
          spec, [&] { return ours(); }, [&] { return peer(); }, 3);
      if (block != (4u << 10)) continue;
      row_spec accuracy = row("accuracy_" + w.name, w, local);
      accuracy.unit = "share";
      if (w.name == "scan") accuracy.wanted = {goal_kind::value_at_least, 0.9};
      p_.measure(accuracy, ours.last().at("accuracy"));
      row_spec fetched = row("fetched_" + w.name, w, local);
      fetched.unit = "of blocks of 4 KiB";
      p_.measure(fetched, ours.last().at("fetched") / std::max(1.0, peer.last().at("fetched")));
    }
  }

 private:
  static constexpr std::uint64_t own_bytes = 12 << 20;  ///< programs, libraries and tables of both sides

  [[nodiscard]] int core() const { return p_.pinned() ? 0 : -1; }
  [[nodiscard]] row_spec row(const std::string& name, const workload& w, double local) const {
    return {name,
            {{"transport", transport_}, {"data", std::to_string(bytes_ >> 20) + " MiB"}, {"local", percent(local)}},
            w.unit,
            {},
            {}};
  }
  worker paged(double local, std::uint64_t block, bool elastic, bool sigbus, const std::string& group) {
    return worker("paged",
                  {std::to_string(bytes_), std::to_string(std::uint64_t(double(bytes_) * local)), std::to_string(block),
                   elastic ? "1" : "0", sigbus ? "1" : "0", agent_.url()},
                  core(), group);
  }

  program& p_;
  std::uint64_t bytes_;
  std::string transport_;
  const counted_agent& agent_;
};

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"paged", paged_main}, {"plain", plain_main}});
  program p("paged",
            "Programs that know nothing of far memory, on fm::paged, on the kernel's swap and on plain memory");
  std::string binary, only_transport;
  std::uint64_t mib = 0;
  p.option("--agent", binary, "the farmem-agent to run");
  p.option("--mib", mib, "data (0: 256, quick 24)");
  p.option("--transport", only_transport, "only this one (shm or tcp; empty: both)");
  p.parse(argc, argv);
  if (mib == 0) mib = p.sized<std::uint64_t>(256, 24);
  const std::uint64_t bytes = mib << 20;
  return p.run([&] {
    const std::vector<workload> all = workloads(p, bytes);
    for (const auto& [transport, url] : transports()) {
      if (!only_transport.empty() && only_transport != transport) continue;
      const counted_agent agent(p, binary, url, std::to_string(12 * mib + 256) + "MiB");
      paged_bench b(p, bytes, transport, agent);
      for (const workload& w : all) {
        for (const double local : {0.25, 0.5, 0.75})
          if (transport == "shm" || local == 0.25) b.against_swap(w, local);
        b.against_memory(w, 0.5);
        if (transport == "shm") b.blocks(w, 0.5);
      }
      b.against_sigbus(all[2], 0.25);
    }
  });
}
