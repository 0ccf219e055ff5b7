// index: an inverted index of a source tree in a heap that is larger than its local memory. This file puts the parts in
// order: survey the tree, start the agents, limit this process's memory, index, answer queries, report, check.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments, 130 interrupted.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <farmem/os.h>
#include <iostream>
#include <thread>

#include "agents.h"
#include "build.h"
#include "check.h"
#include "memory_limit.h"
#include "query.h"

namespace {

using namespace fm::example;
using namespace fm::literals;

/// Local memory is a quarter of the index plus this: the program itself, its threads and buffers, and the table of objects.
constexpr std::uint64_t base_bytes = 64_MiB;
/// What of it the program, its threads, buffers and connections need; the cache gets the rest beside the table of objects.
constexpr std::uint64_t program_bytes = 40_MiB;
constexpr std::uint64_t cache_bytes_min = 4_MiB;
constexpr std::uint64_t check_seed = 20240229;
constexpr std::size_t check_words = 200;

struct arguments {
  std::string directory = "/usr/include";
  agent_options agents;
  std::uint64_t local_bytes = 0, cache_bytes = 0, agent_bytes = 0;
  unsigned threads = std::min(2u, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::string> queries;
  bool check = false;
  bool interactive = true;
};

std::string mib(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / double(1_MiB)); }

void declare(CLI::App& app, arguments& a) {
  const auto size = [&app](const char* name, std::uint64_t& to, const char* help) {
    app.add_option(name, to, help)->transform(CLI::AsSizeValue(false))->type_name("SIZE");
  };
  app.add_option("directory", a.directory, "the tree to index")->capture_default_str();
  app.add_option("--transport", a.agents.transport, "how the agents are reached")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  app.add_option("--agents", a.agents.count, "agents to start")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--agent", a.agents.program, "the program farmem-agent (default: beside this one, or in PATH)")
      ->type_name("PATH");
  size("--memory", a.agent_bytes,
       "memory of each agent (default: three times its share of the index, at least 256MiB)");
  size("--local", a.local_bytes, "local memory of this process (default: a quarter of the index plus 64MiB)");
  size("--cache", a.cache_bytes,
       "local memory for objects, a part of --local (default: what the rest of the program does not need)");
  app.add_option("--threads", a.threads, "threads that index")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--query", a.queries, "words to look for, instead of the built-in queries; repeatable")
      ->type_name("WORDS")
      ->take_all()
      ->expected(1);
  app.add_flag("--check", a.check,
               "compare 200 random words with a plain scan, verify the heap, and fail on a difference");
  app.add_flag("!--no-interactive", a.interactive, "do not read queries from the terminal");
  app.footer("Sizes are like 64MiB or 1GiB.");
}

/// How the local memory is divided.
struct budget {
  std::uint64_t local_bytes = 0, cache_bytes = 0;
};
budget plan(const arguments& a, const survey& s) {
  budget b;
  b.local_bytes = a.local_bytes != 0 ? a.local_bytes : s.index_bytes() / 4 + base_bytes;
  b.cache_bytes = a.cache_bytes;
  if (b.cache_bytes == 0) {
    const std::uint64_t others = program_bytes + s.index_objects() * 8;
    b.cache_bytes = std::max(cache_bytes_min, b.local_bytes > others ? b.local_bytes - others : 0);
  }
  if (b.cache_bytes > b.local_bytes)
    throw fm::error(fm::errc::invalid_argument,
                    fmt::format("a cache of {} in local memory of {}", mib(b.cache_bytes), mib(b.local_bytes)));
  return b;
}

void converse(const inverted_index& index, const arguments& a) {
  if (!a.interactive || ::isatty(STDIN_FILENO) == 0) return;
  fmt::print("\nWords to look for, an empty line to end.\n");
  for (std::string line; !stop_requested;) {
    fmt::print("query> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line.empty()) break;
    answer(index, a.directory, line);
  }
}

void print_process(const char* what, pid_t pid) {
  const auto m = fm::os::resident_memory_of(pid);
  fmt::print("  {:<20} {:>10} private, {:>10} shared memory mapped\n", what, mib(m.total_bytes - m.shared_bytes),
             mib(m.shared_bytes));
}

void summarize(const inverted_index& index, fm::heap& h, const survey& s, const budget& b, const memory_limit& limit,
               const agent_processes& agents, double seconds) {
  const fm::heap_stats st = h.stats();
  const std::uint64_t operations = index.operations();
  const double hits = operations == 0 ? 0 : 100.0 * (1.0 - std::min(1.0, double(st.misses) / double(operations)));
  fmt::print("\nsummary\n");
  fmt::print("  files                {:>10}   ({:.1f} MB of text)\n", index.files(), double(s.bytes) / 1e6);
  fmt::print("  words                {:>10}   ({} different)\n", index.words(), index.terms());
  fmt::print("  postings             {:>10}\n", index.postings());
  fmt::print("  objects              {:>10}\n", st.allocated_objects);
  fmt::print("  index                {:>10}   (estimated {})\n", mib(st.allocated_bytes), mib(s.index_bytes()));
  fmt::print("  local memory         {:>10}   ({})\n", mib(b.local_bytes),
             limit.enforced()
                 ? fmt::format("enforced by a cgroup v{}; at most {} used", limit.version(), mib(limit.peak_bytes()))
                 : "not enforced: " + limit.why());
  fmt::print("  cache                {:>10}   ({:.1f} % of the index)\n", mib(b.cache_bytes),
             100.0 * double(b.cache_bytes) / double(std::max<std::uint64_t>(st.allocated_bytes, 1)));
  fmt::print(
      "  hit ratio            {:>8.2f} %   ({} misses in {} lookups, appends and reads; each touches several "
      "objects)\n",
      hits, st.misses, operations);
  fmt::print("  miss                 {:>7.1f} us   median, {:.1f} us p99\n", double(st.miss_ns.quantile_ns(0.5)) / 1e3,
             double(st.miss_ns.quantile_ns(0.99)) / 1e3);
  fmt::print("  fetched              {:>10}   ({} neighbours came along)\n", mib(st.fetched_bytes),
             st.elastic_installs);
  fmt::print("  written back         {:>10}   ({} objects)\n", mib(st.written_bytes), st.written_objects);
  print_process("this process", 0);
  for (std::size_t i = 0; i < agents.pids().size(); ++i)
    print_process(fmt::format("agent {}", i).c_str(), agents.pids()[i]);
  fmt::print("  time                 {:>8.1f} s   survey, {:.1f} s indexing ({:.1f} MB/s, {:.2f} M postings/s)\n",
             s.seconds, seconds, double(s.bytes) / 1e6 / seconds, double(index.postings()) / 1e6 / seconds);
}

/// Gives whether everything agreed.
bool check(const inverted_index& index, fm::heap& h, const arguments& a, const std::vector<std::string>& paths) {
  const check_result r = check_against_plain_scan(index, a.directory, paths, check_words, check_seed);
  for (const std::string& m : r.messages) fmt::print("  {}\n", m);
  fmt::print("\ncheck: {} random words ({} document frequencies in all) against a plain scan: {}\n", r.words,
             r.frequency_sum, r.differences == 0 ? "no difference" : fmt::format("{} DIFFER", r.differences));
  const fm::errc home = h.evict_all();  // so that what is verified is the copies on the agents, all of them
  if (home != fm::errc::ok) fmt::print("writing everything back: {}\n", fm::to_string(home));
  const fm::verify_report v = h.verify();
  for (const std::string& m : v.messages) fmt::print("  {}\n", m);
  fmt::print("verify: {} frames here, {} objects on the agents: {}\n", v.frames, v.agent_objects,
             v.ok() ? "no fault" : fmt::format("{} FAULTS", v.faults));
  return r.differences == 0 && r.words != 0 && home == fm::errc::ok && v.ok();
}

int run(int argc, char** argv) {
  arguments a;
  CLI::App app("Indexes a source tree in a far-memory heap and answers queries.", "index");
  declare(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  struct sigaction on_signal {};
  on_signal.sa_handler = [](int) { stop_requested = true; };
  ::sigaction(SIGINT, &on_signal, nullptr);  // without SA_RESTART: a read from the terminal ends
  ::sigaction(SIGTERM, &on_signal, nullptr);

  const std::vector<std::string> paths = list_files(a.directory);
  const survey s = survey_files(a.directory, paths, a.threads);
  const budget b = plan(a, s);
  a.agents.memory_bytes =
      a.agent_bytes != 0 ? a.agent_bytes : std::max<std::uint64_t>(256_MiB, s.index_bytes() * 3 / a.agents.count);
  const agent_processes agents(a.agents);  // before the limit: they stand for other machines
  const memory_limit limit(b.local_bytes);
  fmt::print("index of about {}, local memory {} ({}), of it cache {}\n", mib(s.index_bytes()), mib(b.local_bytes),
             limit.enforced() ? "enforced: " + limit.group() : "NOT enforced: " + limit.why(), mib(b.cache_bytes));
  for (const std::string& url : agents.urls()) fmt::print("agent {} with {}\n", url, mib(a.agents.memory_bytes));
  std::fflush(stdout);

  fm::heap h({.cache = b.cache_bytes, .agents = agents.urls(), .name = "index"});
  inverted_index index(h);
  const double seconds = index_files(index, a.directory, paths, a.threads);
  if (a.queries.empty())
    a.queries = {"mutex lock timeout", "socket address bind listen", "virtual memory page protection",
                 "copy constructor noexcept iterator"};
  for (const std::string& q : a.queries)
    if (!stop_requested) answer(index, a.directory, q);
  if (!stop_requested) converse(index, a);
  if (stop_requested) {
    fmt::print(stderr, "index: interrupted\n");
    return 130;
  }
  summarize(index, h, s, b, limit, agents, seconds);
  return !a.check || check(index, h, a, paths) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "index: {}\n", e.what());
    return 1;
  }
}
