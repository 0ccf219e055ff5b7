// Flags, plans and summaries; see machine.h.
#include "machine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/prctl.h>

#include <csignal>
#include <fstream>

namespace fm::example {

std::atomic<bool> stop_requested{false};

namespace {

/// Local memory is a quarter of the heap plus this: the program itself, its threads and buffers, and the table of objects.
constexpr std::uint64_t base_bytes = 64_MiB;
/// What of it the program, its threads, buffers and connections need, beside the table of objects.
constexpr std::uint64_t program_bytes = 20_MiB;
/// Of the table of objects: a word of 8 bytes, and the marks of a collection.
constexpr std::uint64_t table_bytes_per_object = 9;
/// The cache's part of the rest, which is also for marks and messages of a collection.
constexpr double cache_share = 2.0 / 3;
constexpr std::uint64_t cache_bytes_min = 4_MiB;
constexpr std::uint64_t agent_bytes_min = 256_MiB;

void print_process(const std::string& what, pid_t pid) {
  const auto m = memory_of(pid);
  fmt::print("  {:<20} {:>10} private, {:>10} shared memory mapped\n", what, mib(m.total_bytes - m.shared_bytes),
             mib(m.shared_bytes));
}

/// Large blocks come from the kernel and go back there, and threads share few arenas: what is freed stays nobody's else.
/// No huge pages where the machine gives them to all memory: the stack of a thread that uses a few KiB can take 2 MiB then.
void keep_memory_small() {
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  ::mallopt(M_ARENA_MAX, 2);
}

void handle_signals() {
  struct sigaction on_signal {};
  on_signal.sa_handler = [](int) { stop_requested = true; };
  ::sigaction(SIGINT, &on_signal, nullptr);  // without SA_RESTART: a read from the terminal ends
  ::sigaction(SIGTERM, &on_signal, nullptr);
}

}  // namespace

process_memory memory_of(int pid) {
  std::ifstream in(pid == 0 ? std::string("/proc/self/status") : fmt::format("/proc/{}/status", pid));
  process_memory m;
  for (std::string key; in >> key; in.ignore(4096, '\n')) {
    std::uint64_t kib = 0;
    if (key == "VmRSS:" && in >> kib) m.total_bytes = kib << 10;
    if (key == "RssShmem:" && in >> kib) m.shared_bytes = kib << 10;
  }
  return m;
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    handle_signals();
    keep_memory_small();
    return run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), e.what());
    return 1;
  }
}

CLI::Option* add_size(CLI::App& app, const std::string& name, std::uint64_t& to, const std::string& help) {
  return app.add_option(name, to, help)->transform(CLI::AsSizeValue(false))->type_name("SIZE");
}

void declare(CLI::App& app, agent_options& a) {
  app.add_option("--transport", a.transport, "how the agents are reached")
      ->check(CLI::IsMember({"shm", "tcp", "verbs"}))
      ->capture_default_str();
  app.add_option("--address", a.address, "this machine's address, for tcp and verbs")->capture_default_str();
  app.add_option("--agents", a.count, "agents to start")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--agent", a.program, "the program farmem-agent (default: beside this one, or in PATH)")
      ->type_name("PATH");
  add_size(app, "--region", a.region_bytes, "size of the agents' regions, a power of two (default: theirs)");
  app.footer("Sizes are like 64MiB or 1GiB.");
}

void declare(CLI::App& app, machine_options& m, const std::string& what) {
  declare(app, m.agents);
  add_size(app, "--memory", m.agent_bytes,
           fmt::format("memory of each agent (default: a multiple of its share of the {})", what));
  add_size(app, "--local", m.local_bytes,
           fmt::format("local memory of this process (default: a quarter of the {} plus 64MiB)", what));
  add_size(app, "--cache", m.cache_bytes,
           "local memory for objects, a part of --local (default: what the rest of the program does not need)");
}

std::string mib(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / double(1_MiB)); }

