// The simulation's command line.
//
//   farmem_sim run SEED [--faults=some|breaks|deaths] [--mutation=NAME [--control]]   one run, in this process
//   farmem_sim check FROM COUNT [--faults=...] [--mutation=NAME --control]            each in a process of its own: all
//                                                                                     must pass
//   farmem_sim catch FROM COUNT --mutation=NAME [--faults=...] [--accept=ENDING,...]  one of them must notice it
//   farmem_sim replay SEED [--faults=...]                                             twice; they must be the same
//   farmem_sim mutations                                                              their names
//
// A control run has the plan that leans towards the mutation, and the code without it. A run notices a mutation if it
// ends in an accepted way (ending.h; a finding or a failed check, if nothing is said) and the controls pass: those of
// all seeds so far, and of controls_least seeds. A control that fails shows a plan that fails by itself, or an error of
// the library: the mutation is not noticed then, whatever its runs ended with.
//
// A run that fails is printed with the command that repeats it.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ending.h"
#include "fiber.h"
#include "program.h"
#include "scheduler.h"

fm::detail::mutation fm::detail::chosen_mutation = fm::detail::mutation::none;

namespace {

using fm::detail::mutation;
using fm::sim::ending;
using fm::sim::faults;

struct named_mutation {
  const char* name;
  mutation which;
  ending pretended = ending::passed;  ///< the run ends so, whatever the library does: for the test of catch itself ...
  bool by_the_plan = false;           ///< ... and the control run, too
};
constexpr named_mutation mutations[] = {
    {"evict_without_grace", mutation::evict_without_grace},
    {"drop_open_page", mutation::drop_open_page},
    {"clean_when_copied", mutation::clean_when_copied},
    {"index_out_of_turn", mutation::index_out_of_turn},
    {"read_past_acknowledged", mutation::read_past_acknowledged},
    {"sweep_by_entry", mutation::sweep_by_entry},
    {"retire_while_read", mutation::retire_while_read},
    {"return_slots_early", mutation::return_slots_early},
    {"end_marking_early", mutation::end_marking_early},
    {"lock_without_asking", mutation::lock_without_asking},
    {"log_nothing", mutation::log_nothing},
    {"move_while_pinned", mutation::move_while_pinned},
    {"scan_old_homes", mutation::scan_old_homes},
    {"forget_gone_home", mutation::forget_gone_home},
    {"young_for_ever", mutation::young_for_ever},
    {"grow_up_unnoticed", mutation::grow_up_unnoticed},
    {"believe_no_news", mutation::believe_no_news},
    {"believe_no_pins", mutation::believe_no_pins},
    {"young_only", mutation::young_only},
    {"one_round", mutation::one_round},
    {"acknowledge_references_early", mutation::acknowledge_references_early},
    {"rehome_without_grace", mutation::rehome_without_grace},
    {"acknowledge_after_rehoming", mutation::acknowledge_after_rehoming},
    {"forget_losses", mutation::forget_losses},
    {"rehome_in_cycle", mutation::rehome_in_cycle},
    {"release_dead_without_grace", mutation::release_dead_without_grace},
    {"stale_rescan", mutation::stale_rescan},
    {"stale_local_rescan", mutation::stale_local_rescan},
    {"ignore_waiting_threads", mutation::ignore_waiting_threads},
    {"unpin_without_log", mutation::unpin_without_log},
    {"gather_unpinned", mutation::gather_unpinned},
    {"link_clean", mutation::link_clean},
    {"queue_unrooted", mutation::queue_unrooted},
    {"acknowledge_before_all", mutation::acknowledge_before_all},
    {"release_at_primary_only", mutation::release_at_primary_only},
    {"believe_old_hints", mutation::believe_old_hints},
    {"import_over", mutation::import_over},
    {"join_unfinished", mutation::join_unfinished},
    {"hand_over_open", mutation::hand_over_open},
    {"renew_in_use", mutation::renew_in_use},
    {"hand_over_unsettled", mutation::hand_over_unsettled},
    {"forget_nothing_left", mutation::forget_nothing_left},
    {"pretended_finding", mutation::none, ending::finding},
    {"pretended_error", mutation::none, ending::error},
    {"pretended_check", mutation::none, ending::check},
    {"pretended_crash", mutation::none, ending::crash},
    {"pretended_alarm", mutation::none, ending::alarm},
    {"pretended_plan", mutation::none, ending::finding, true},
};

constexpr int not_possible = 77;
constexpr rlim_t run_within_s = 120;      // of the processor's time, so that a busy machine fails no run
constexpr unsigned hangs_after_s = 1800;  // of real time: a run that waits for ever takes no processor

constexpr std::uint64_t controls_least = 4;  // fewer say little about a plan that fails now and then

struct command {
  std::string name;
  std::vector<std::uint64_t> numbers;
  std::string faults = "some";
  const named_mutation* mutated = nullptr;
  bool control = false;
  std::vector<ending> accepted = {ending::finding, ending::check};
};

int usage() {
  fmt::print(stderr,
             "usage: farmem_sim run|check|catch|replay|mutations [SEED|FROM COUNT] [--faults=] [--mutation=] "
             "[--control] [--accept=]\n");
  return 2;
}

std::optional<faults> faults_of(const std::string& name) {
  if (name == "some") return faults::some;
  if (name == "breaks") return faults::breaks;
  if (name == "deaths") return faults::deaths;
  if (name == "replicas") return faults::replicas;
  if (name == "members") return faults::members;
  return std::nullopt;
}

std::vector<std::string> arguments_of(std::uint64_t seed, const command& c) {
  std::vector<std::string> all = {"farmem_sim", "run", std::to_string(seed), "--faults=" + c.faults};
  if (c.mutated != nullptr) all.push_back(fmt::format("--mutation={}", c.mutated->name));
  if (c.control) all.emplace_back("--control");
  return all;
}

std::string text_of(std::uint64_t seed, const command& c) {
  std::string s;
  for (const std::string& a : arguments_of(seed, c)) s += (s.empty() ? "" : " ") + a;
  return s;
}

ending ending_of_signal(int signal, const std::string& output) {
  switch (signal) {
    case SIGALRM:
    case SIGXCPU:
    case SIGKILL: return ending::alarm;  // the last one: the hard limit, or the kernel is short of memory
    case SIGABRT: return output.find(fm::sim::failed_check) != std::string::npos ? ending::check : ending::crash;
    default: return ending::crash;
  }
}

/// Runs the seed in a process of its own: the same as by hand, whatever ran before.
ending run_apart(std::uint64_t seed, const command& c, std::string& output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::vector<std::string> arguments = arguments_of(seed, c);
  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::execv("/proc/self/exe", pointers.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  output.clear();
  char some[4096];
  for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;) output.append(some, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return fm::sim::ending_of_status(WEXITSTATUS(status));
  output += fmt::format("ended by signal {}\n", WTERMSIG(status));
  return ending_of_signal(WTERMSIG(status), output);
}

int run_here(std::uint64_t seed, const command& c) {
  // Addresses are part of a run.
  if (const int now = ::personality(0xffffffff); (now & ADDR_NO_RANDOMIZE) == 0) {
    ::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE);
    std::string output;
    const ending e = run_apart(seed, c, output);
    fmt::print("{}", output);
    return fm::sim::exit_status(e);
  }
  ::mallopt(M_ARENA_MAX, 1);
  const rlimit work{run_within_s, run_within_s + 10};
  ::setrlimit(RLIMIT_CPU, &work);
  ::alarm(hangs_after_s);
  fm::sim::setting s{.what = *faults_of(c.faults)};
  if (c.mutated != nullptr) {
    s.leaning = c.mutated->which;
    if (!c.control) fm::detail::chosen_mutation = c.mutated->which;
    if (!c.control || c.mutated->by_the_plan) s.pretended = c.mutated->pretended;
  }
  try {
    fmt::print("seed {}: {}\n", seed, fm::sim::run_program(seed, s));
    return 0;
  } catch (const std::exception& e) {
    // Other threads still wait for their turn: nothing is taken down.
    fmt::print(stderr, "seed {}: {}\n", seed, e.what());
    std::fflush(stderr);
    ::_exit(fm::sim::exit_status(ending::error));
  }
}

/// Whether all seeds in [from, to) pass; prints the first that does not.
bool all_pass(std::uint64_t from, std::uint64_t to, const command& c, std::string& output) {
  for (std::uint64_t seed = from; seed < to; ++seed)
    if (const ending e = run_apart(seed, c, output); e != ending::passed) {
      fmt::print("{}FAILED ({}); again by: {}\n", output, name_of(e), text_of(seed, c));
      return false;
    }
  return true;
}

int check(const command& c) {
  std::string output;
  if (!all_pass(c.numbers[0], c.numbers[0] + c.numbers[1], c, output)) return 1;
  fmt::print("{} seeds passed; the last one: {}", c.numbers[1], output);
  return 0;
}

int catch_mutation(const command& c) {
  std::string output, ignored;
  std::map<ending, std::uint64_t> others;
  const std::uint64_t from = c.numbers[0];
  for (std::uint64_t seed = from; seed < from + c.numbers[1]; ++seed) {
    const ending e = run_apart(seed, c, output);
    if (std::find(c.accepted.begin(), c.accepted.end(), e) == c.accepted.end()) {
      ++others[e];
      continue;
    }
    command controls = c;
    controls.control = true;
    const std::uint64_t to = std::max(seed + 1, from + controls_least);
    if (!all_pass(from, to, controls, ignored)) {
      fmt::print("the plan of {} fails by itself: nothing is noticed\n", c.mutated->name);
      return 1;
    }
    fmt::print("{}noticed: {}; runs: {} with the mutation, {} controls passed; again by: {}\n", output, name_of(e),
               seed - from + 1, to - from, text_of(seed, c));
    return 0;
  }
  fmt::print("{}{} seeds did not notice {}:", others.size() > 1 ? output : "", c.numbers[1], c.mutated->name);
  for (const auto& [e, times] : others) fmt::print(" {} {}", times, name_of(e));
  fmt::print("\n");
  return 1;
}

int replay(const command& c) {
  std::string first, second;
  if (run_apart(c.numbers[0], c, first) != ending::passed || run_apart(c.numbers[0], c, second) != ending::passed ||
      first != second) {
    fmt::print("not the same:\n{}{}", first, second);
    return 1;
  }
  fmt::print("twice {}", first);
  return 0;
}

/// Endings by name, comma between them; nothing if one is unknown or is that of a run that passed.
std::vector<ending> endings_of(std::string_view list) {
  std::vector<ending> all;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::optional<ending> e = fm::sim::ending_of(list.substr(0, comma));
    if (!e || *e == ending::passed) return {};
    all.push_back(*e);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  command c;
  if (argc < 2) return usage();
  c.name = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.starts_with("--faults="))
      c.faults = a.substr(9);
    else if (a.starts_with("--accept="))
      c.accepted = endings_of(std::string_view(a).substr(9));
    else if (a == "--control")
      c.control = true;
    else if (a.starts_with("--mutation=")) {
      const auto known = std::find_if(std::begin(mutations), std::end(mutations),
                                      [&](const named_mutation& m) { return a.substr(11) == m.name; });
      if (known == std::end(mutations)) return usage();
      c.mutated = &*known;
    } else
      c.numbers.push_back(std::strtoull(argv[i], nullptr, 0));
  }
  if (!faults_of(c.faults) || c.accepted.empty() || (c.control && c.mutated == nullptr)) return usage();
  if (c.name == "mutations") {
    for (const named_mutation& m : mutations) fmt::print("{}\n", m.name);
    return 0;
  }
  if (!fm::sim::fiber::possible()) {
    fmt::print("this processor or kernel does not let a program change the base of its thread-local storage\n");
    return not_possible;
  }
  if (c.name == "run" && c.numbers.size() == 1) return run_here(c.numbers[0], c);
  if (c.name == "check" && c.numbers.size() == 2) return check(c);
  if (c.name == "catch" && c.numbers.size() == 2 && c.mutated != nullptr && !c.control) return catch_mutation(c);
  if (c.name == "replay" && c.numbers.size() == 1) return replay(c);
  return usage();
}
