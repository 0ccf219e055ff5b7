// The simulation's command line.
//
//   farmem_sim run SEED [--faults=some|breaks|deaths] [--mutation=NAME]     one run, in this process
//   farmem_sim check FROM COUNT [--faults=...]                              each in a process of its own: all must pass
//   farmem_sim catch FROM COUNT --mutation=NAME [--faults=...]              one of them must fail
//   farmem_sim replay SEED [--faults=...]                                   twice; they must be the same
//   farmem_sim mutations                                                    their names
//
// A run that fails is printed with the command that repeats it.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fiber.h"
#include "program.h"
#include "scheduler.h"

fm::detail::mutation fm::detail::chosen_mutation = fm::detail::mutation::none;

namespace {

using fm::sim::faults;

using fm::detail::mutation;
constexpr std::pair<const char*, mutation> mutations[] = {
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
    {"young_only", mutation::young_only},
    {"one_round", mutation::one_round},
    {"acknowledge_references_early", mutation::acknowledge_references_early},
    {"rehome_without_grace", mutation::rehome_without_grace},
    {"acknowledge_after_rehoming", mutation::acknowledge_after_rehoming},
    {"forget_losses", mutation::forget_losses},
    {"rehome_in_cycle", mutation::rehome_in_cycle},
};

constexpr int not_possible = 77;
constexpr rlim_t run_within_s = 120;      // of the processor's time, so that a busy machine fails no run
constexpr unsigned hangs_after_s = 1800;  // of real time: a run that waits for ever takes no processor

struct command {
  std::string name;
  std::vector<std::uint64_t> numbers;
  std::string faults = "some";
  std::string mutation;
};

int usage() {
  fmt::print(stderr,
             "usage: farmem_sim run|check|catch|replay|mutations [SEED|FROM COUNT] [--faults=] [--mutation=]\n");
  return 2;
}

std::optional<faults> faults_of(const std::string& name) {
  if (name == "some") return faults::some;
  if (name == "breaks") return faults::breaks;
  if (name == "deaths") return faults::deaths;
  return std::nullopt;
}

std::string text_of(std::uint64_t seed, const command& c) {
  std::string s = fmt::format("farmem_sim run {} --faults={}", seed, c.faults);
  if (!c.mutation.empty()) s += " --mutation=" + c.mutation;
  return s;
}

/// Runs the seed in a process of its own: the same as by hand, whatever ran before. 0 when all was well.
int run_apart(std::uint64_t seed, const command& c, std::string& output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    const std::string number = std::to_string(seed), f = "--faults=" + c.faults, m = "--mutation=" + c.mutation;
    ::execl("/proc/self/exe", "farmem_sim", "run", number.c_str(), f.c_str(), m.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  output.clear();
  char some[4096];
  for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;) output.append(some, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) output += fmt::format("ended by signal {}\n", WTERMSIG(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run_here(std::uint64_t seed, const command& c) {
  // Addresses are part of a run.
  if (const int now = ::personality(0xffffffff); (now & ADDR_NO_RANDOMIZE) == 0) {
    ::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE);
    std::string output;
    const int status = run_apart(seed, c, output);
    fmt::print("{}", output);
    return status;
  }
  ::mallopt(M_ARENA_MAX, 1);
  const rlimit work{run_within_s, run_within_s + 10};
  ::setrlimit(RLIMIT_CPU, &work);
  ::alarm(hangs_after_s);
  try {
    fmt::print("seed {}: {}\n", seed, fm::sim::run_program(seed, *faults_of(c.faults)));
    return 0;
  } catch (const std::exception& e) {
    // Other threads still wait for their turn: nothing is taken down.
    fmt::print(stderr, "seed {}: {}\n", seed, e.what());
    std::fflush(stderr);
    ::_exit(1);
  }
}

int check(const command& c) {
  std::string output;
  for (std::uint64_t seed = c.numbers[0]; seed < c.numbers[0] + c.numbers[1]; ++seed)
    if (run_apart(seed, c, output) != 0) {
      fmt::print("{}FAILED; again by: {}\n", output, text_of(seed, c));
      return 1;
    }
  fmt::print("{} seeds passed; the last one: {}", c.numbers[1], output);
  return 0;
}

// A run that only took too long has noticed nothing: it may be the plan that is too large.
int catch_mutation(const command& c) {
  std::string output;
  for (std::uint64_t seed = c.numbers[0]; seed < c.numbers[0] + c.numbers[1]; ++seed)
    if (run_apart(seed, c, output) != 0 && output.find(fm::sim::out_of_decisions) == std::string::npos) {
      fmt::print("{}caught after {} seeds; again by: {}\n", output, seed - c.numbers[0] + 1, text_of(seed, c));
      return 0;
    }
  fmt::print("{} seeds did not notice {}\n", c.numbers[1], c.mutation);
  return 1;
}

int replay(const command& c) {
  std::string first, second;
  if (run_apart(c.numbers[0], c, first) != 0 || run_apart(c.numbers[0], c, second) != 0 || first != second) {
    fmt::print("not the same:\n{}{}", first, second);
    return 1;
  }
  fmt::print("twice {}", first);
  return 0;
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
    else if (a.starts_with("--mutation="))
      c.mutation = a.substr(11);
    else
      c.numbers.push_back(std::strtoull(argv[i], nullptr, 0));
  }
  if (!faults_of(c.faults)) return usage();
  if (c.name == "mutations") {
    for (const auto& [name, which] : mutations) fmt::print("{}\n", name);
    return 0;
  }
  for (const auto& [name, which] : mutations)
    if (c.mutation == name) fm::detail::chosen_mutation = which;
  if (c.mutation.empty() != (fm::detail::chosen_mutation == mutation::none)) return usage();
  if (!fm::sim::fiber::possible()) {
    fmt::print("this processor or kernel does not let a program change the base of its thread-local storage\n");
    return not_possible;
  }
  if (c.name == "run" && c.numbers.size() == 1) return run_here(c.numbers[0], c);
  if (c.name == "check" && c.numbers.size() == 2) return check(c);
  if (c.name == "catch" && c.numbers.size() == 2) return catch_mutation(c);
  if (c.name == "replay" && c.numbers.size() == 1) return replay(c);
  return usage();
}