memory_plan make_plan(const machine_options& m, std::uint64_t heap_bytes, std::uint64_t heap_objects,
                      double agent_share, std::uint64_t own_bytes) {
  const std::uint64_t table_bytes = heap_objects * table_bytes_per_object;
  const std::uint64_t others = program_bytes + own_bytes + table_bytes;
  const std::uint64_t cache_least = m.cache_bytes != 0 ? m.cache_bytes : cache_bytes_min;
  const auto least = others + std::uint64_t(double(cache_least) / cache_share);
  memory_plan p;
  p.local_bytes = m.local_bytes != 0 ? m.local_bytes : std::max(least, heap_bytes / 4 + base_bytes + own_bytes);
  if (p.local_bytes < least)
    throw error(
        errc::invalid_argument,
        fmt::format("local memory of {} is too little: give it --local {}MiB, for the program and its threads ({}), "
                    "the table of {} objects ({}), a cache of {}, and half of that for messages and collections",
                    mib(p.local_bytes), (least + 1_MiB - 1) / 1_MiB, mib(program_bytes + own_bytes), heap_objects,
                    mib(table_bytes), mib(cache_least)));
  p.cache_bytes = m.cache_bytes != 0 ? m.cache_bytes : std::uint64_t(double(p.local_bytes - others) * cache_share);
  p.agent_bytes = m.agent_bytes != 0
                      ? m.agent_bytes
                      : std::max(agent_bytes_min, std::uint64_t(double(heap_bytes) * agent_share) / m.agents.count);
  return p;
}

void print_machine(const std::string& what, std::uint64_t heap_bytes, const memory_plan& p, const memory_limit& limit,
                   const agent_processes& agents) {
  fmt::print("{} of about {}, local memory {} ({}), of it cache {}\n", what, mib(heap_bytes), mib(p.local_bytes),
             limit.enforced() ? "enforced: " + limit.group() : "NOT enforced: " + limit.why(), mib(p.cache_bytes));
  for (const std::string& url : agents.urls()) fmt::print("agent {} with {}\n", url, mib(p.agent_bytes));
  std::fflush(stdout);
}

void print_local_memory(const memory_plan& p, const memory_limit& limit, std::uint64_t heap_bytes,
                        const std::string& what) {
  fmt::print("  local memory         {:>10}   ({})\n", mib(p.local_bytes),
             limit.enforced()
                 ? fmt::format("enforced by a cgroup v{}; at most {} used", limit.version(), mib(limit.peak_bytes()))
                 : "not enforced: " + limit.why());
  fmt::print("  cache                {:>10}   ({:.1f} % of the {})\n", mib(p.cache_bytes),
             100.0 * double(p.cache_bytes) / double(std::max<std::uint64_t>(heap_bytes, 1)), what);
}

void print_traffic(const heap_stats& st, std::uint64_t operations, const std::string& each) {
  const double hits = operations == 0 ? 0 : 100.0 * (1.0 - std::min(1.0, double(st.misses) / double(operations)));
  fmt::print("  hit ratio            {:>8.2f} %   ({} misses in {} {})\n", hits, st.misses, operations, each);
  fmt::print("  miss                 {:>7.1f} us   median, {:.1f} us p99\n", double(st.miss_ns.quantile_ns(0.5)) / 1e3,
             double(st.miss_ns.quantile_ns(0.99)) / 1e3);
  fmt::print("  fetched              {:>10}   ({} neighbours came along)\n", mib(st.fetched_bytes),
             st.elastic_installs);
  fmt::print("  written back         {:>10}   ({} objects)\n", mib(st.written_bytes), st.written_objects);
}

void print_collections(const heap_stats& st) {
  fmt::print("  collections          {:>10}   ({} given up; {} objects freed, {} of home copies)\n", st.collections,
             st.collections_failed, st.collected_objects, mib(st.collected_bytes));
  fmt::print("  pause                {:>7.2f} ms   median of {}, {:.2f} ms p99, {:.2f} ms longest\n",
             double(st.pause_ns.quantile_ns(0.5)) / 1e6, st.pause_ns.count, double(st.pause_ns.quantile_ns(0.99)) / 1e6,
             double(st.pause_ns.max_ns) / 1e6);
}

void print_processes(const agent_processes& agents) {
  print_process("this process", 0);
  for (std::size_t i = 0; i < agents.pids().size(); ++i) print_process(fmt::format("agent {}", i), agents.pids()[i]);
}

bool verify_home(heap& h, std::uint64_t objects_max) {
  const errc home = h.evict_all();  // so that what is verified is the copies on the agents, all of them
  if (home != errc::ok) fmt::print("writing everything back: {}\n", to_string(home));
  const verify_report v = h.verify();
  for (const std::string& m : v.messages) fmt::print("  {}\n", m);
  fmt::print("verify: {} frames here, {} objects on the agents{}: {}\n", v.frames, v.agent_objects,
             v.agent_objects > objects_max ? fmt::format(", NO MORE THAN {} are expected", objects_max) : "",
             v.ok() ? "no fault" : fmt::format("{} FAULTS", v.faults));
  return home == errc::ok && v.ok() && v.agent_objects <= objects_max;
}

}  // namespace fm::example
