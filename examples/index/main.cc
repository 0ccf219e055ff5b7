// index: an inverted index of a source tree in a heap that is larger than its local memory. This file puts the parts in
// order: survey the tree, start the agents, limit this process's memory, index, answer queries, report, check.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments, 130 interrupted.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <thread>

#include "../support/machine.h"
#include "build.h"
#include "check.h"
#include "query.h"

namespace {

using namespace fm::example;
using namespace fm::literals;

constexpr std::uint64_t check_seed = 20240229;
constexpr std::size_t check_words = 200;

struct arguments {
  std::string directory = "/usr/include";
  machine_options machine;
  unsigned threads = std::min(2u, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::string> queries;
  std::string keep, attach, secret;
  bool check = false;
  bool interactive = true;
};

void declare_flags(CLI::App& app, arguments& a) {
  app.add_option("directory", a.directory, "the tree to index")->capture_default_str();
  declare(app, a.machine, "index");
  app.add_option("--threads", a.threads, "threads that index")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--query", a.queries, "words to look for, instead of the built-in queries; repeatable")
      ->type_name("WORDS")
      ->take_all()
      ->expected(1);
  app.add_option("--at", a.machine.agents.at, "agents that run already, in place of starting some; repeatable")
      ->type_name("URL")
      ->take_all()
      ->expected(1);
  app.add_option("--keep", a.keep, "leave the index at the agents of --at, by this name")->type_name("NAME");
  app.add_option("--attach", a.attach, "answer from an index that was kept, and keep it again")->type_name("NAME");
  app.add_option("--secret", a.secret, "who attaches the index has to know it")->type_name("TEXT");
  app.add_flag("--check", a.check,
               "compare 200 random words with a plain scan, verify the heap, and fail on a difference");
  app.add_flag("!--no-interactive", a.interactive, "do not read queries from the terminal");
}

double milliseconds_since(fm::time_point begin) {
  return std::chrono::duration<double, std::milli>(fm::clock::now() - begin).count();
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

void summarize(const inverted_index& index, fm::heap& h, const survey& s, const memory_plan& p,
               const memory_limit& limit, const agent_processes& agents, double seconds) {
  const fm::heap_stats st = h.stats();
  fmt::print("\nsummary\n");
  fmt::print("  files                {:>10}   ({:.1f} MB of text)\n", index.files(), double(s.bytes) / 1e6);
  fmt::print("  words                {:>10}   ({} different)\n", index.words(), index.terms());
  fmt::print("  postings             {:>10}\n", index.postings());
  fmt::print("  objects              {:>10}\n", st.allocated_objects);
  fmt::print("  index                {:>10}   (estimated {})\n", mib(st.allocated_bytes), mib(s.index_bytes()));
  print_local_memory(p, limit, st.allocated_bytes, "index");
  print_traffic(st, index.operations(), "lookups, appends and reads; each touches several objects");
  print_collections(st);
  print_processes(agents);
  fmt::print("  time                 {:>8.1f} s   survey, {:.1f} s indexing ({:.1f} MB/s, {:.2f} M postings/s)\n",
             s.seconds, seconds, double(s.bytes) / 1e6 / seconds, double(index.postings()) / 1e6 / seconds);
}

/// Gives whether everything agreed.
bool check(const inverted_index& index, fm::heap& h, const arguments& a, const std::vector<std::string>& paths) {
  const check_result r = check_against_plain_scan(index, a.directory, paths, check_words, check_seed);
  for (const std::string& m : r.messages) fmt::print("  {}\n", m);
  fmt::print("\ncheck: {} random words ({} document frequencies in all) against a plain scan: {}\n", r.words,
             r.frequency_sum, r.differences == 0 ? "no difference" : fmt::format("{} DIFFER", r.differences));
  return verify_home(h) && r.differences == 0 && r.words != 0;
}

/// Answers the queries; false if the program was interrupted.
bool answer_all(const inverted_index& index, const arguments& a) {
  static const std::vector<std::string> built_in = {"mutex lock timeout", "socket address bind listen",
                                                    "virtual memory page protection",
                                                    "copy constructor noexcept iterator"};
  for (const std::string& q : a.queries.empty() ? built_in : a.queries)
    if (!stop_requested) answer(index, a.directory, q);
  if (!stop_requested) converse(index, a);
  if (stop_requested) fmt::print(stderr, "index: interrupted\n");
  return !stop_requested;
}

void keep(fm::heap& h, const inverted_index& index, const arguments& a, const std::string& name) {
  const fm::time_point begin = fm::clock::now();
  h.detach({.name = name, .secret = a.secret}, index.keep());
  fmt::print("\nkept as {} in {:.0f} ms: --attach {} finds it\n", name, milliseconds_since(begin), name);
}

/// Goes on with an index that another process has kept.
int run_attached(const arguments& a) {
  const fm::time_point begin = fm::clock::now();
  auto [h, kept] = fm::heap::attach<kept_index>({.name = a.attach, .secret = a.secret},
                                                {.cache = a.machine.cache_bytes != 0 ? a.machine.cache_bytes : 64_MiB,
                                                 .agents = a.machine.agents.at,
                                                 .name = "index"});
  const inverted_index index(*h, kept);
  fmt::print("attached {} in {:.1f} ms: {} files, {} different words, {} postings\n", a.attach,
             milliseconds_since(begin), index.files(), index.terms(), index.postings());
  const bool answered = answer_all(index, a);
  const bool agrees = !answered || !a.check || check(index, *h, a, list_files(a.directory));
  keep(*h, index, a, a.attach);
  return !answered ? 130 : agrees ? 0 : 1;
}

int run(arguments& a) {
  if ((!a.keep.empty() || !a.attach.empty()) && a.machine.agents.at.empty())
    throw fm::error(
        fm::errc::invalid_argument,
        "--keep and --attach need agents that outlive this program: start farmem-agent, and name it by --at");
  if (!a.attach.empty()) return run_attached(a);
  const std::vector<std::string> paths = list_files(a.directory);
  const survey s = survey_files(a.directory, paths, a.threads, memory_watch());
  const memory_plan p = make_plan(a.machine, s.index_bytes(), s.index_objects(), 3, local_bytes_of(paths, a.threads));
  a.machine.agents.owner = "index";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);  // before the limit: they stand for other machines
  const memory_limit limit("index", p.local_bytes);
  print_machine("index", s.index_bytes(), p, limit, agents);

  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = "index"});
  inverted_index index(h);
  const memory_watch watch(p.local_bytes);
  const double seconds = index_files(index, a.directory, paths, a.threads, watch);
  if (!answer_all(index, a)) return 130;
  summarize(index, h, s, p, limit, agents, seconds);
  const bool agrees = !a.check || check(index, h, a, paths);
  if (!a.keep.empty()) keep(h, index, a, a.keep);
  return agrees ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Indexes a source tree in a far-memory heap and answers queries.", "index");
  declare_flags(app, a);
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
